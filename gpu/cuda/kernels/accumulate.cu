// Aggregates over groups. Each row has a group id and is folded into the state of its group.
//
// Sums are integers, even those of floats, so that they do not depend on the order of the rows. A value is split into
// limbs of 32 bits. Each limb is added up in 64 bits, for at most 2^30 rows before the limbs are folded into the state.
//
// There are three ways to add up. A small number of groups is added up in shared memory, with adjacent copies for the
// lanes of a warp. A large number is added up in device memory, with one or two atomics a row. If the rows of each
// group are contiguous, a run of rows is added up with one or two atomics. A row moves 4 bytes of id and its value.
#include "order.cuh"

struct SumArgs {
    const i32* ids;
    const void* values;
    const u32* valid;
    u64* limbs;       // LIMBS for each group
    const u32* tops;  // floats: the largest exponent of each group
    i64 n;
    i32 groups;
    i32 copies;       // copies of a group in shared memory: a power of two up to 32
};

// The sources of sums return the limbs of row i as balanced digits, so that small values of both signs need only one
// limb.
struct Ones {
    static constexpr int LIMBS = 1;
    DEVICE void limbs(const SumArgs&, i64, i32, i64* l) { l[0] = 1; }
};

template <class T>
struct Narrow {
    static constexpr int LIMBS = 1;
    DEVICE void limbs(const SumArgs& a, i64 i, i32, i64* l) { l[0] = streamed<T>(a.values, i); }
};

template <class T>
struct Long {
    static constexpr int LIMBS = 2;
    DEVICE void limbs(const SumArgs& a, i64 i, i32, i64* l) {
        T v = streamed<T>(a.values, i);
        l[0] = (i32)v;
        l[1] = (i64)(v >> 32) + (l[0] < 0);
    }
};

struct Wide {
    static constexpr int LIMBS = 4;
    DEVICE void limbs(const SumArgs& a, i64 i, i32, i64* l) {
        const i64* v = static_cast<const i64*>(a.values) + 2 * i;
        i64 carry = 0;
        for (int k = 0; k < 4; k++) {
            i64 digit = k == 3 ? v[1] >> 32 : (i64)(u32)((u64)v[k / 2] >> (k % 2 * 32));
            digit += carry;
            l[k] = k == 3 ? digit : (i32)digit;
            carry = (digit - l[k]) >> 32;
        }
    }
};

DEVICE u32 exponent(double v) { return (u32)((u64)__double_as_longlong(v) >> 52) & 0x7ff; }

// A float is an integer of 96 bits in units of 2^(top - 1118), where top is the largest biased exponent of the group.
// That is 43 bits more than the group's largest value has.
template <class T>
struct Float {
    static constexpr int LIMBS = 3;
    DEVICE void limbs(const SumArgs& a, i64 i, i32 group, i64* l) {
        double v = streamed<T>(a.values, i);
        l[0] = l[1] = l[2] = 0;
        u32 e = exponent(v);
        if (e == 0x7ff) return; // infinity or NaN: see float_tops
        u64 m = (u64)__double_as_longlong(v) & ((1ull << 52) - 1);
        if (e)
            m |= 1ull << 52;
        else
            e = 1;
        u32 down = a.tops[group] - e;
        if (down > 96) return;
        u128 x = (u128)m << 43 >> down;
        for (int k = 0; k < 3; k++) {
            i64 digit = (u32)(x >> (32 * k));
            l[k] = v < 0 ? -digit : digit;
        }
    }
};

constexpr int SUM_ROWS = 4; // rows that a thread loads at a time, so that the loads are in flight together

template <class Source>
struct Taken {
    i32 ids[SUM_ROWS]; // -1: no value
    i64 limbs[SUM_ROWS][Source::LIMBS];
};

// take loads rows first, first + blockDim.x ...
template <class Source>
DEVICE Taken<Source> take(const SumArgs& a, i64 first) {
    Taken<Source> t;
#pragma unroll
    for (int k = 0; k < SUM_ROWS; k++) {
        i64 i = first + k * (i64)blockDim.x;
        t.ids[k] = -1;
        if (i >= a.n || !bit(a.valid, i)) continue;
        t.ids[k] = a.groups == 1 ? 0 : streamed<i32>(a.ids, i);
        Source::limbs(a, i, t.ids[k], t.limbs[k]);
    }
    return t;
}

