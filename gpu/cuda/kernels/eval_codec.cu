// Encodings of bytes and digits of integers.
#include "eval_text.cuh"

enum Encoding : i32 { RAW, HEX, FROM_HEX, BITS_OF, FROM_BITS, BASE64, FROM_BASE64, URL, FROM_URL };

DEVICE bool is_digit(u8 c) { return c >= '0' && c <= '9'; }
DEVICE bool is_letter(u8 c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }
DEVICE bool is_hex(u8 c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }
DEVICE u8 nibble(u8 c) { return is_digit(c) ? c - '0' : is_hex(c) ? (c | 32) - 'a' + 10 : 0; }
DEVICE u8 hex_digit(u32 v) { return (u8)(v < 10 ? '0' + v : 'A' + v - 10); }

DEVICE u8 base64_digit(u32 v) {
    if (v < 26) return (u8)('A' + v);
    if (v < 52) return (u8)('a' + v - 26);
    if (v < 62) return (u8)('0' + v - 52);
    return v == 62 ? '+' : '/';
}

DEVICE u32 base64_value(u8 c) {
    if (is_digit(c)) return c - '0' + 52;
    if (is_letter(c)) return c >= 'a' ? c - 'a' + 26 : c - 'A';
    return c == '+' ? 62 : c == '/' ? 63 : 0;
}

// is_base64 reports whether a string is in base64: groups of four digits, the last of which may end with one or two =.
DEVICE bool is_base64(Text s) {
    if (s.n % 4 != 0) return false;
    i64 n = s.n;
    for (i32 k = 0; k < 2 && n > 0 && s.p[n - 1] == '='; k++) n--;
    for (i64 k = 0; k < n; k++)
        if (!is_digit(s.p[k]) && !is_letter(s.p[k]) && s.p[k] != '+' && s.p[k] != '/') return false;
    return true;
}

DEVICE void encode(i32 encoding, Text s, Writer& w) {
    switch (encoding) {
    case HEX:
        for (i64 k = 0; k < s.n; k++) {
            w.put(hex_digit(s.p[k] >> 4));
            w.put(hex_digit(s.p[k] & 15));
        }
        return;
    case FROM_HEX: {
        i64 k = s.n % 2;
        if (k) w.put(nibble(s.p[0]));
        for (; k < s.n; k += 2) w.put((u8)(nibble(s.p[k]) << 4 | nibble(s.p[k + 1])));
        return;
    }
    case BITS_OF:
        for (i64 k = 0; k < s.n; k++)
            for (i32 b = 7; b >= 0; b--) w.put((u8)('0' + (s.p[k] >> b & 1)));
        return;
    case FROM_BITS:
        for (i64 k = 0; k < s.n;) {
            i64 end = k + (s.n - k - 1) % 8 + 1;
            u32 c = 0;
            for (; k < end; k++) c = c << 1 | (s.p[k] & 1);
            w.put((u8)c);
        }
        return;
    case BASE64:
        for (i64 k = 0; k < s.n; k += 3) {
            i64 left = s.n - k;
            u32 v = (u32)s.p[k] << 16 | (left > 1 ? (u32)s.p[k + 1] << 8 : 0) | (left > 2 ? s.p[k + 2] : 0);
            w.put(base64_digit(v >> 18));
            w.put(base64_digit(v >> 12 & 63));
            w.put(left > 1 ? base64_digit(v >> 6 & 63) : '=');
            w.put(left > 2 ? base64_digit(v & 63) : '=');
        }
        return;
    case FROM_BASE64:
        if (!is_base64(s)) return;
        for (i64 k = 0; k < s.n; k += 4) {
            u32 v = base64_value(s.p[k]) << 18 | base64_value(s.p[k + 1]) << 12 | base64_value(s.p[k + 2]) << 6 | base64_value(s.p[k + 3]);
            w.put((u8)(v >> 16));
            if (s.p[k + 2] != '=') w.put((u8)(v >> 8));
            if (s.p[k + 3] != '=') w.put((u8)v);
        }
        return;
    case URL:
        for (i64 k = 0; k < s.n; k++) {
            u8 c = s.p[k];
            if (is_digit(c) || is_letter(c) || c == '-' || c == '.' || c == '_' || c == '~') {
                w.put(c);
            } else {
                w.put('%');
                w.put(hex_digit(c >> 4));
                w.put(hex_digit(c & 15));
            }
        }
        return;
    case FROM_URL:
        for (i64 k = 0; k < s.n;) {
            if (s.p[k] == '%' && k + 2 < s.n && is_hex(s.p[k + 1]) && is_hex(s.p[k + 2])) {
                w.put((u8)(nibble(s.p[k + 1]) << 4 | nibble(s.p[k + 2])));
                k += 3;
            } else {
                w.put(s.p[k++]);
            }
        }
        return;
    }
    w.put(s);
}

// eval_encode writes x in the encoding that mode selects.
KERNEL(eval_encode, Args) {
    make_text(a, [&](i64 i, Writer& w) { encode(a.mode, load_text(a.x, i), w); });
}

// eval_digits writes the low q bits of x in base p.
KERNEL(eval_digits, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        u128 v = (u128)load_int(a.x, i);
        if (a.q < 128) v = (u64)v;
        u8 digits[128];
        i32 count = 0;
        if (v >> 64 == 0) { // divisions of 64 bits are much faster
            u64 low = (u64)v;
            do {
                digits[count++] = hex_digit((u32)(low % a.p));
                low /= (u64)a.p;
            } while (low);
        } else {
            do {
                digits[count++] = hex_digit((u32)(v % (u128)a.p));
                v /= (u128)a.p;
            } while (v);
        }
        while (count > 0) w.put(digits[--count]);
    });
}
