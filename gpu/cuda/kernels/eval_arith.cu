// Arithmetic and rounding of expression programs. The operands of decimals have equal scales, except for OpMul.
#include "eval.cuh"
#include "eval_float.cuh"
#include "eval_int128.cuh"

// The binary operations on whole numbers. With q > 0, a Time wraps at q, the units of a day.
template <class F>
DEVICE void int_binary(const Args& a, F f) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    bool infinite = false;
    if (i < a.n) {
        i128 x = load_int(a.x, i);
        infinite = is_infinite(a.infinity, x);
        if (infinite) r = x; // a date stays infinite
        else outcome = f(x, load_int(a.y, i), r);
        if (outcome == VALUE && a.q) r = wrap_day(r, a.q);
    }
    settle_int(a, i, r, outcome, infinite);
}

DEVICE Outcome failed_if(bool over) { return over ? FAILED : VALUE; }

KERNEL(eval_add_int, Args) {
    int_binary(a, [](i128 x, i128 y, i128& r) { return failed_if(add_overflows(x, y, r)); });
}
KERNEL(eval_sub_int, Args) {
    int_binary(a, [](i128 x, i128 y, i128& r) { return failed_if(sub_overflows(x, y, r)); });
}
KERNEL(eval_mul_int, Args) {
    int_binary(a, [](i128 x, i128 y, i128& r) { return failed_if(mul_overflows(x, y, r)); });
}
KERNEL(eval_quo_int, Args) {
    int_binary(a, [](i128 x, i128 y, i128& r) {
        i128 rest;
        if (y == 0) return FAILED;
        quo_rem(x, y, r, rest);
        return failed_if(r < 0 && x < 0 && y < 0); // division of the least HUGEINT by -1
    });
}
KERNEL(eval_mod_int, Args) {
    int_binary(a, [](i128 x, i128 y, i128& r) {
        i128 quotient;
        if (y == 0) return FAILED;
        quo_rem(x, y, quotient, r);
        return VALUE;
    });
}

template <class F>
DEVICE void int_unary(const Args& a, F f) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = i < a.n ? f(load_int(a.x, i), r) : VALUE;
    settle_int(a, i, r, outcome);
}

// The least HUGEINT has no negation.
KERNEL(eval_neg_int, Args) {
    int_unary(a, [](i128 x, i128& r) {
        r = (i128)-(u128)x;
        return failed_if(x < 0 && r < 0);
    });
}
KERNEL(eval_abs_int, Args) {
    int_unary(a, [](i128 x, i128& r) {
        r = (i128)magnitude(x);
        return failed_if(r < 0);
    });
}
KERNEL(eval_sign_int, Args) {
    int_unary(a, [](i128 x, i128& r) {
        r = (x > 0) - (x < 0);
        return VALUE;
    });
}

// eval_round_int divides by 10^p, rounding by mode, and multiplies by 10^q.
KERNEL(eval_round_int, Args) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    if (i < a.n && a.p <= 38) {
        r = divide(load_int(a.x, i), power10((i32)a.p), a.mode);
        if (a.q) outcome = failed_if(mul_overflows(r, power10((i32)a.q), r));
    }
    settle_int(a, i, r, outcome);
}

// Floats are computed as doubles. Rounding an exactly rounded operation once more to single precision gives the result
// of single precision.

template <class F>
DEVICE void float_binary(const Args& a, F f) {
    i64 i = global_thread();
    if (i < a.n) store_float(a, i, f(load_float(a.x, i), load_float(a.y, i)));
}

KERNEL(eval_add_float, Args) {
    float_binary(a, [](double x, double y) { return x + y; });
}
KERNEL(eval_sub_float, Args) {
    float_binary(a, [](double x, double y) { return x - y; });
}
KERNEL(eval_mul_float, Args) {
    float_binary(a, [](double x, double y) { return x * y; });
}
KERNEL(eval_div_float, Args) {
    float_binary(a, [](double x, double y) { return x / y; });
}
// float_division is float_binary that fails if y is zero and mode is 1.
template <class F>
DEVICE void float_division(const Args& a, F f) {
    i64 i = global_thread();
    Outcome outcome = VALUE;
    if (i < a.n) {
        double y = load_float(a.y, i);
        store_float(a, i, f(load_float(a.x, i), y));
        outcome = failed_if(a.mode && y == 0);
    }
    settle(a, i, outcome);
}

