// Exact conversions of floats to decimal strings and back: the shortest digits that read back as the same float, and
// the float nearest to any number of digits.
#pragma once

#include "eval_text.cuh"

// The table of powers of ten contains 10^k for k in [POWER_MIN, POWER_MAX]: the leading 128 bits m as two words, the
// upper word first. 10^k is in [m, m+1) · 2^power_exponent(k). It is exactly m · 2^power_exponent(k) for k in [0,
// POWER_EXACT].
constexpr i32 POWER_MIN = -342, POWER_MAX = 324, POWER_EXACT = 55;

DEVICE i32 floor_log2_power10(i32 k) { return (k * 217706) >> 16; }

// Format describes single or double precision.
struct Format {
    i32 digits;   // bits of the significand, including the implicit one
    i32 smallest; // exponent of the smallest normal number
};

DEVICE Format float_format(bool single) { return single ? Format{24, -126} : Format{53, -1022}; }

// Wide is a number of 192 bits, the most significant word first.
struct Wide {
    u64 w[3];
};

// times multiplies a 64-bit by a 128-bit number.
DEVICE Wide times(u64 x, u64 hi, u64 lo) {
    u128 low = (u128)x * lo, high = (u128)x * hi + (u64)(low >> 64);
    return Wide{{(u64)(high >> 64), (u64)high, (u64)low}};
}

// add_wide adds 128 bits, shifted left by at most 64. It reports whether the sum overflows.
DEVICE bool add_wide(Wide& x, u64 hi, u64 lo, i32 shift) {
    u128 low = (u128)lo << shift, high = ((u128)hi << shift) + (u64)(low >> 64);
    u128 sum = (u128)x.w[2] + (u64)low;
    x.w[2] = (u64)sum;
    sum = (u128)x.w[1] + (u64)high + (u64)(sum >> 64);
    x.w[1] = (u64)sum;
    sum = (u128)x.w[0] + (u64)(high >> 64) + (u64)(sum >> 64);
    x.w[0] = (u64)sum;
    return sum >> 64;
}

// round_wide returns the bits of the positive float nearest to x · 2^exponent, ties to even.
DEVICE u64 round_wide(Wide x, i32 exponent, Format f) {
    if (!(x.w[0] >> 63)) {
        x.w[0] = x.w[0] << 1 | x.w[1] >> 63;
        x.w[1] = x.w[1] << 1 | x.w[2] >> 63;
        x.w[2] <<= 1;
        exponent--;
    }
    i32 top = exponent + 191, digits = f.digits; // the value is in [2^top, 2^(top+1))
    if (top < f.smallest) digits -= f.smallest - top;
    if (digits < 0) return 0;
    u64 m = digits ? x.w[0] >> (64 - digits) : 0, rest = x.w[0] << digits;
    bool half = rest >> 63, more = rest << 1 || x.w[1] || x.w[2];
    if (half && (more || (m & 1))) m++;
    if (top >= f.smallest) m += (u64)(top - f.smallest) << (f.digits - 1);
    u64 infinity = (u64)(3 - 2 * f.smallest) << (f.digits - 1);
    return m < infinity ? m : infinity;
}

// Decimal contains the digits of a number as characters. They begin at p with a digit that is not zero. They end before
// the first character that is neither a digit, the point nor an underscore between digits. The value is 0.ddd… ·
// 10^point.
struct Decimal {
    const u8* p;
    i64 n;
    i64 point;

    // next returns the next digit, or -1 after the last.
    __device__ i32 next() {
        if (n > 0 && (*p == '.' || *p == '_')) p++, n--;
        if (n <= 0 || *p < '0' || *p > '9') return -1;
        n--;
        return *p++ - '0';
    }

    // rest reports whether a digit that is not zero remains.
    __device__ bool rest() {
        for (i32 d; (d = next()) >= 0;)
            if (d) return true;
        return false;
    }
};

