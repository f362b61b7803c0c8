// Parses dates and times in a given format: see gpu.TimeFormat, which makes the items.
#include "eval_calendar.cuh"
#include "eval_text.cuh"

// Item has the layout of gpu.TimeItem. Its text is in the table.
struct Item {
    i32 kind, field, width, lo, hi, text, size, unused;
};

enum ItemKind : i32 { LITERAL, NUMBER, FRACTION, NAME, HALF, OFFSET };
enum Field : i32 { YEAR, YEAR_OF_CENTURY, MONTH, DAY, HOUR, MINUTE, SECOND, NANOS, DAY_OF_YEAR, NOTHING, FIELDS };

// Cursor reads a string.
struct Cursor {
    Text s;

    __device__ bool more() const { return s.n > 0; }
    __device__ void skip(i64 n) { s = Text{s.p + n, s.n - n}; }
    __device__ void spaces() {
        while (more() && is_space(s.p[0])) skip(1);
    }
    __device__ bool digit(i64 k) const { return k < s.n && s.p[k] >= '0' && s.p[k] <= '9'; }

    // word reads a word without regard to the case of its ASCII letters.
    __device__ bool word(Text w) {
        if (s.n < w.n) return false;
        for (i64 k = 0; k < w.n; k++) {
            u8 c = s.p[k], d = w.p[k];
            bool letter = (d | 32) >= 'a' && (d | 32) <= 'z';
            if (letter ? (c | 32) != (d | 32) : c != d) return false;
        }
        skip(w.n);
        return true;
    }

    // literal reads a string in which any number of spaces matches any number of spaces.
    __device__ bool literal(Text t) {
        for (i64 k = 0; k < t.n;) {
            if (!more()) return false;
            if (is_space(t.p[k])) {
                if (!is_space(s.p[0])) return false;
                spaces();
                while (k < t.n && is_space(t.p[k])) k++;
                continue;
            }
            if (s.p[0] != t.p[k++]) return false;
            skip(1);
        }
        return true;
    }

    __device__ bool two(i64 at, i64& v) const {
        if (!digit(at) || !digit(at + 1)) return false;
        v = (s.p[at] - '0') * 10 + s.p[at + 1] - '0';
        return true;
    }

    // offset reads seconds east of UTC.
    __device__ bool offset(i64& seconds) {
        i64 n;
        if (!more() || (s.p[0] != '+' && s.p[0] != '-') || !two(1, n)) return false;
        i64 sign = s.p[0] == '-' ? -1 : 1, v = n * 3600;
        skip(3);
        if (two(0, n)) {
            v += n * 60;
            skip(2);
        } else if (s.n > 1 && digit(0)) { // a final digit belongs to the next item
            return false;
        } else {
            for (i64 unit = 60; unit > 0 && more() && s.p[0] == ':'; unit /= 60) {
                if (!two(1, n)) return false;
                v += n * unit;
                skip(3);
            }
        }
        seconds = sign * v;
        return true;
    }
};

template <int N>
DEVICE Text text_of(const char (&s)[N]) {
    return Text{(const u8*)s, N - 1};
}

// parse_time reads a time in q units a second. It reports whether the time is infinite.
DEVICE bool parse_time(const Args& a, Text s, i128& out, bool& infinite) {
    Cursor c{s};
    c.spaces();
    infinite = true;
    if (c.word(text_of("infinity"))) {
        out = a.infinity;
        c.spaces();
        return !c.more();
    }
    if (c.word(text_of("-infinity"))) {
        out = -a.infinity;
        c.spaces();
        return !c.more();
    }
    infinite = false;
    if (c.word(text_of("epoch"))) {
        out = 0;
        c.spaces();
        return !c.more();
    }
    i64 fields[FIELDS] = {};
    fields[YEAR] = 1900;
    fields[MONTH] = fields[DAY] = fields[DAY_OF_YEAR] = 1;
    u8 half = 0;
    i64 offset = 0;
    for (i64 i = 0; i < a.p; i++) {
        const Item& item = ((const Item*)a.set)[i];
        Text text{(const u8*)a.table + item.text, item.size};
        bool ok = false;
        switch (item.kind) {
        case LITERAL: ok = c.literal(text); break;
        case NUMBER:
        case FRACTION: {
            i64 n = 0, digits = 0;
            for (; digits < item.width && c.digit(digits); digits++) n = 10 * n + c.s.p[digits] - '0';
            c.skip(digits);
            ok = digits > 0 && n >= item.lo && n <= item.hi;
            if (item.kind == FRACTION)
                for (; digits < 9; digits++) n *= 10;
            if (item.field == YEAR_OF_CENTURY) fields[YEAR] = n < 69 ? 2000 + n : 1900 + n;
            else fields[item.field] = n;
            break;
        }
        case NAME: {
            i64 n = item.lo;
            for (i64 k = 0; k < text.n && !ok; n++) {
                i64 end = k;
                while (end < text.n && text.p[end] != ' ') end++;
                if (ok = c.word(Text{text.p + k, end - k})) fields[item.field] = n;
                k = end + 1;
            }
            break;
        }
        case HALF:
            if (ok = c.s.n >= 2 && ((c.s.p[0] | 32) == 'a' || (c.s.p[0] | 32) == 'p') && (c.s.p[1] | 32) == 'm') {
                half = c.s.p[0] | 32;
                c.skip(2);
            }
            break;
        case OFFSET: ok = c.offset(offset); break;
        }
        if (!ok) return false;
    }
    c.spaces();
    if (c.more()) return false;
    i64 hour = fields[HOUR];
    if (half) {
        if (hour > 12) return false;
        hour = hour % 12 + (half == 'p' ? 12 : 0);
    }
    i64 days;
    if (a.mode) {
        days = days_of(fields[YEAR], 1, 1) + fields[DAY_OF_YEAR] - 1;
        if (days >= days_of(fields[YEAR] + 1, 1, 1)) return false;
    } else {
        if (fields[DAY] > days_in_month(fields[YEAR], fields[MONTH])) return false;
        days = days_of(fields[YEAR], fields[MONTH], fields[DAY]);
    }
    i64 seconds = days * 86400 + hour * 3600 + fields[MINUTE] * 60 + fields[SECOND] - offset;
    out = (i128)seconds * a.q + fields[NANOS] / (1000000000 / a.q);
    return true;
}

// eval_strptime reads times by the p items in set. With mode 1 the day of the year determines the date.
KERNEL(eval_strptime, Args) {
    i64 i = global_thread();
    i128 r = 0;
    bool ok = true, infinite = false;
    if (i < a.n && bit(a.valid, i)) ok = parse_time(a, load_text(a.x, i), r, infinite);
    settle_int(a, i, r, ok ? VALUE : FAILED, infinite);
}