KERNEL(eval_quo_float, Args) {
    float_division(a, [](double x, double y) { return x / y; });
}
KERNEL(eval_mod_float, Args) {
    float_division(a, [](double x, double y) { return fmod(x, y); });
}

// power returns x^y. For whole y it takes the host's steps, so that the bits are the same although the error grows with
// y. The steps are repeated squaring of x's fraction, with a separate count of powers of two.
DEVICE double power(double x, double y) {
    if (fabs(y) == 0.5 && x > 0 && !isinf(x)) return y > 0 ? sqrt(x) : 1 / sqrt(x);
    if (x == 0 || !isfinite(x) || y != rint(y) || fabs(y) >= 9223372036854775808.0) return pow(x, y);
    double result = 1;
    i32 twos = 0, square_twos;
    double square = frexp(x, &square_twos);
    for (i64 left = (i64)fabs(y); left; left >>= 1) {
        if (square_twos < -4096 || square_twos > 4096) { // infinity, or zero
            twos += square_twos;
            break;
        }
        if (left & 1) {
            result *= square;
            twos += square_twos;
        }
        square *= square;
        square_twos *= 2;
        if (square < 0.5) {
            square += square;
            square_twos--;
        }
    }
    return y < 0 ? ldexp(1 / result, -twos) : ldexp(result, twos);
}

KERNEL(eval_pow_float, Args) {
    float_binary(a, [](double x, double y) { return power(x, y); });
}

template <class F>
DEVICE void float_unary(const Args& a, F f) {
    i64 i = global_thread();
    if (i < a.n) store_float(a, i, f(load_float(a.x, i)));
}

KERNEL(eval_neg_float, Args) {
    float_unary(a, [](double x) { return -x; });
}
KERNEL(eval_abs_float, Args) {
    float_unary(a, [](double x) { return fabs(x); });
}
KERNEL(eval_sqrt_float, Args) {
    float_unary(a, [](double x) { return sqrt(x); });
}
KERNEL(eval_cbrt_float, Args) {
    float_unary(a, [](double x) { return cbrt(x); });
}
KERNEL(eval_exp_float, Args) {
    float_unary(a, [](double x) { return exp(x); });
}
KERNEL(eval_ln_float, Args) {
    float_unary(a, [](double x) { return log(x); });
}

// binary_logarithm takes the host's steps, which lose digits near 1.
DEVICE double binary_logarithm(double x) {
    if (!isfinite(x)) return log(x);
    constexpr double PER_LN = 1.442695040888963407359924681001892137; // 1 / ln 2
    i32 twos;
    double fraction = frexp(x, &twos);
    return fraction == 0.5 ? twos - 1 : log(fraction) * PER_LN + twos;
}

KERNEL(eval_log2_float, Args) {
    float_unary(a, [](double x) { return binary_logarithm(x); });
}
KERNEL(eval_log10_float, Args) {
    constexpr double PER_LN = 0.434294481903251827651128918916605082; // 1 / ln 10
    float_unary(a, [=](double x) { return log(x) * PER_LN; });
}

KERNEL(eval_floor_float, Args) {
    float_unary(a, [](double x) { return floor(x); });
}
KERNEL(eval_ceil_float, Args) {
    float_unary(a, [](double x) { return ceil(x); });
}
KERNEL(eval_trunc_float, Args) {
    float_unary(a, [](double x) { return trunc(x); });
}

KERNEL(eval_sign_float, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    double x = load_float(a.x, i);
    ((i8*)a.out)[i] = (x > 0) - (x < 0);
}

// power_of_ten returns 10^k, exactly, for k from 0 to 22.
DEVICE double power_of_ten(i32 k) {
    u64 low = 1, high = 1;
    for (i32 i = 0; i < k && i < 11; i++) low *= 10;
    for (i32 i = 11; i < k; i++) high *= 10;
    return (double)low * (double)high;
}

