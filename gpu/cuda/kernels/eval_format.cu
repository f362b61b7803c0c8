// Casts of numbers, dates and times to strings. Every row has a slot of p bytes, the most that its type takes, so no
// sizes have to be known in advance.
#include "eval_calendar.cuh"
#include "eval_float.cuh"
#include "eval_int128.cuh"

template <class F>
DEVICE void format_rows(const Args& a, F f) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Writer w{a.bytes + i * a.p, 0};
    f(i, w);
    ((Text*)a.out)[i] = Text{w.p, w.n};
}

DEVICE i32 digits_of(u64 v) {
    i32 n = 1;
    for (; v >= 10; v /= 10) n++;
    return n;
}

// put_padded writes v with leading zeros up to a width.
DEVICE void put_padded(Writer& w, u64 v, i32 width) {
    i32 n = digits_of(v);
    if (n < width) n = width;
    for (i32 k = n; k-- > 0; v /= 10) w.p[w.n + k] = (u8)('0' + v % 10);
    w.n += n;
}

// put_signed is put_padded for clocks, which may be negative in files.
DEVICE void put_signed(Writer& w, i64 v, i32 width) {
    if (v >= 0) return put_padded(w, (u64)v, width);
    for (; width > 1; width--) w.put('0');
    w.put('-');
    put_padded(w, -(u64)v, 1);
}

// put_decimal writes an integer with scale digits after the point. If bare, it writes no zero before the point.
DEVICE void put_decimal(Writer& w, i128 v, i32 scale, bool bare) {
    if (v < 0) w.put('-');
    // 38 digits as two numbers of 19.
    const u64 half = 10000000000000000000ull;
    u128 m = magnitude(v);
    u64 high = m >> 64 ? (u64)(m / half) : (u64)m / half, low = (u64)(m - (u128)high * half);
    u8 digits[39];
    Writer d{digits, 0};
    if (high) {
        put_padded(d, high, 1);
        put_padded(d, low, 19);
    } else {
        put_padded(d, low, 1);
    }
    i32 n = (i32)d.n;
    if (n <= scale) {
        if (!bare) w.put('0');
        w.put('.');
        for (i32 k = n; k < scale; k++) w.put('0');
        w.put(digits, n);
        return;
    }
    w.put(digits, n - scale);
    if (scale > 0) {
        w.put('.');
        w.put(digits + n - scale, scale);
    }
}

DEVICE void put_date(Writer& w, i64 days) {
    Civil c = civil(days);
    put_padded(w, (u64)(c.year > 0 ? c.year : 1 - c.year), 4);
    w.put('-');
    put_padded(w, (u64)c.month, 2);
    w.put('-');
    put_padded(w, (u64)c.day, 2);
    if (c.year <= 0) w.literal(" (BC)");
}

// put_clock writes a time of day with per units a second. It omits zeros at the end of the fraction.
DEVICE void put_clock(Writer& w, i64 v, i64 per) {
    i64 seconds = v / per, fraction = v % per;
    put_signed(w, seconds / 3600, 2);
    w.put(':');
    put_signed(w, seconds / 60 % 60, 2);
    w.put(':');
    put_signed(w, seconds % 60, 2);
    if (fraction == 0) return;
    w.put('.');
    put_signed(w, fraction, digits_of((u64)per) - 1);
    while (w.p[w.n - 1] == '0') w.n--;
}

// eval_format_int writes whole numbers with q digits after the point. With mode 1 it writes no zero before the point.
KERNEL(eval_format_int, Args) {
    format_rows(a, [&](i64 i, Writer& w) { put_decimal(w, load_int(a.x, i), (i32)a.q, a.mode); });
}

KERNEL(eval_format_bool, Args) {
    format_rows(a, [&](i64 i, Writer& w) {
        if (load_int(a.x, i) != 0) w.literal("true");
        else w.literal("false");
    });
}

// eval_format_float reads the powers of ten in table. Mode 1 means single precision.
KERNEL(eval_format_float, Args) {
    format_rows(a, [&](i64 i, Writer& w) { format_float(w, (const u64*)a.table, load_float(a.x, i), a.mode); });
}

// put_infinity writes infinite dates and timestamps. It returns false for others.
DEVICE bool put_infinity(const Args& a, i64 v, Writer& w) {
    if (!is_infinite(a.infinity_x, v)) return false;
    if (v < 0) w.put('-');
    w.literal("infinity");
    return true;
}

KERNEL(eval_format_date, Args) {
    format_rows(a, [&](i64 i, Writer& w) {
        i64 v = (i64)load_int(a.x, i);
        if (!put_infinity(a, v, w)) put_date(w, v);
    });
}

// eval_format_time and eval_format_timestamp have q units a second.
KERNEL(eval_format_time, Args) {
    format_rows(a, [&](i64 i, Writer& w) { put_clock(w, (i64)load_int(a.x, i), a.q); });
}

// With mode 1 a timestamp is an instant, and ends with its time zone.
KERNEL(eval_format_timestamp, Args) {
    format_rows(a, [&](i64 i, Writer& w) {
        i64 v = (i64)load_int(a.x, i), day = floor_div(v, 86400 * a.q);
        if (put_infinity(a, v, w)) return;
        put_date(w, day);
        w.put(' ');
        put_clock(w, v - day * 86400 * a.q, a.q);
        if (a.mode) w.literal("+00");
    });
}