template <class Source>
DEVICE void sum_global(const SumArgs& a) {
    Taken<Source> t = take<Source>(a, (i64)blockIdx.x * blockDim.x * SUM_ROWS + threadIdx.x);
#pragma unroll
    for (int k = 0; k < SUM_ROWS; k++)
        if (t.ids[k] >= 0)
            for (int j = 0; j < Source::LIMBS; j++)
                if (t.limbs[k][j]) atomicAdd(&a.limbs[(i64)t.ids[k] * Source::LIMBS + j], (u64)t.limbs[k][j]);
}

// add64 adds to a number of two words in shared memory, which has no 64-bit atomics.
DEVICE void add64(u32* low, u32* high, u64 v) {
    u32 lo = (u32)v, hi = (u32)(v >> 32);
    if (lo && atomicAdd(low, lo) > ~lo) hi++;
    if (hi) atomicAdd(high, hi);
}

template <class Source>
DEVICE void sum_shared(const SumArgs& a) {
    SHARED(u32, words); // by limb: the low words, then the high words, of groups × copies
    i32 cells = a.groups * a.copies;
    for (i32 c = threadIdx.x; c < cells * 2 * Source::LIMBS; c += blockDim.x) words[c] = 0;
    __syncthreads();
    i32 copy = lane_id() & (a.copies - 1);
    i64 tile = (i64)blockDim.x * SUM_ROWS;
    for (i64 first = blockIdx.x * tile; first < a.n; first += gridDim.x * tile) {
        Taken<Source> t = take<Source>(a, first + threadIdx.x);
#pragma unroll
        for (int k = 0; k < SUM_ROWS; k++) {
            if (t.ids[k] < 0) continue;
            i32 cell = t.ids[k] * a.copies + copy;
            for (int j = 0; j < Source::LIMBS; j++)
                if (t.limbs[k][j]) add64(&words[2 * j * cells + cell], &words[(2 * j + 1) * cells + cell], (u64)t.limbs[k][j]);
        }
    }
    __syncthreads();
    for (i32 g = threadIdx.x; g < a.groups; g += blockDim.x)
        for (int j = 0; j < Source::LIMBS; j++) {
            u64 sum = 0;
            for (i32 c = g * a.copies; c < (g + 1) * a.copies; c++) sum += (u64)words[(2 * j + 1) * cells + c] << 32 | words[2 * j * cells + c];
            // Copies of different sign carry between words: the sum is right modulo 2^64.
            if (sum) atomicAdd(&a.limbs[(i64)g * Source::LIMBS + j], sum);
        }
}

// Runs: rows of a group that are contiguous are folded in registers. Each warp reads RUN_ROWS rows, 32 at a time, and
// updates the state once a run. While all 32 rows belong to the current run, each lane folds its own rows. When another
// run begins, a scan folds the runs among the 32 rows, including the current run.
constexpr int RUN_ROWS = 512, RUN_STEP = 2; // steps of 32 rows that are loaded together

template <class Op>
struct Run {
    i32 id;
    bool spread;       // the value is spread over the lanes; otherwise lane 31 has all of it
    u64 v[Op::WORDS];

    // total returns the value of the whole run, in lane 0.
    __device__ __forceinline__ void total(u64* sum) const {
#pragma unroll
        for (int w = 0; w < Op::WORDS; w++) sum[w] = spread ? v[w] : __shfl_sync(ALL, v[w], 31);
#pragma unroll 1
        for (int d = 16; d && spread; d >>= 1)
#pragma unroll
            for (int w = 0; w < Op::WORDS; w++) sum[w] = Op::combine(sum[w], __shfl_xor_sync(ALL, sum[w], d));
    }
};