// compare_halfway compares a decimal number with h · 2^e and returns -1, 0 or 1. It is exact and slow, because it
// computes in integers of about 1100 bits. h is less than 2^54.
static __device__ __noinline__ i32 compare_halfway(Decimal d, u64 h, i32 e) {
    constexpr i32 WORDS = 36;
    u32 big[WORDS];
    for (i32 k = 0; k < WORDS; k++) big[k] = 0;
    auto multiply10 = [&](u32 carry) {
        for (i32 k = 0; k < WORDS; k++) {
            u64 v = (u64)big[k] * 10 + carry;
            big[k] = (u32)v;
            carry = (u32)(v >> 32);
        }
    };
    if (e >= 0) {
        // Compare two whole numbers. A fraction after the decimal one decides a tie.
        for (i64 k = 0; k < d.point; k++) {
            i32 digit = d.next();
            multiply10(digit < 0 ? 0 : digit);
        }
        for (i32 k = WORDS - 1; k >= 0; k--) {
            i32 at = k * 32 - e; // the bit of h that is the lowest of word k
            u32 word = at >= 64 || at <= -32 ? 0 : (u32)(at >= 0 ? h >> at : h << -at);
            if (big[k] != word) return big[k] < word ? -1 : 1;
        }
        return d.rest() ? 1 : 0;
    }
    // Compare the whole parts, then the fractions digit by digit.
    i32 q = -e;
    u64 whole = q < 64 ? h >> q : 0, value = 0;
    if (d.point > 18) return 1;
    for (i64 k = 0; k < d.point; k++) {
        i32 digit = d.next();
        value = value * 10 + (digit < 0 ? 0 : digit);
    }
    if (value != whole) return value < whole ? -1 : 1;
    u64 fraction = q < 64 ? h & ((1ull << q) - 1) : h;
    big[0] = (u32)fraction;
    big[1] = (u32)(fraction >> 32);
    for (i64 k = d.point; ; k++) {
        i32 digit = k < 0 ? 0 : d.next();
        if (digit < 0) {
            for (i32 w = 0; w < WORDS; w++)
                if (big[w]) return -1;
            return 0;
        }
        multiply10(0);
        i32 word = q / 32, shift = q % 32;
        u64 pair = (u64)big[word + 1] << 32 | big[word];
        i32 want = (i32)(pair >> shift);
        if (digit != want) return digit < want ? -1 : 1;
        pair &= (1ull << shift) - 1;
        big[word] = (u32)pair;
        big[word + 1] = (u32)(pair >> 32);
    }
}

// decimal_to_float returns the bits of the float nearest to w · 10^k. w contains the first 19 digits of d. more means
// that digits that are not zero follow.
DEVICE u64 decimal_to_float(const u64* powers, Decimal d, u64 w, i64 k, bool more, Format f) {
    if (w == 0 || k < POWER_MIN) return 0;
    u64 infinity = (u64)(3 - 2 * f.smallest) << (f.digits - 1);
    if (k > 308) return infinity;
    const u64* power = powers + 2 * (k - POWER_MIN);
    i32 shift = __clzll((i64)w);
    i32 exponent = floor_log2_power10((i32)k) - 127 - shift;
    // The value is at least low and less than high. Both almost always round to the same float.
    Wide low = times(w << shift, power[0], power[1]), high = low;
    bool over = false;
    if (k < 0 || k > POWER_EXACT) over = add_wide(high, 0, w << shift, 0);
    if (more) over |= add_wide(high, power[0], power[1], shift) | add_wide(high, 0, 1ull << shift, 0);
    u64 bits = round_wide(low, exponent, f);
    if (!over && round_wide(high, exponent, f) == bits) return bits;
    while (bits < infinity) {
        u64 m = bits & ((1ull << (f.digits - 1)) - 1);
        i32 e = (i32)(bits >> (f.digits - 1));
        if (e) m |= 1ull << (f.digits - 1);
        else e = 1;
        i32 c = compare_halfway(d, 2 * m + 1, e - 1 + f.smallest - f.digits + 1 - 1);
        if (c < 0 || (c == 0 && !(m & 1))) break;
        bits++;
    }
    return bits;
}

DEVICE bool matches_word(Text s, const char* word, i64 n) {
    if (s.n != n) return false;
    for (i64 i = 0; i < n; i++)
        if ((s.p[i] | 0x20) != word[i]) return false;
    return true;
}

// joins reports whether character i of s is an underscore between digits.
DEVICE bool joins(Text s, i64 i) {
    return s.p[i] == '_' && i > 0 && i + 1 < s.n && s.p[i - 1] >= '0' && s.p[i - 1] <= '9' && s.p[i + 1] >= '0' &&
           s.p[i + 1] <= '9';
}