// compare_decimal compares m · 10^k with h · 2^e and returns -1, 0 or 1. h is less than 2^54.
DEVICE i32 compare_decimal(u64 m, i32 k, u64 h, i32 e) {
    u8 text[20];
    i32 n = decimal_digits(m, text);
    return compare_halfway(Decimal{text, n, n + k}, h, e);
}

// round_exactly is round_digits for a positive number. It estimates the number of units, at most 2^54, and the nearest
// float, and corrects both by comparisons of large integers.
static __device__ __noinline__ double round_exactly(double size, i32 digits) {
    Format f = float_format(false);
    u64 bits = (u64)__double_as_longlong(size), infinity = 0x7ffull << 52;
    auto significand = [&](u64 b) { return (b & ((1ull << 52) - 1)) | (b >> 52 ? 1ull << 52 : 0); };
    auto exponent = [&](u64 b) { return (i32)(b >> 52 ? b >> 52 : 1) + f.smallest - f.digits; };
    u64 m = significand(bits);
    i32 e = exponent(bits);
    if (floor_log2_power10(-digits) < e - 1) return size; // the unit is less than half of the last place
    i32 half = digits / 2;
    u64 units = (u64)(size * pow(10.0, (double)half) * pow(10.0, (double)(digits - half)) + 0.5);
    while (units > 0 && compare_decimal(10 * units - 5, -digits - 1, m, e) > 0) units--;
    while (compare_decimal(10 * units + 5, -digits - 1, m, e) <= 0) units++;
    if (units == 0) return 0;
    double near = (double)units * pow(10.0, (double)-half) * pow(10.0, (double)(half - digits));
    u64 r = (u64)__double_as_longlong(near);
    // The nearest float, ties to even: the result lies between the midpoints to its neighbours.
    auto beyond = [&](u64 below) { return compare_decimal(units, -digits, 2 * significand(below) + 1, exponent(below) - 1); };
    while (r > 0) {
        i32 c = beyond(r - 1);
        if (c > 0 || (c == 0 && !(r & 1))) break;
        r--;
    }
    while (r < infinity) {
        i32 c = beyond(r);
        if (c < 0 || (c == 0 && !(r & 1))) break;
        r++;
    }
    return r < infinity ? __longlong_as_double((i64)r) : size;
}

// round_digits rounds half away from zero to a number of digits after the point, or before it if the number is
// negative. The exact decimal value of x decides. The result is the float nearest to the rounded decimal. If the result
// exceeds the greatest float, round_digits returns x.
DEVICE double round_digits(double x, i32 digits) {
    double size = fabs(x);
    if (digits == 0) return round(x);
    if (!isfinite(x)) return x;
    if (digits < -308) return 0;
    if (size == 0) return x;
    if (digits > 0 && size >= 4503599627370496.0) return x; // a whole number
    if (digits > 0 && digits <= 22) {
        // The product plus its rounding error is the exact product.
        double power = power_of_ten(digits), product = size * power;
        if (product < 4503599627370496.0) {
            double whole = floor(product), rest = product - whole;
            if (rest > 0.5 || (rest == 0.5 && fma(size, power, -product) >= 0)) whole++;
            return copysign(whole / power, x);
        }
    }
    if (digits < 0 && digits >= -18 && size < 9223372036854775808.0) {
        // Half of the unit is a whole number, so a fraction does not matter.
        u64 unit = (u64)power_of_ten(-digits);
        return copysign((double)(((u64)size + unit / 2) / unit * unit), x);
    }
    return copysign(round_exactly(size, digits), x);
}

// eval_round_float rounds to p digits, or with mode 1 to y digits.
KERNEL(eval_round_float, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    i64 digits = a.p;
    if (a.mode) digits = (i64)load_int(a.y, i);
    digits = digits < -400 ? -400 : digits > 400 ? 400 : digits;
    store_float(a, i, round_digits(load_float(a.x, i), (i32)digits));
}