// run_rows folds the warp's next 32 rows, with values v and group ids.
template <class Op>
DEVICE void run_rows(const typename Op::Args& a, Run<Op>& run, i32 id, u64* v) {
    if (__all_sync(ALL, id == run.id)) {
        if (!run.spread && lane_id() != 31)
            for (int w = 0; w < Op::WORDS; w++) run.v[w] = Op::NEUTRAL;
        for (int w = 0; w < Op::WORDS; w++) run.v[w] = Op::combine(run.v[w], v[w]);
        run.spread = true;
        return;
    }
    u64 before[Op::WORDS];
    run.total(before);
    if (lane_id() == 0 && id != run.id) Op::fold(a, run.id, before);
    if (lane_id() == 0 && id == run.id)
        for (int w = 0; w < Op::WORDS; w++) v[w] = Op::combine(v[w], before[w]);
#pragma unroll 1 // unrolled, the code would be five times as long
    for (int d = 1; d < 32; d <<= 1) {
        bool one = __shfl_up_sync(ALL, id, d) == id && lane_id() >= (u32)d;
#pragma unroll
        for (int w = 0; w < Op::WORDS; w++) {
            u64 up = __shfl_up_sync(ALL, v[w], d);
            if (one) v[w] = Op::combine(v[w], up);
        }
    }
    bool ends = __shfl_down_sync(ALL, id, 1) != id;
    run.id = __shfl_sync(ALL, id, 31);
    if (ends && id != run.id) Op::fold(a, id, v);
    for (int w = 0; w < Op::WORDS; w++) run.v[w] = v[w];
    run.spread = false;
}

template <class Op>
DEVICE void by_runs(const typename Op::Args& a) {
    i64 first = global_thread() / 32 * RUN_ROWS, last = first + RUN_ROWS < a.n ? first + RUN_ROWS : a.n;
    if (first >= last) return;
    Run<Op> run = {a.ids[first], true, {}};
    for (int w = 0; w < Op::WORDS; w++) run.v[w] = Op::NEUTRAL;
    for (i64 base = first + lane_id(); base - lane_id() < last; base += 32 * RUN_STEP) {
        i32 ids[RUN_STEP];
        u64 v[RUN_STEP][Op::WORDS];
#pragma unroll
        for (int k = 0; k < RUN_STEP; k++) {
            i64 i = base + 32 * k;
            ids[k] = streamed<i32>(a.ids, i < last ? i : last - 1); // rows past the end extend the last run
            for (int w = 0; w < Op::WORDS; w++) v[k][w] = Op::NEUTRAL;
            if (i < last && bit(a.valid, i)) Op::load(a, i, ids[k], v[k]);
        }
#pragma unroll
        for (int k = 0; k < RUN_STEP; k++) run_rows<Op>(a, run, ids[k], v[k]);
    }
    u64 sum[Op::WORDS];
    run.total(sum);
    if (lane_id() == 0) Op::fold(a, run.id, sum);
}

template <class Source>
struct SumOp {
    typedef SumArgs Args;
    static constexpr int WORDS = Source::LIMBS;
    static constexpr u64 NEUTRAL = 0;
    DEVICE u64 combine(u64 x, u64 y) { return x + y; }
    DEVICE void load(const SumArgs& a, i64 i, i32 id, u64* v) {
        i64 limbs[WORDS];
        Source::limbs(a, i, id, limbs);
        for (int j = 0; j < WORDS; j++) v[j] = (u64)limbs[j];
    }
    DEVICE void fold(const SumArgs& a, i32 id, const u64* v) {
        for (int j = 0; j < WORDS; j++)
            if (v[j]) atomicAdd(&a.limbs[(i64)id * WORDS + j], v[j]);
    }
};