// parse_float reads a float of double or single precision. A number that is too large becomes infinite.
DEVICE bool parse_float(const u64* powers, Text s, bool single, double& out) {
    s = trim_space(s);
    Format f = float_format(single);
    bool negative = s.n > 0 && s.p[0] == '-';
    Text t = s;
    if (s.n > 0 && (s.p[0] == '-' || s.p[0] == '+')) t = Text{s.p + 1, s.n - 1};
    if (matches_word(t, "inf", 3) || matches_word(t, "infinity", 8)) {
        out = __longlong_as_double(0x7ffll << 52);
        if (negative) out = -out;
        return true;
    }
    if (matches_word(t, "nan", 3)) {
        out = __longlong_as_double(0x7ff8ll << 48);
        return true;
    }
    Decimal d{nullptr, 0, 0};
    u64 w = 0;
    i64 kept = 0, digits = 0, before = 0, zeros = 0, i = 0; // zeros: after the point, before the first digit
    bool point = false, any = false, more = false;
    for (; i < t.n; i++) {
        u8 c = t.p[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (joins(t, i)) continue;
        if (c < '0' || c > '9') break;
        any = true;
        if (c == '0' && digits == 0) {
            zeros += point;
            continue;
        }
        if (digits == 0) d = Decimal{t.p + i, t.n - i, 0};
        digits++;
        before += !point;
        if (kept < 19) {
            w = w * 10 + (c - '0');
            kept++;
        } else {
            more |= c != '0';
        }
    }
    if (!any) return false;
    i64 exponent = 0;
    if (i < t.n) {
        if ((t.p[i] | 0x20) != 'e') return false;
        i++;
        bool down = i < t.n && t.p[i] == '-';
        if (i < t.n && (t.p[i] == '-' || t.p[i] == '+')) i++;
        if (i == t.n) return false;
        for (; i < t.n; i++) {
            if (joins(t, i)) continue;
            if (t.p[i] < '0' || t.p[i] > '9') return false;
            if (exponent < 10000) exponent = exponent * 10 + (t.p[i] - '0');
        }
        if (down) exponent = -exponent;
    }
    d.point = before - zeros + exponent;
    u64 bits = decimal_to_float(powers, d, w, d.point - kept, more, f);
    out = single ? (double)__int_as_float((i32)bits) : __longlong_as_double((i64)bits);
    if (negative) out = -out;
    return true;
}

// Shortest is the number m · 10^k.
struct Shortest {
    u64 m;
    i32 k;
};

// odd_product returns x · g >> 128, with the lowest bit set if bits were lost. (Raffaello Giulietti, The Schubfach way
// to render doubles, §9.10: rop.)
DEVICE u64 odd_product(u64 x, u64 g_high, u64 g_low) {
    Wide p = times(x, g_high, g_low);
    return p.w[0] | (p.w[1] > 1);
}

// shortest finds the decimal number with the fewest digits that reads back as c · 2^q, and among these the nearest.
// closer means that the next lower float is only half as far away as the next higher float. (Giulietti, §8 and §9.)
DEVICE Shortest shortest(const u64* powers, u64 c, i32 q, bool closer, bool single) {
    // 10^k ≤ the width of the interval that rounds to the float < 10^(k+1).
    i32 k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    const u64* power = powers + 2 * (-k - POWER_MIN);
    u64 high = power[0], low = power[1];
    if (-k < 0 || -k > POWER_EXACT) high += ++low == 0;
    i32 h = q + floor_log2_power10(-k) + 1;
    u64 left = odd_product((4 * c - 2 + closer) << h, high, low);
    u64 value = odd_product(4 * c << h, high, low);
    u64 right = odd_product((4 * c + 2) << h, high, low);
    left += c & 1, right -= c & 1; // the ends read back only as an even significand
    u64 s = value / 4, tens = s / 10;
    bool below = left <= 40 * tens, above = 40 * tens + 40 <= right;
    if (s >= 10 && below != above) return Shortest{tens + above, k + 1};
    below = left <= 4 * s, above = 4 * s + 4 <= right;
    if (below != above) return Shortest{s + above, k};
    // Both candidates or none are inside: take the nearer one. If both are equally near, take the even one. In single
    // precision, next to a power of two, take the upper one, as the host does.
    u64 middle = 4 * s + 2;
    return Shortest{s + (value > middle || (value == middle && ((s & 1) || (single && closer)))), k};
}

DEVICE i32 decimal_digits(u64 m, u8* digits) {
    i32 n = 0;
    for (u64 v = m; v; v /= 10) n++;
    for (i32 i = n; i-- > 0; m /= 10) digits[i] = (u8)('0' + m % 10);
    return n;
}

// decimal_of converts m · 2^q to a Shortest without zeros at the end of its digits. It returns false if the number has
// more than about 17 digits.
DEVICE bool decimal_of(u64 m, i32 q, Shortest& v) {
    i32 k = 0;
    for (; m && !(m & 1); m >>= 1) q++;
    for (; q > 0 && m && m % 5 == 0; m /= 5) k++, q--;
    if (q > 56) return false;
    if (q > 0) {
        v = Shortest{m << q, k};
        return q + 64 - __clzll((i64)m) < 57;
    }
    for (; q < 0; q++, k--) {
        if (m > (1ull << 57) / 5) return false;
        m *= 5;
    }
    v = Shortest{m, k};
    return true;
}

DEVICE i32 digits_in(u64 m) {
    i32 n = 0;
    for (; m; m /= 10) n++;
    return n;
}

// ambiguous reports whether another number competes with v, the shortest number that reads back as the float c · 2^q. v
// is unambiguous if it lies strictly between the ends of the interval that rounds to the float, and is nearer to the
// float than any other number of the same length. See gpu.Scalar.String.
DEVICE bool ambiguous(Shortest v, u64 c, i32 q, bool closer) {
    Shortest x;
    // Halfway between two numbers: the float itself has one more digit, a 5.
    if (decimal_of(c, q, x) && x.m % 10 == 5 && x.k == v.k - 1 && (x.m / 10 == v.m || x.m / 10 + 1 == v.m)) return true;
    for (i32 upper = 0; upper < 2; upper++)
        if (decimal_of(upper ? 4 * c + 2 : 4 * c - 2 + closer, q - 2, x) &&
            ((x.m == v.m && x.k == v.k) || (x.m < v.m && digits_in(x.m) < digits_in(v.m))))
            return true;
    return false;
}

// format_float writes a float as SQL does: plain up to 16 digits, otherwise with an exponent.
DEVICE void format_float(Writer& out, const u64* powers, double x, bool single) {
    if (isnan(x)) return out.literal("nan");
    u64 bits = single ? (u32)__float_as_int((float)x) : (u64)__double_as_longlong(x);
    if (bits >> (single ? 31 : 63)) out.put('-');
    if (isinf(x)) return out.literal("inf");
    if (x == 0) return out.literal("0.0");
    Format f = float_format(single);
    u64 c = bits & ((1ull << (f.digits - 1)) - 1);
    i32 e = (i32)(bits >> (f.digits - 1)) & (3 - 2 * f.smallest);
    bool closer = c == 0 && e > 1;
    if (e) c |= 1ull << (f.digits - 1);
    else e = 1;
    i32 q = e - 1 + f.smallest - f.digits + 1;
    Shortest v = shortest(powers, c, q, closer, single);
    while (v.m % 10 == 0) v.m /= 10, v.k++;
    if (single && ambiguous(v, c, q, closer)) {
        // All digits of the float; a double has room for them.
        bits = (u64)__double_as_longlong(fabs(x));
        c = (bits & ((1ull << 52) - 1)) | 1ull << 52;
        v = shortest(powers, c, (i32)(bits >> 52) - 1075, c == 1ull << 52, false);
        while (v.m % 10 == 0) v.m /= 10, v.k++;
    }
    u8 digits[20];
    i32 n = decimal_digits(v.m, digits), point = n + v.k; // 0.ddd · 10^point
    double size = fabs(x);
    bool plain = size >= 1e-4 && size < 1e16;
    if (!plain && (point - 1 < -4 || point - 1 >= 6)) {
        out.put(digits[0]);
        if (n > 1) {
            out.put('.');
            out.put(digits + 1, n - 1);
        }
        out.put('e');
        i32 power = point - 1;
        out.put(power < 0 ? '-' : '+');
        if (power < 0) power = -power;
        if (power >= 100) out.put((u8)('0' + power / 100));
        out.put((u8)('0' + power / 10 % 10));
        out.put((u8)('0' + power % 10));
        return;
    }
    if (point <= 0) out.put('0');
    for (i32 i = 0; i < point; i++) out.put(i < n ? digits[i] : '0');
    if (n > point) {
        out.put('.');
        for (i32 i = point; i < 0; i++) out.put('0');
        out.put(digits + (point > 0 ? point : 0), n - (point > 0 ? point : 0));
    } else if (plain) {
        out.literal(".0");
    }
}
