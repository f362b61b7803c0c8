// Arithmetic in 128 bits that reports overflows.
#pragma once

#include "common.cuh"

DEVICE bool fits64(i128 v) { return v == (i128)(i64)v; }

DEVICE u128 magnitude(i128 v) { return v < 0 ? -(u128)v : (u128)v; }

DEVICE bool add_overflows(i128 x, i128 y, i128& r) {
    r = (i128)((u128)x + (u128)y);
    return ((x ^ r) & (y ^ r)) < 0;
}

DEVICE bool sub_overflows(i128 x, i128 y, i128& r) {
    r = (i128)((u128)x - (u128)y);
    return ((x ^ y) & (x ^ r)) < 0;
}

DEVICE bool mul_overflows(i128 x, i128 y, i128& r) {
    if (fits64(x) && fits64(y)) {
        r = (i128)(i64)x * (i64)y;
        return false;
    }
    u128 a = magnitude(x), b = magnitude(y);
    u64 ah = (u64)(a >> 64), bh = (u64)(b >> 64), al = (u64)a, bl = (u64)b;
    r = (i128)(a * b);
    bool negative = (x < 0) != (y < 0);
    if (negative) r = (i128)-(u128)r;
    if (ah && bh) return true;
    u128 middle = (u128)ah * bl + (u128)al * bh; // one of the two is zero
    u128 high = middle + (((u128)al * bl) >> 64);
    if (high >> 64) return true;
    return high >> 63 && !(negative && (u64)high == 1ull << 63 && (u64)((u128)al * bl) == 0);
}

// quo_rem divides, truncating toward zero. y is not zero.
DEVICE void quo_rem(i128 x, i128 y, i128& q, i128& r) {
    if (fits64(x) && fits64(y) && y != -1) {
        q = (i64)x / (i64)y;
        r = (i64)x % (i64)y;
        return;
    }
    u128 a = magnitude(x), b = magnitude(y), quotient = a / b, rest = a - quotient * b;
    q = (x < 0) != (y < 0) ? -(i128)quotient : (i128)quotient;
    r = x < 0 ? -(i128)rest : (i128)rest;
}

// Rounding of a division by a power of ten.
enum Rounding : i32 { TO_ZERO, HALF_AWAY, DOWN, UP };

DEVICE i128 divide(i128 x, i128 by, i32 rounding) {
    i128 q, r;
    quo_rem(x, by, q, r);
    switch (rounding) {
    case DOWN: return q - (r < 0);
    case UP: return q + (r > 0);
    case HALF_AWAY:
        if (r != 0 && magnitude(r) >= (u128)by - magnitude(r)) return q + (x < 0 ? -1 : 1);
    }
    return q;
}

// wrap_day reduces units since midnight to one day.
DEVICE i128 wrap_day(i128 v, i64 day) {
    i128 q, r;
    quo_rem(v, day, q, r);
    return r < 0 ? r + day : r;
}

// power10 returns 10^n, 0 ≤ n ≤ 38.
DEVICE i128 power10(i32 n) {
    i128 p = 1, base = 10;
    for (; n; n >>= 1, base *= base)
        if (n & 1) p *= base;
    return p;
}

// to_double rounds to the nearest double, ties to even.
DEVICE double to_double(i128 v) {
    if (fits64(v)) return (double)(i64)v;
    u128 m = magnitude(v);
    i32 shift = 64 - __clzll((i64)(u64)(m >> 64)); // bits above the low 64 bits
    u64 top = (u64)(m >> shift);
    if ((m & (((u128)1 << shift) - 1)) != 0) top |= 1; // below half of the last bit kept
    double d = ldexp((double)top, shift);
    return v < 0 ? -d : d;
}

// bits_of returns the number of bits of v > 0.
DEVICE i32 bits_of(u128 v) {
    u64 high = (u64)(v >> 64);
    return high ? 128 - __clzll((i64)high) : 64 - __clzll((i64)(u64)v);
}

// decimal_to_double returns the double nearest to v / 10^scale, ties to even; 0 ≤ scale ≤ 38.
DEVICE double decimal_to_double(i128 v, i32 scale) {
    constexpr i64 EXACT = 1ll << 53; // whole numbers up to here, and 10^22, are doubles
    if (scale == 0) return to_double(v);
    if (scale <= 22 && v >= -EXACT && v <= EXACT) return (double)(i64)v / (double)power10(scale);
    // The quotient by 5^scale, of at least 64 bits. Its last bit is set if bits after it are lost.
    u128 by = 1, base = 5;
    for (i32 n = scale; n; n >>= 1, base *= base)
        if (n & 1) by *= base;
    u128 m = magnitude(v);
    i32 up = 127 - bits_of(m);
    m = up < 0 ? m >> 1 : m << up; // -2^127 is even
    u128 q = m / by, r = m - q * by;
    if (!(q >> 64)) {
        constexpr i32 MORE = 32;
        r <<= MORE;
        u128 low = r / by;
        r -= low * by;
        q = q << MORE | low;
        up += MORE;
    }
    if (r) q |= 1;
    double d = ldexp(to_double((i128)q), -up - scale);
    return v < 0 ? -d : d;
}

// from_double converts a whole number. It returns false if x is not a whole number or exceeds 128 bits.
DEVICE bool from_double(double x, i128& r) {
    constexpr double LIMIT = 170141183460469231731687303715884105728.0; // 2^127
    r = (i128)((u128)1 << 127);
    if (x == -LIMIT) return true;
    r = 0;
    if (!(fabs(x) < LIMIT)) return false;
    if (fabs(x) < 9223372036854775808.0) {
        r = (i64)x;
        return true;
    }
    u64 bits = (u64)__double_as_longlong(x);
    i128 m = (i128)((bits & ((1ull << 52) - 1)) | 1ull << 52);
    m <<= (i32)(bits >> 52 & 0x7ff) - 1075;
    r = x < 0 ? -m : m;
    return true;
}
