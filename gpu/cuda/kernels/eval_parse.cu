// Casts of strings to numbers, booleans, dates, times and bytes.
#include "eval_calendar.cuh"
#include "eval_float.cuh"
#include "eval_int128.cuh"

DEVICE bool is_digit(u8 c) { return c >= '0' && c <= '9'; }

DEVICE Text from_byte(Text s, i64 k) { return Text{s.p + k, s.n - k}; }

DEVICE bool begins(Text s, u8 c) { return s.n > 0 && s.p[0] == c; }

DEVICE i32 hex_digit(u8 c) {
    if (is_digit(c)) return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// parse_base reads digits of a base, with single underscores between them.
DEVICE bool parse_base(Text s, i32 base, i128& v) {
    v = 0;
    for (i64 i = 0; i < s.n; i++) {
        u8 c = s.p[i];
        if (c == '_' && i > 0 && i + 1 < s.n && s.p[i - 1] != '_') continue;
        i32 digit = hex_digit(c);
        if (mul_overflows(v, base, v) || digit < 0 || digit >= base) return false;
        v += digit; // into bits that are zero
    }
    return true;
}

// parse_decimal reads digits[.digits][e±digits]. It scales the number and rounds half away from zero.
DEVICE bool parse_decimal(Text s, i32 scale, i128& v) {
    constexpr i32 MAX_DIGITS = 38;
    bool negative = begins(s, '-');
    if (negative || begins(s, '+')) s = from_byte(s, 1);
    v = 0; // the number times -1, because 128 bits have one more negative number than positive ones
    const i128 least = (i128)((u128)1 << 127), room = least / 10;
    i64 exponent = 0, i = 0;
    bool any = false, point = false, full = false;
    for (; i < s.n; i++) {
        u8 c = s.p[i];
        if (is_digit(c)) {
            any = true;
            i32 digit = c - '0';
            full = full || v < room || (v == room && digit > (i32)(room * 10 - least));
            if (!full) v = v * 10 - digit;
            // A digit after the point, or a digit that does not fit.
            if (point && !full) exponent--;
            else if (full && !point) exponent++;
        } else if (c == '.' && !point) {
            point = true;
        } else if (!joins(s, i)) {
            break;
        }
    }
    if (!any) return false;
    if (i < s.n) {
        if ((s.p[i] | 0x20) != 'e') return false;
        i++;
        bool down = i < s.n && s.p[i] == '-';
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+')) i++;
        if (i == s.n) return false;
        i64 e = 0;
        for (; i < s.n; i++) {
            if (!is_digit(s.p[i])) return false;
            e = e * 10 + (s.p[i] - '0');
            if (e > 32767 + down) return false;
        }
        exponent += down ? -e : e;
    }
    i64 shift = exponent + scale;
    if (v != 0 && shift >= 0) {
        if (full || shift > MAX_DIGITS || mul_overflows(v, power10((i32)shift), v)) return false;
    } else if (v != 0) {
        v = shift < -MAX_DIGITS ? 0 : divide(v, power10((i32)-shift), HALF_AWAY);
    }
    if (negative) return true;
    v = (i128)-(u128)v;
    return v >= 0;
}

// read_digits reads up to `most` digits from the front of s. It returns the number of digits.
DEVICE i32 read_digits(Text& s, i32 most, i64& v) {
    i32 n = 0;
    for (v = 0; n < most && s.n > 0 && is_digit(s.p[0]); n++) {
        v = v * 10 + (s.p[0] - '0');
        s = from_byte(s, 1);
    }
    return n;
}

// equal_word reports whether s is a word, in any case.
DEVICE bool equal_word(Text s, const char* word) {
    i64 k = 0;
    while (s.n > 0 && word[k]) {
        Rune r = decode(s.p, s.n);
        // U+017F, the long s, is an s in a different case.
        u32 c = r.code == 0x17f ? 's' : r.code >= 'A' && r.code <= 'Z' ? r.code + 0x20 : r.code;
        if (c != (u32)word[k++]) return false;
        s = from_byte(s, r.size);
    }
    return s.n == 0 && !word[k];
}

// parse_date reads [-]Y…-M-D[ (BC)] from the front of s. Slashes, backslashes and spaces are separators too.
DEVICE bool parse_date(Text& s, i64& days) {
    i64 y, m, d;
    bool negative = begins(s, '-');
    if (negative) s = from_byte(s, 1);
    if (read_digits(s, 7, y) == 0 || !(begins(s, '-') || begins(s, '/') || begins(s, '\\') || begins(s, ' '))) return false;
    u8 separator = s.p[0];
    s = from_byte(s, 1);
    if (read_digits(s, 2, m) == 0 || !begins(s, separator) || m < 1 || m > 12) return false;
    s = from_byte(s, 1);
    bool any = read_digits(s, 2, d) > 0;
    if (s.n >= 5 && equal_word(Text{s.p, 5}, " (bc)")) {
        if (y == 0) return false; // the year before 1 is the year 1 (BC)
        y = 1 - y;
        s = from_byte(s, 5);
    }
    if (negative) y = -y;
    if (!any || d < 1 || d > days_in_month(y, m)) return false;
    days = days_of(y, m, d);
    return days == (i32)days;
}

// parse_clock reads H:M[:S[.fraction]] from the front of s. It cuts off digits beyond the unit.
DEVICE bool parse_clock(Text& s, i64 per, i64& v) {
    i64 h, m, seconds = 0, fraction = 0;
    if (read_digits(s, 2, h) == 0 || !begins(s, ':')) return false;
    s = from_byte(s, 1);
    if (read_digits(s, 2, m) == 0 || m > 59) return false;
    if (begins(s, ':')) {
        s = from_byte(s, 1);
        if (read_digits(s, 2, seconds) == 0 || seconds > 59) return false;
        if (begins(s, '.')) {
            s = from_byte(s, 1);
            for (i64 unit = per; s.n > 0 && is_digit(s.p[0]); s = from_byte(s, 1)) {
                unit /= 10;
                fraction += (s.p[0] - '0') * unit;
            }
        }
    }
    v = (h * 3600 + m * 60 + seconds) * per + fraction;
    return v <= 86400 * per;
}

DEVICE void skip_spaces(Text& s) {
    while (begins(s, ' ')) s = from_byte(s, 1);
}

// parse_zone reads nothing, Z, UTC, or ±HH[[:]MM[:SS]], after optional spaces. offset is in seconds east of UTC.
DEVICE bool parse_zone(Text s, i64& offset) {
    offset = 0;
    skip_spaces(s);
    if (s.n == 0 || (s.n == 1 && s.p[0] == 'Z') || equal_word(s, "utc")) return true;
    if (!begins(s, '-') && !begins(s, '+')) return false;
    bool west = begins(s, '-');
    s = from_byte(s, 1);
    i64 h, m = 0, seconds = 0;
    if (read_digits(s, 2, h) != 2 || h > 15) return false;
    if (s.n > 0) {
        if (begins(s, ':')) s = from_byte(s, 1);
        if (read_digits(s, 2, m) != 2 || m > 59) return false;
    }
    if (s.n > 0) {
        if (begins(s, ':')) s = from_byte(s, 1);
        if (read_digits(s, 2, seconds) != 2 || seconds > 59 || s.n > 0) return false;
    }
    offset = h * 3600 + m * 60 + seconds;
    if (west) offset = -offset;
    return true;
}

// after_date skips the separator between a date and a time.
DEVICE bool after_date(Text& s) {
    if (!begins(s, 'T') && !begins(s, ' ')) return false;
    if (begins(s, 'T')) s = from_byte(s, 1);
    skip_spaces(s);
    return true;
}

// parse_timestamp reads a date, and a time and a zone if they follow. The zone affects instants only.
DEVICE bool parse_timestamp(Text s, i64 per, bool instant, i128& v) {
    i64 days, clock, offset;
    if (!parse_date(s, days)) return false;
    v = (i128)days * (86400 * per);
    if (s.n == 0) return true;
    if (!after_date(s) || !parse_clock(s, per, clock) || !parse_zone(s, offset)) return false;
    v += instant ? clock - offset * per : clock;
    return true;
}

DEVICE bool parse_bool(Text s, bool& v) {
    v = equal_word(s, "true") || equal_word(s, "t") || equal_word(s, "yes") || equal_word(s, "y") || equal_word(s, "1");
    return v || equal_word(s, "false") || equal_word(s, "f") || equal_word(s, "no") || equal_word(s, "n") ||
           equal_word(s, "0");
}

// parse_infinity reads [-]inf[inity] as an infinite date or timestamp.
DEVICE bool parse_infinity(Text s, i64 infinity, i128& v) {
    if (!infinity || s.n == 0 || is_digit(s.p[s.n - 1])) return false;
    v = infinity;
    if (begins(s, '-')) {
        v = -v;
        s = from_byte(s, 1);
    }
    return equal_word(s, "infinity") || equal_word(s, "inf");
}

// parse_rows reads every row as a whole number with f and settles it.
template <class F>
DEVICE void parse_rows(const Args& a, F f) {
    i64 i = global_thread();
    i128 v = 0;
    bool ok = false, infinite = false;
    if (i < a.n) {
        Text s = trim_space(load_text(a.x, i));
        infinite = parse_infinity(s, a.infinity, v);
        ok = infinite || f(s, v);
    }
    settle_int(a, i, v, ok ? VALUE : FAILED, infinite);
}

// eval_parse_int reads integers, and decimals of scale q. With mode 1 it also reads integers in base 16 and 2, without
// anything around them.
KERNEL(eval_parse_int, Args) {
    parse_rows(a, [&](Text s, i128& v) {
        if (a.mode) {
            Text whole = load_text(a.x, global_thread());
            u8 base = whole.n > 2 && whole.p[0] == '0' ? whole.p[1] | 0x20 : 0;
            if (base == 'x' || base == 'b') return parse_base(from_byte(whole, 2), base == 'x' ? 16 : 2, v);
        }
        return parse_decimal(s, (i32)a.q, v);
    });
}

// eval_parse_date ignores a time of day that follows the date.
KERNEL(eval_parse_date, Args) {
    parse_rows(a, [&](Text s, i128& v) {
        v = 0;
        if (equal_word(s, "epoch")) return true;
        Text rest = s;
        i64 days = 0;
        i128 ignored;
        bool ok = parse_date(rest, days) && (rest.n == 0 || parse_timestamp(s, 1, false, ignored));
        v = days;
        return ok;
    });
}

// Times and timestamps have q units a second. A date may precede a time. A zone that follows a time is ignored. A date
// and 24:00 mean 0:00 of the next day.
KERNEL(eval_parse_time, Args) {
    parse_rows(a, [&](Text s, i128& v) {
        v = 0;
        if (equal_word(s, "epoch")) return true;
        Text rest = s;
        i64 days, offset, clock = 0, day = 86400 * a.q, limit = day + 1;
        if (parse_date(rest, days)) {
            limit = day;
            if (rest.n == 0) return true;
            if (!after_date(rest)) return false;
            s = rest;
        }
        bool ok = parse_clock(s, a.q, clock) && parse_zone(s, offset);
        v = clock % limit;
        return ok;
    });
}

// With mode 1 a timestamp is an instant. Timestamps in seconds and milliseconds are rounded from microseconds.
KERNEL(eval_parse_timestamp, Args) {
    parse_rows(a, [&](Text s, i128& v) {
        constexpr i64 MICROSECONDS = 1000000;
        v = 0;
        if (equal_word(s, "epoch")) return true;
        if (a.q >= MICROSECONDS) return parse_timestamp(s, a.q, a.mode, v);
        bool ok = parse_timestamp(s, MICROSECONDS, a.mode, v);
        v = divide(v, MICROSECONDS / a.q, HALF_AWAY);
        return ok;
    });
}

KERNEL(eval_parse_bool, Args) {
    i64 i = global_thread();
    bool v = false;
    bool ok = i < a.n && parse_bool(load_text(a.x, i), v);
    store_bits((u32*)a.out, a.n, i, v);
    settle(a, i, ok ? VALUE : FAILED);
}

// eval_parse_float reads the powers of ten in table. Mode 1 means single precision.
KERNEL(eval_parse_float, Args) {
    i64 i = global_thread();
    double v = 0;
    bool ok = i < a.n && parse_float((const u64*)a.table, load_text(a.x, i), a.mode, v);
    if (i < a.n) store_float(a, i, ok ? v : 0);
    settle(a, i, ok ? VALUE : FAILED);
}

// parse_blob reads a string with \xHH escapes.
DEVICE bool parse_blob(Text s, Writer& w) {
    for (i64 k = 0; k < s.n; k++) {
        u8 c = s.p[k];
        if (c >= 0x80) return false;
        if (c == '\\') {
            if (k + 3 >= s.n || s.p[k + 1] != 'x') return false;
            i32 high = hex_digit(s.p[k + 2]), low = hex_digit(s.p[k + 3]);
            if (high < 0 || low < 0) return false;
            c = (u8)(high << 4 | low);
            k += 3;
        }
        w.put(c);
    }
    return true;
}

// eval_parse_blob first counts, like the operations that make strings. It settles in the run that writes.
KERNEL(eval_parse_blob, Args) {
    i64 i = global_thread();
    bool ok = false;
    if (i < a.n) {
        Writer w{a.out ? a.bytes + a.at[i] : nullptr, 0};
        ok = parse_blob(load_text(a.x, i), w);
        if (a.out) ((Text*)a.out)[i] = Text{w.p, w.n};
        else a.at[i] = w.n;
    }
    if (a.out) settle(a, i, ok ? VALUE : FAILED);
}
