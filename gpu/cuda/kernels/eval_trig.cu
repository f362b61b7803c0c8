// Trigonometric and hyperbolic functions of expression programs.
#include "eval.cuh"

template <class F>
DEVICE void of_float(const Args& a, F f) {
    i64 i = global_thread();
    if (i < a.n) store_float(a, i, f(load_float(a.x, i)));
}

#define FUNCTION(name)                                 \
    KERNEL(eval_##name##_float, Args) {                \
        of_float(a, [](double x) { return name(x); }); \
    }

FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(tanh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)

FUNCTION(lgamma)

KERNEL(eval_gamma_float, Args) {
    of_float(a, [](double x) { return tgamma(x); });
}

// eval_nextafter_float returns the float after x in the direction of y, in the result's precision.
KERNEL(eval_nextafter_float, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    double x = load_float(a.x, i), y = load_float(a.y, i);
    store_float(a, i, a.layout == F32 ? nextafterf((float)x, (float)y) : nextafter(x, y));
}

KERNEL(eval_atan2_float, Args) {
    i64 i = global_thread();
    if (i < a.n) store_float(a, i, atan2(load_float(a.x, i), load_float(a.y, i)));
}
