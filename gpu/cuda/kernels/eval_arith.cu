// Arithmetic and rounding of expression programs. The operands of decimals have
// one scale, of OpMul any.
#include "eval.cuh"
#include "eval_int128.cuh"

// The binary operations on whole numbers; q > 0 is the units of a day that a Time
// wraps at.
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
        return failed_if(r < 0 && x < 0 && y < 0); // the least HUGEINT by -1
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

// The least HUGEINT has no opposite.
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

// Floats are computed as doubles: rounding the exact operations once more to
// single precision gives the result of single precision.

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
// float_division is float_binary that fails for a zero as y, with mode 1.
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

// power is x^y. To whole powers it takes the host's steps, whose error grows with
// y, so that they are the same bits: repeated squaring of x's fraction beside a
// count of powers of two.
DEVICE double power(double x, double y) {
    if (fabs(y) == 0.5 && x > 0 && !isinf(x)) return y > 0 ? sqrt(x) : 1 / sqrt(x);
    if (x == 0 || !isfinite(x) || y != rint(y) || fabs(y) >= 9223372036854775808.0) return pow(x, y);
    double result = 1;
    i32 twos = 0, square_twos;
    double square = frexp(x, &square_twos);
    for (i64 left = (i64)fabs(y); left; left >>= 1) {
        if (square_twos < -4096 || square_twos > 4096) { // infinite, or zero
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

// binary_logarithm takes the host's steps, which lose digits beside 1.
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

// eval_round_float rounds half away from zero to p digits behind the point, or
// -p before it; scale is 10^|p|. With too many digits to move the point the value
// stays.
KERNEL(eval_round_float, Args) {
    i64 digits = a.p;
    double scale = a.scale;
    float_unary(a, [=](double x) {
        if (digits == 0) return round(x);
        double r = digits < 0 ? round(x / scale) * scale : round(x * scale) / scale;
        if (digits < 0 && isinf(scale) && isfinite(x)) return 0.0; // x is below half of it
        return isfinite(r) ? r : x;
    });
}
