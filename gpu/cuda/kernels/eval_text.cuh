// UTF-8 text as Go reads it: a byte that is not part of a valid code point counts as one code point, U+FFFD, and is
// kept unchanged.
#pragma once

#include "eval.cuh"

constexpr u32 REPLACEMENT = 0xfffd;

// Rune is a code point and its length in bytes.
struct Rune {
    u32 code;
    i32 size;
};

DEVICE bool continues(u8 c) { return (c & 0xc0) == 0x80; }

// decode reads the first code point of n > 0 bytes.
DEVICE Rune decode(const u8* p, i64 n) {
    u8 c = p[0];
    if (c < 0x80) return Rune{c, 1};
    Rune bad{REPLACEMENT, 1};
    if (c < 0xc2 || c > 0xf4 || n < 2 || !continues(p[1])) return bad;
    if (c < 0xe0) return Rune{(u32)(c & 0x1f) << 6 | (p[1] & 0x3f), 2};
    if (n < 3 || !continues(p[2])) return bad;
    if (c < 0xf0) {
        u32 r = (u32)(c & 0xf) << 12 | (u32)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
        return r < 0x800 || (r >= 0xd800 && r <= 0xdfff) ? bad : Rune{r, 3};
    }
    if (n < 4 || !continues(p[3])) return bad;
    u32 r = (u32)(c & 7) << 18 | (u32)(p[1] & 0x3f) << 12 | (u32)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
    return r < 0x10000 || r > 0x10ffff ? bad : Rune{r, 4};
}

// decode_last reads the last code point of n > 0 bytes.
DEVICE Rune decode_last(const u8* p, i64 n) {
    if (p[n - 1] < 0x80) return Rune{p[n - 1], 1};
    for (i64 from = n - 2; from >= 0 && from >= n - 4; from--) {
        if (continues(p[from])) continue;
        Rune r = decode(p + from, n - from);
        if (from + r.size == n) return r;
        break;
    }
    return Rune{REPLACEMENT, 1};
}

// runes counts code points.
DEVICE i64 runes(Text s) {
    i64 count = 0;
    for (i64 i = 0; i < s.n; count++) i += s.p[i] < 0x80 ? 1 : decode(s.p + i, s.n - i).size;
    return count;
}

DEVICE bool equal_bytes(const u8* x, const u8* y, i64 n) {
    for (i64 i = 0; i < n; i++)
        if (x[i] != y[i]) return false;
    return true;
}

DEVICE i32 compare_text(Text x, Text y) {
    i64 n = x.n < y.n ? x.n : y.n;
    for (i64 i = 0; i < n; i++)
        if (x.p[i] != y.p[i]) return x.p[i] < y.p[i] ? -1 : 1;
    return (x.n > y.n) - (x.n < y.n);
}

// find_text returns the byte where part first occurs in s, or -1.
DEVICE i64 find_text(Text s, Text part) {
    if (part.n == 0) return 0;
    for (i64 i = 0; i + part.n <= s.n; i++)
        if (s.p[i] == part.p[0] && equal_bytes(s.p + i, part.p, part.n)) return i;
    return -1;
}

DEVICE bool ends_with(Text s, Text part) {
    return part.n <= s.n && equal_bytes(s.p + s.n - part.n, part.p, part.n);
}

DEVICE bool starts_with(Text s, Text part) { return part.n <= s.n && equal_bytes(s.p, part.p, part.n); }

DEVICE bool is_space(u8 c) { return (c >= 9 && c <= 13) || c == ' '; }

// trim_space removes what DuckDB treats as white space around a number.
DEVICE Text trim_space(Text s) {
    while (s.n > 0 && is_space(s.p[0])) s = Text{s.p + 1, s.n - 1};
    while (s.n > 0 && is_space(s.p[s.n - 1])) s.n--;
    return s;
}

// CaseTable maps code points to lower or upper case. Code points beyond the table map to themselves.
struct CaseTable {
    const u32* map;
    i64 size;
};

DEVICE u32 map_case(CaseTable t, u32 r) { return r < t.size ? t.map[r] : r; }

// Writer counts bytes. It also writes them if it has memory for them.
struct Writer {
    u8* p;
    i64 n;

    __device__ void put(u8 c) {
        if (p) p[n] = c;
        n++;
    }
    __device__ void put(const u8* s, i64 count) {
        if (p)
            for (i64 i = 0; i < count; i++) p[n + i] = s[i];
        n += count;
    }
    __device__ void put(Text s) { put(s.p, s.n); }
    template <int N>
    __device__ void literal(const char (&s)[N]) {
        put((const u8*)s, N - 1);
    }
    __device__ void rune(u32 r) {
        if (r < 0x80) return put((u8)r);
        if (r < 0x800) {
            put((u8)(0xc0 | r >> 6));
        } else {
            if (r < 0x10000) {
                put((u8)(0xe0 | r >> 12));
            } else {
                put((u8)(0xf0 | r >> 18));
                put((u8)(0x80 | (r >> 12 & 0x3f)));
            }
            put((u8)(0x80 | (r >> 6 & 0x3f)));
        }
        put((u8)(0x80 | (r & 0x3f)));
    }
};

// make_text runs f, which writes the string of a row. If a.out is null, it only counts: a.at[i] receives the size.
// Otherwise a.at[i] is an offset, and the string is written there. A null row has an empty string.
template <class F>
DEVICE void make_text(const Args& a, F f) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Writer w{a.out ? a.bytes + a.at[i] : nullptr, 0};
    if (bit(a.valid, i)) f(i, w);
    if (a.out) ((Text*)a.out)[i] = Text{w.p, w.n};
    else a.at[i] = w.n;
}
