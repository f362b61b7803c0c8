// Operations on the bits of whole numbers, greatest common divisors, assertions and step functions.
#include "eval.cuh"
#include "eval_int128.cuh"

template <class F>
DEVICE void on_bits(const Args& a, F f) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = i < a.n ? f(load_int(a.x, i), load_int(a.y, i), r) : VALUE;
    settle_int(a, i, r, outcome);
}

KERNEL(eval_bit_and_int, Args) {
    on_bits(a, [](i128 x, i128 y, i128& r) {
        r = x & y;
        return VALUE;
    });
}
KERNEL(eval_bit_or_int, Args) {
    on_bits(a, [](i128 x, i128 y, i128& r) {
        r = x | y;
        return VALUE;
    });
}
KERNEL(eval_bit_xor_int, Args) {
    on_bits(a, [](i128 x, i128 y, i128& r) {
        r = x ^ y;
        return VALUE;
    });
}

// The shifts work on values of p bits.
KERNEL(eval_shift_left_int, Args) {
    i64 bits = a.p;
    on_bits(a, [=](i128 x, i128 y, i128& r) {
        if (x < 0 || y < 0) return FAILED;
        if (x == 0) return VALUE;
        if (y >= bits || y == 127) return FAILED;
        return mul_overflows(x, (i128)1 << (i32)y, r) ? FAILED : VALUE;
    });
}
KERNEL(eval_shift_right_int, Args) {
    i64 bits = a.p;
    on_bits(a, [=](i128 x, i128 y, i128& r) {
        if (y >= 0 && y < bits) r = x >> (i32)y;
        return VALUE;
    });
}

KERNEL(eval_gcd_int, Args) {
    on_bits(a, [](i128 x, i128 y, i128& r) {
        while (y != 0) {
            i128 quotient, rest;
            quo_rem(x, y, quotient, rest);
            x = y;
            y = rest;
        }
        r = (i128)magnitude(x);
        return r < 0 ? FAILED : VALUE;
    });
}

// eval_bit_count counts the one bits of values of p bits.
KERNEL(eval_bit_count, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    u128 x = (u128)load_int(a.x, i);
    if (a.p < 128) x &= ((u128)1 << a.p) - 1;
    i32 count = 0;
    for (; x; x &= x - 1) count++;
    store_int(a, i, count);
}

// eval_assert fails where x is false.
KERNEL(eval_assert, Args) {
    i64 i = global_thread();
    bool holds = i < a.n && load_int(a.x, i) != 0;
    store_bits((u32*)a.out, a.n, i, holds);
    settle(a, i, i >= a.n || holds ? VALUE : FAILED);
}

// eval_step is a step function of x. set contains the p values at which it steps, in ascending order, and then its
// results.
KERNEL(eval_step, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    const i64* steps = (const i64*)a.set;
    i64 x = (i64)load_int(a.x, i), lo = 0, hi = a.p;
    while (lo < hi) {
        i64 middle = (lo + hi) / 2;
        if (steps[middle] > x) hi = middle;
        else lo = middle + 1;
    }
    store_int(a, i, steps[a.p + lo]);
}