#define SUM_BUT_SHARED(name, Source)                              \
    KERNEL(sum_##name, SumArgs) { sum_global<Source>(a); }        \
    KERNEL(sum_runs_##name, SumArgs) { by_runs<SumOp<Source>>(a); }
#define SUM(name, Source)        \
    SUM_BUT_SHARED(name, Source) \
    KERNEL(sum_shared_##name, SumArgs) { sum_shared<Source>(a); }
SUM(ones, Ones)
SUM(i8, Narrow<i8>)
SUM(i16, Narrow<i16>)
SUM(i32, Narrow<i32>)
SUM(u8, Narrow<u8>)
SUM(u16, Narrow<u16>)
SUM(u32, Narrow<u32>)
SUM(i64, Long<i64>)
SUM(u64, Long<u64>)
SUM_BUT_SHARED(wide, Wide)
// With blocks of the most threads, this kernel would use more registers than some GPUs have. The other kernels use
// fewer, and would use more with bounds.
KERNEL_BOUNDS(sum_shared_wide, SumArgs, 1024, 1) { sum_shared<Wide>(a); }
SUM(f32, Float<float>)
SUM(f64, Float<double>)

// float_tops finds the largest biased exponent of each group's finite values in a batch, and records values that are
// not finite.
struct TopArgs {
    const i32* ids;
    const void* values;
    const u32* valid;
    u32* tops;
    u32* special; // 1: NaN, 2: +infinity, 4: -infinity
    i64 n;
    i32 single;
};

KERNEL(float_tops, TopArgs) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    double v = a.single ? at<float>(a.values, i) : at<double>(a.values, i);
    i32 id = a.ids[i];
    u32 e = exponent(v);
    if (e == 0x7ff)
        atomicOr(&a.special[id], v != v ? 1u : v > 0 ? 2u : 4u);
    else if (e = e ? e : 1; __ldcg(&a.tops[id]) < e)
        atomicMax(&a.tops[id], e);
}

// Twofold is a sum of floats and its accumulated rounding error. Together they are the exact sum to about 106 bits,
// because add is Knuth's two-sum.
struct __align__(16) Twofold {
    double hi, lo;
};

DEVICE void add(Twofold& t, double v) {
    double s = t.hi + v, b = s - t.hi;
    t.lo += (t.hi - (s - b)) + (v - b);
    t.hi = s;
}

struct FloatArgs {
    const i32* ids; // ids of rows; null: all groups are folded
    u64* limbs;
    u32* tops;
    const u32* special;
    Twofold* sums;
    double* out;
    i64 n; // rows or groups
};

// float_fold adds the batch's sum of each group to the group's state, and clears the sum. With ids, the first row of a
// group that arrives does this for the group.
KERNEL(float_fold, FloatArgs) {
    i64 g = global_thread();
    if (g >= a.n) return;
    if (a.ids) g = a.ids[g];
    u32 top = atomicExch(&a.tops[g], 0);
    if (top == 0) return;
    i64* l = reinterpret_cast<i64*>(a.limbs) + 3 * g;
    i128 x = ((i128)l[2] << 64) + ((i128)l[1] << 32) + l[0];
    bool negative = x < 0;
    u128 m = negative ? -(u128)x : (u128)x;
    Twofold t = a.sums[g];
    for (int shift = 76; shift >= 0; shift -= 38) {
        double part = (double)(u64)(shift == 76 ? m >> 76 : m >> shift & ((1ull << 38) - 1));
        if (part != 0) add(t, ldexp(negative ? -part : part, (int)top - 1118 + shift));
    }
    a.sums[g] = t;
    l[0] = l[1] = l[2] = 0;
}

KERNEL(float_write, FloatArgs) {
    i64 g = global_thread();
    if (g >= a.n) return;
    Twofold t = a.sums[g];
    u32 special = a.special[g];
    double v = t.hi + t.lo;
    if (v != v) v = t.hi; // infinite: the error term is NaN
    double infinity = __longlong_as_double(0x7ff0000000000000ll);
    if (special & 1 || (special & 6) == 6)
        v = __longlong_as_double(0x7ff8000000000001ll);
    else if (special)
        v = special & 2 ? infinity : -infinity;
    a.out[g] = v;
}

// FoldArgs has integer sums: the limbs of groups [0, n), and the sums that were folded before.
struct FoldArgs {
    u64* limbs;
    i64* base;      // 128 bits for each group; null: nothing was folded yet
    void* out;      // of width bytes
    i32* failed;    // [0] the lowest group whose sum does not fit, [1] 1: a sum exceeded 128 bits
    u64 most_low;   // sums must be below this in magnitude
    u64 most_high;
    i64 n;
    i32 count;      // limbs of a group
    i32 width;
};

// total adds up base and limbs digit by digit. It reports whether the sum fits 128 bits.
DEVICE bool total(const FoldArgs& a, i64 g, u64& low, u64& high) {
    u32 digits[6];
    i64 b0 = a.base ? a.base[2 * g] : 0, b1 = a.base ? a.base[2 * g + 1] : 0;
    i128 carry = 0;
    for (int k = 0; k < 6; k++) {
        u64 word = k < 2 ? (u64)b0 : k < 4 ? (u64)b1 : (u64)(b1 >> 63);
        carry += (u32)(word >> (k % 2 * 32));
        if (k < a.count) carry += (i64)a.limbs[g * a.count + k];
        digits[k] = (u32)carry;
        carry >>= 32;
    }
    low = (u64)digits[1] << 32 | digits[0];
    high = (u64)digits[3] << 32 | digits[2];
    u32 sign = digits[3] >> 31 ? ALL : 0;
    return digits[4] == sign && digits[5] == sign;
}

KERNEL(sum_fold, FoldArgs) {
    i64 g = global_thread();
    if (g >= a.n) return;
    u64 low, high;
    if (!total(a, g, low, high)) a.failed[1] = 1;
    a.base[2 * g] = (i64)low;
    a.base[2 * g + 1] = (i64)high;
    for (int k = 0; k < a.count; k++) a.limbs[g * a.count + k] = 0;
}

KERNEL(sum_write, FoldArgs) {
    i64 g = global_thread();
    if (g >= a.n) return;
    u64 low, high;
    if (!total(a, g, low, high)) a.failed[1] = 1;
    u128 magnitude = (u128)high << 64 | low;
    if (high >> 63) magnitude = -magnitude;
    if (magnitude >= ((u128)a.most_high << 64 | a.most_low)) atomicMin(&a.failed[0], (i32)g);
    u64* out = static_cast<u64*>(a.out);
    if (a.width == 16) {
        out[2 * g] = low;
        out[2 * g + 1] = high;
    } else {
        out[g] = low;
    }
}

// Min and max compare values as words in the order of the values. Most rows only read the state, since a state improves
// only a few times.
struct ExtremeArgs {
    const i32* ids;
    const void* values;
    const u32* valid;
    u64* best;
    i64 n;
    i32 groups;
    i32 load;
};

// Operations that combine two words. better reports whether v changes best, improve changes it.
struct Min {
    static constexpr u64 WORST = ~0ull;
    DEVICE bool better(u64 v, u64 best) { return v < best; }
    DEVICE void improve(u64* best, u64 v) { atomicMin(best, v); }
    DEVICE u64 combine(u64 x, u64 y) { return min(x, y); }
};

struct Max {
    static constexpr u64 WORST = 0;
    DEVICE bool better(u64 v, u64 best) { return v > best; }
    DEVICE void improve(u64* best, u64 v) { atomicMax(best, v); }
    DEVICE u64 combine(u64 x, u64 y) { return max(x, y); }
};

struct And {
    static constexpr u64 WORST = ~0ull;
    DEVICE bool better(u64 v, u64 best) { return best & ~v; }
    DEVICE void improve(u64* best, u64 v) { atomicAnd(best, v); }
    DEVICE u64 combine(u64 x, u64 y) { return x & y; }
};

struct Or {
    static constexpr u64 WORST = 0;
    DEVICE bool better(u64 v, u64 best) { return v & ~best; }
    DEVICE void improve(u64* best, u64 v) { atomicOr(best, v); }
    DEVICE u64 combine(u64 x, u64 y) { return x | y; }
};

struct Xor {
    static constexpr u64 WORST = 0;
    DEVICE bool better(u64 v, u64) { return v; }
    DEVICE void improve(u64* best, u64 v) { atomicXor(best, v); }
    DEVICE u64 combine(u64 x, u64 y) { return x ^ y; }
};

template <class M>
DEVICE void extreme_global(const ExtremeArgs& a) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    u64 v = order(a.load, load_word(a.values, a.load, i)), *best = &a.best[a.ids[i]];
    if (M::better(v, __ldcg(best))) M::improve(best, v);
}

template <class M>
DEVICE void extreme_shared(const ExtremeArgs& a) {
    SHARED(u64, best);
    for (i32 g = threadIdx.x; g < a.groups; g += blockDim.x) best[g] = M::WORST;
    __syncthreads();
    for (i64 i = global_thread(); i < a.n; i += grid_threads()) {
        if (!bit(a.valid, i)) continue;
        u64 v = order(a.load, load_word(a.values, a.load, i)), *mine = &best[a.ids[i]];
        if (M::better(v, *static_cast<volatile u64*>(mine))) M::improve(mine, v);
    }
    __syncthreads();
    for (i32 g = threadIdx.x; g < a.groups; g += blockDim.x)
        if (M::better(best[g], __ldcg(&a.best[g]))) M::improve(&a.best[g], best[g]);
}

template <class M>
struct ExtremeOp {
    typedef ExtremeArgs Args;
    static constexpr int WORDS = 1;
    static constexpr u64 NEUTRAL = M::WORST;
    DEVICE u64 combine(u64 x, u64 y) { return M::combine(x, y); }
    DEVICE void load(const ExtremeArgs& a, i64 i, i32, u64* v) { v[0] = order(a.load, load_word(a.values, a.load, i)); }
    DEVICE void fold(const ExtremeArgs& a, i32 id, const u64* v) {
        if (M::better(v[0], __ldcg(&a.best[id]))) M::improve(&a.best[id], v[0]);
    }
};

#define EXTREME(name, M)                                               \
    KERNEL(extreme_##name, ExtremeArgs) { extreme_global<M>(a); }        \
    KERNEL(extreme_shared_##name, ExtremeArgs) { extreme_shared<M>(a); } \
    KERNEL(extreme_runs_##name, ExtremeArgs) { by_runs<ExtremeOp<M>>(a); }
EXTREME(min, Min)
EXTREME(max, Max)
EXTREME(bit_and, And)
EXTREME(bit_or, Or)
EXTREME(bit_xor, Xor)

struct ExtremeWriteArgs {
    const u64* best;
    const u64* low; // low words of 16-byte values
    void* out;      // values of width bytes, a bitmap for width 0
    i64 n;
    i32 load, width;
};

KERNEL(extreme_write, ExtremeWriteArgs) {
    i64 g = global_thread();
    bool in = g < a.n;
    u64 v = in ? unorder(a.load, a.best[g]) : 0;
    if (a.width == 0) {
        u32 word = __ballot_sync(ALL, in && (v & 1));
        if (lane_id() == 0 && g < (a.n + 63) / 64 * 64) static_cast<u32*>(a.out)[g >> 5] = word;
        return;
    }
    if (!in) return;
    switch (a.width) {
    case 1: static_cast<u8*>(a.out)[g] = (u8)v; break;
    case 2: static_cast<u16*>(a.out)[g] = (u16)v; break;
    case 4: static_cast<u32*>(a.out)[g] = (u32)v; break;
    case 8: static_cast<u64*>(a.out)[g] = v; break;
    default:
        static_cast<u64*>(a.out)[2 * g] = a.low[g];
        static_cast<u64*>(a.out)[2 * g + 1] = v;
    }
}

// Values of 16 bytes take three steps. The first step finds the best high word of each group. The second step resets
// the low word of groups whose high word improved. The third step finds the best low word among the rows with the best
// high word.
struct WideExtremeArgs {
    const i32* ids;
    const i64* values;
    const u32* valid;
    u64* high;
    u64* low;
    u64* before; // high words before the batch
    i64 n;
};

template <class M>
DEVICE void wide_high(const WideExtremeArgs& a) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    u64 v = order(LOAD_I64, (u64)a.values[2 * i + 1]), *best = &a.high[a.ids[i]];
    if (M::better(v, __ldcg(best))) M::improve(best, v);
}

template <class M>
DEVICE void wide_anew(const WideExtremeArgs& a) {
    i64 g = global_thread();
    if (g < a.n && a.high[g] != a.before[g]) a.low[g] = M::WORST;
}

template <class M>
DEVICE void wide_low(const WideExtremeArgs& a) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    i32 id = a.ids[i];
    if (order(LOAD_I64, (u64)a.values[2 * i + 1]) != a.high[id]) return;
    u64 v = (u64)a.values[2 * i];
    if (M::better(v, __ldcg(&a.low[id]))) M::improve(&a.low[id], v);
}

#define WIDE_EXTREME(name, M)                                            \
    KERNEL(wide_high_##name, WideExtremeArgs) { wide_high<M>(a); }       \
    KERNEL(wide_anew_##name, WideExtremeArgs) { wide_anew<M>(a); }       \
    KERNEL(wide_low_##name, WideExtremeArgs) { wide_low<M>(a); }
WIDE_EXTREME(min, Min)
WIDE_EXTREME(max, Max)

// Bit operations on values of 16 bytes treat the two halves separately.
template <class M>
DEVICE void wide_bits(const WideExtremeArgs& a) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    u64 low = (u64)a.values[2 * i], high = (u64)a.values[2 * i + 1];
    i32 id = a.ids[i];
    if (M::better(low, __ldcg(&a.low[id]))) M::improve(&a.low[id], low);
    if (M::better(high, __ldcg(&a.high[id]))) M::improve(&a.high[id], high);
}

KERNEL(wide_bit_and, WideExtremeArgs) { wide_bits<And>(a); }
KERNEL(wide_bit_or, WideExtremeArgs) { wide_bits<Or>(a); }
KERNEL(wide_bit_xor, WideExtremeArgs) { wide_bits<Xor>(a); }

// Strings: refs has, for each group, the row of the batch with the best string, or -1 for the string that the group had
// before, if any. A thread that finds a better string swaps the reference.
struct TextExtremeArgs {
    const i32* ids;
    Texts values;
    const u32* valid;
    Texts kept;         // strings before the batch
    const u8* seen;     // which groups had a string; null: all
    i32* refs;
    i32* changed;
    i32* lengths;       // lengths of the strings after the batch, then their offsets
    u8* bytes;
    i64 n;              // rows; groups while lengths and bytes are written
    i32 had;            // groups before the batch
    i32 max;
};

DEVICE bool has_kept(const TextExtremeArgs& a, i32 id) { return id < a.had && (!a.seen || a.seen[id]); }

KERNEL(text_extreme, TextExtremeArgs) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    i32 id = a.ids[i];
    Text mine = text(a.values, i);
    for (i32 ref = __ldcg(&a.refs[id]);;) {
        if (ref >= 0 || has_kept(a, id)) {
            Text best = ref >= 0 ? text(a.values, ref) : text(a.kept, id);
            if (a.max ? compare_texts(best, mine) >= 0 : compare_texts(mine, best) >= 0) return;
        }
        i32 old = atomicCAS(&a.refs[id], ref, (i32)i);
        if (old == ref) break;
        ref = old;
    }
    *a.changed = 1;
}

DEVICE Text best_text(const TextExtremeArgs& a, i32 id) {
    if (a.refs[id] >= 0) return text(a.values, a.refs[id]);
    if (has_kept(a, id)) return text(a.kept, id);
    return {nullptr, 0};
}

KERNEL(text_lengths, TextExtremeArgs) {
    i64 g = global_thread();
    if (g < a.n) a.lengths[g] = best_text(a, (i32)g).n;
}

KERNEL(text_bytes, TextExtremeArgs) {
    i64 g = global_thread();
    if (g >= a.n) return;
    Text t = best_text(a, (i32)g);
    u8* to = a.bytes + a.lengths[g];
    for (i32 k = 0; k < t.n; k++) to[k] = t.bytes[k];
}

// SeenArgs tells which groups have had a value that is not null.
struct SeenArgs {
    const i32* ids;
    const u32* valid;
    u8* seen;
    u32* bits;
    i64 n;
};

KERNEL(mark_seen, SeenArgs) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    u8* seen = &a.seen[a.ids[i]];
    if (!*seen) *seen = 1;
}

KERNEL(seen_bits, SeenArgs) {
    i64 g = global_thread();
    u32 word = __ballot_sync(ALL, g < a.n && a.seen[g]);
    if (lane_id() == 0 && g < (a.n + 63) / 64 * 64) a.bits[g >> 5] = word;
}
