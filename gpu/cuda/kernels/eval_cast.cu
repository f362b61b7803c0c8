// Casts among numbers, booleans, dates and times in expression programs.
#include "eval.cuh"
#include "eval_int128.cuh"

// eval_cast_int converts between types that are stored as whole numbers. It multiplies by the constant in y if p is 1,
// and divides by it if p is 2, rounding by mode. With q > 0, the units of a day, it first extracts the time from a
// timestamp. Infinity has no time.
KERNEL(eval_cast_int, Args) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    bool infinite = false;
    if (i < a.n) {
        r = load_int(a.x, i);
        if (is_infinite(a.infinity_x, r) && (a.infinity || a.q)) {
            infinite = true;
            r = r < 0 ? -a.infinity : a.infinity;
            if (a.q) outcome = FAILED;
        } else {
            if (a.q) r = wrap_day(r, a.q);
            i128 ratio = make128(a.y.lo, a.y.hi);
            if (a.p == 1 && mul_overflows(r, ratio, r)) outcome = FAILED;
            if (a.p == 2) r = divide(r, ratio, a.mode);
        }
    }
    settle_int(a, i, r, outcome, infinite);
}

// eval_cast_int_to_float divides by 10^p and returns the nearest float. With mode 1 an integer of at most 64 bits
// becomes a float of single precision directly, since a conversion through a double would round twice.
KERNEL(eval_cast_int_to_float, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    i128 v = load_int(a.x, i);
    if (a.mode) ((float*)a.out)[i] = fits64(v) ? (float)(i64)v : (float)(u64)v;
    else store_float(a, i, decimal_to_double(v, (i32)a.p));
}

// eval_cast_float_to_int multiplies by scale. It rounds half away from zero with mode 1, and half to even with mode 0.
KERNEL(eval_cast_float_to_int, Args) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    if (i < a.n) {
        double x = load_float(a.x, i);
        x = a.mode ? round(x * a.scale) : rint(x);
        if (!from_double(x, r)) outcome = FAILED;
        // A float below 10^p that rounds to 10^p as a decimal has one digit too many.
        if (a.mode && fabs(x) >= to_double(make128(a.hi_low, a.hi_high) + 1)) outcome = FAILED;
    }
    settle_int(a, i, r, outcome);
}

// eval_cast_float fails if a double exceeds the range of a float.
KERNEL(eval_cast_float, Args) {
    i64 i = global_thread();
    Outcome outcome = VALUE;
    if (i < a.n) {
        double x = load_float(a.x, i);
        store_float(a, i, x);
        if (a.layout == F32 && isinf((float)x) && !isinf(x)) outcome = FAILED;
    }
    settle(a, i, outcome);
}

// eval_cast_float_to_bool returns whether a float is not zero.
KERNEL(eval_cast_float_to_bool, Args) {
    i64 i = global_thread();
    store_bits((u32*)a.out, a.n, i, i < a.n && load_float(a.x, i) != 0);
}
