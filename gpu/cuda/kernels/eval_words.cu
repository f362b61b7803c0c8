// Operations on the parts of strings in expression programs. eval_strings.cu has the other string operations.
#include "eval_text.cuh"

KERNEL(eval_repeat, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i);
        i64 times = (i64)load_int(a.y, i);
        if (times <= 0 || s.n == 0) return;
        constexpr i64 MOST = 1ll << 31; // bytes; longer results fail
        if (!w.p) {
            w.n = times > MOST || s.n * times > MOST ? MOST : s.n * times;
            return;
        }
        for (i64 k = 0; k < times && w.n < MOST; k++) w.put(s);
    });
}

KERNEL(eval_translate, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i);
        while (s.n > 0) {
            i32 size = decode(s.p, s.n).size;
            Text put{s.p, size}, from = load_text(a.y, i), to = load_text(a.z, i);
            while (from.n > 0) {
                i32 m = decode(from.p, from.n).size, k = to.n > 0 ? decode(to.p, to.n).size : 0;
                if (m == size && equal_bytes(from.p, s.p, m)) {
                    put = Text{to.p, k};
                    break;
                }
                from = Text{from.p + m, from.n - m};
                to = Text{to.p + k, to.n - k};
            }
            w.put(put);
            s = Text{s.p + size, s.n - size};
        }
    });
}

KERNEL(eval_chr, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        i128 r = load_int(a.x, i);
        if (r >= 0 && r <= 0x10ffff) w.rune(r >= 0xd800 && r <= 0xdfff ? REPLACEMENT : (u32)r);
    });
}

// eval_code_point returns the first code point, or p for an empty string.
KERNEL(eval_code_point, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text s = load_text(a.x, i);
    store_int(a, i, s.n > 0 ? (i64)decode(s.p, s.n).code : a.p);
}

DEVICE i64 count_text(Text s, Text part) {
    i64 count = 0;
    for (i64 k; (k = find_text(s, part)) >= 0; count++) s = Text{s.p + k + part.n, s.n - k - part.n};
    return count;
}

// eval_split_part returns part z of x between the separators y. A negative z counts from the end.
KERNEL(eval_split_part, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text s = load_text(a.x, i), separator = load_text(a.y, i), part{s.p, 0};
    i64 n = (i64)load_int(a.z, i);
    if (n < 0) n += separator.n == 0 ? runes(s) + 1 : count_text(s, separator) + 2;
    for (; n > 0; n--) {
        i64 end, next;
        if (separator.n == 0) {
            if (s.n == 0) break;
            end = next = decode(s.p, s.n).size;
        } else {
            end = find_text(s, separator);
            if (end < 0) {
                if (n == 1) part = s;
                break;
            }
            next = end + separator.n;
        }
        if (n == 1) part = Text{s.p, end};
        s = Text{s.p + next, s.n - next};
    }
    ((Text*)a.out)[i] = part;
}

// eval_like_column matches x with the pattern y, without escapes. table is the lower-case table with q entries, or
// null. After a mismatch, the part that the last % matches grows by one code point.
KERNEL(eval_like_column, Args) {
    i64 i = global_thread();
    bool holds = false;
    if (i < a.n) {
        Text s = load_text(a.x, i), p = load_text(a.y, i);
        CaseTable lower{(const u32*)a.table, a.q};
        auto same = [&](i64 at, i64 k) {
            Rune x = decode(s.p + at, s.n - at), y = decode(p.p + k, p.n - k);
            if (lower.map) return map_case(lower, x.code) == map_case(lower, y.code);
            return x.size == y.size && equal_bytes(s.p + at, p.p + k, x.size);
        };
        i64 at = 0, k = 0, star = -1, mark = 0;
        holds = true;
        while (at < s.n) {
            if (k < p.n && p.p[k] == '%') {
                star = ++k;
                mark = at;
                continue;
            }
            if (k < p.n && (p.p[k] == '_' || same(at, k))) {
                at += decode(s.p + at, s.n - at).size;
                k += decode(p.p + k, p.n - k).size;
                continue;
            }
            if (star < 0) {
                holds = false;
                break;
            }
            mark += decode(s.p + mark, s.n - mark).size;
            at = mark;
            k = star;
        }
        for (; k < p.n && p.p[k] == '%'; k++) {}
        holds = holds && k == p.n;
    }
    store_bits((u32*)a.out, a.n, i, holds);
}
