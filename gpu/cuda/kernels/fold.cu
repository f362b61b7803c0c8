// Folds of ranges of rows, extreme rows of ranges, and searches in ranges. Level 0 of a tree contains the folds of FAN
// rows each, the next level the folds of FAN of these, and so on (segment trees: Leis et al., Efficient Processing of
// Window Functions, VLDB 2015, §4.5). One kernel computes a level from the level below. Another kernel has one thread
// for each range, which climbs the tree from both ends of the range.
//
// Bytes: the values once for the first level, and a state for every FAN of them. A range reads its bounds and at most 2
// (FAN - 1) values or states of each level. Neighbouring ranges mostly read the same ones.
#include "order.cuh"

constexpr int FAN = 16, LEVELS = 8; // FAN^LEVELS exceeds the number of rows that ids address

struct TreeArgs {
    const void* values;
    const u32* valid;
    const OrderKey* key; // of extremes: the key on both sides
    void* levels[LEVELS];
    const i32 *from, *to;
    void* out;
    u32* out_valid;      // whole 64-bit words
    u32* failed;         // of sums: the first range beyond 128 bits, the first whose sum does not fit its type
    i64 rows, ranges;
    i64 limit_low, limit_high; // of sums: the largest value, in 128 bits
    i32 count;           // number of levels
    i32 level;           // the level to compute
    i32 load;
    i32 last;            // of extremes: take the last of equal rows
};

// States of folds. n is the number of values that are not null.
struct Sum192 {
    u64 low, middle;
    i64 top, n;
};

struct Twofold {
    double high, low;
    i64 n;
};

struct Factor {
    double v;
    i64 n;
};

struct Bits {
    u64 low, high;
    i64 n;
};

DEVICE i128 wide_value(const TreeArgs& a, i64 row) {
    if (a.load == LOAD_WIDE) return at<i128>(a.values, row);
    u64 w = load_word(a.values, a.load, row);
    return a.load == LOAD_U64 ? (i128)(u128)w : (i128)(i64)w;
}

struct SumFold {
    typedef Sum192 State;
    DEVICE State zero() { return {0, 0, 0, 0}; }
    DEVICE void merge(const TreeArgs&, State& s, const State& t) {
        u128 low = (u128)s.low + t.low, middle = (u128)s.middle + t.middle + (u64)(low >> 64);
        s.low = (u64)low;
        s.middle = (u64)middle;
        s.top += t.top + (i64)(u64)(middle >> 64);
        s.n += t.n;
    }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) {
        if (!bit(a.valid, row)) return;
        i128 v = wide_value(a, row);
        merge(a, s, {(u64)v, (u64)(v >> 64), (i64)(v >> 127), 1});
    }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        i128 v = (i128)((u128)s.middle << 64 | s.low), limit = (i128)((u128)(u64)a.limit_high << 64 | (u64)a.limit_low);
        static_cast<i128*>(a.out)[i] = v;
        if (s.top != (i64)(v >> 127))
            atomicMin(a.failed, (u32)i);
        else if (v > limit || (v < -limit && a.limit_high != 0x7fffffffffffffffll))
            atomicMin(a.failed + 1, (u32)i);
        return s.n > 0;
    }
};

struct DoubleFold {
    typedef Twofold State;
    DEVICE State zero() { return {0, 0, 0}; }
    // two_sum is Knuth's algorithm: high + low is the sum to about 106 bits.
    DEVICE void two_sum(State& s, double v) {
        double sum = s.high + v, b = sum - s.high;
        s.low += (s.high - (sum - b)) + (v - b);
        s.high = sum;
    }
    DEVICE void merge(const TreeArgs&, State& s, const State& t) {
        two_sum(s, t.high);
        s.low += t.low;
        s.n += t.n;
    }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) {
        if (!bit(a.valid, row)) return;
        two_sum(s, a.load == LOAD_F32 ? (double)at<float>(a.values, row) : at<double>(a.values, row));
        s.n++;
    }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        double v = s.high + s.low;
        static_cast<double*>(a.out)[i] = v == v ? v : s.high; // an infinite sum has NaN as its error
        return s.n > 0;
    }
};

struct ProductFold {
    typedef Factor State;
    DEVICE State zero() { return {1, 0}; }
    DEVICE void merge(const TreeArgs&, State& s, const State& t) {
        s.v *= t.v;
        s.n += t.n;
    }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) {
        if (!bit(a.valid, row)) return;
        s.v *= at<double>(a.values, row);
        s.n++;
    }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        static_cast<double*>(a.out)[i] = s.v;
        return s.n > 0;
    }
};

struct CountFold {
    typedef i64 State;
    DEVICE State zero() { return 0; }
    DEVICE void merge(const TreeArgs&, State& s, const State& t) { s += t; }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) { s += bit(a.valid, row); }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        static_cast<i64*>(a.out)[i] = s;
        return true;
    }
};

struct And {
    DEVICE u64 none() { return ~0ull; }
    DEVICE u64 apply(u64 x, u64 y) { return x & y; }
};
struct Or {
    DEVICE u64 none() { return 0; }
    DEVICE u64 apply(u64 x, u64 y) { return x | y; }
};
struct Xor {
    DEVICE u64 none() { return 0; }
    DEVICE u64 apply(u64 x, u64 y) { return x ^ y; }
};

template <class Op>
struct BitFold {
    typedef Bits State;
    DEVICE State zero() { return {Op::none(), Op::none(), 0}; }
    DEVICE void merge(const TreeArgs&, State& s, const State& t) {
        s.low = Op::apply(s.low, t.low);
        s.high = Op::apply(s.high, t.high);
        s.n += t.n;
    }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) {
        if (!bit(a.valid, row)) return;
        i128 v = wide_value(a, row);
        merge(a, s, {(u64)v, (u64)(v >> 64), 1});
    }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        switch (a.load) {
        case LOAD_I8:
        case LOAD_U8: static_cast<u8*>(a.out)[i] = (u8)s.low; break;
        case LOAD_I16:
        case LOAD_U16: static_cast<u16*>(a.out)[i] = (u16)s.low; break;
        case LOAD_I32:
        case LOAD_U32: static_cast<u32*>(a.out)[i] = (u32)s.low; break;
        case LOAD_WIDE: static_cast<i128*>(a.out)[i] = (i128)((u128)s.high << 64 | s.low); break;
        default: static_cast<u64*>(a.out)[i] = s.low;
        }
        return s.n > 0;
    }
};

// ExtremeFold keeps 1 + the row that is first by the key, or 0 without a row.
struct ExtremeFold {
    typedef u32 State;
    DEVICE State zero() { return 0; }
    DEVICE void merge(const TreeArgs& a, State& s, const State& t) {
        if (t != 0 && (s == 0 || compare_key(a.key[0], (i64)t - 1, (i64)s - 1) < (a.last != 0))) s = t;
    }
    DEVICE void add(const TreeArgs& a, State& s, i64 row) {
        if (bit(a.valid, row)) merge(a, s, (u32)row + 1);
    }
    DEVICE bool write(const TreeArgs& a, i64 i, const State& s) {
        static_cast<i32*>(a.out)[i] = (i32)s - 1;
        return true;
    }
};

// add_nodes adds nodes [low, high) of a level to s. Level 0 means the rows.
template <class Fold>
DEVICE void add_nodes(const TreeArgs& a, typename Fold::State& s, i32 level, i64 low, i64 high) {
    if (level == 0) {
        for (i64 r = low; r < high; r++) Fold::add(a, s, r);
        return;
    }
    const typename Fold::State* nodes = static_cast<const typename Fold::State*>(a.levels[level - 1]);
    for (i64 r = low; r < high; r++) Fold::merge(a, s, nodes[r]);
}

template <class Fold>
DEVICE void fold_level(const TreeArgs& a) {
    i64 node = global_thread(), below = a.rows;
    for (i32 k = 0; k < a.level; k++) below = (below + FAN - 1) / FAN;
    if (node * FAN >= below) return;
    typename Fold::State s = Fold::zero();
    add_nodes<Fold>(a, s, a.level, node * FAN, min(node * FAN + FAN, below));
    static_cast<typename Fold::State*>(a.levels[a.level])[node] = s;
}

template <class Fold>
DEVICE void fold_ranges(const TreeArgs& a) {
    i64 i = global_thread();
    bool valid = false;
    if (i < a.ranges) {
        typename Fold::State s = Fold::zero();
        i64 low = a.from[i], high = a.to[i], ends[LEVELS]; // ends of the nodes that follow those of the level above
        i32 level = 0;
        // Up along the front, then down along the back, so that nodes are added in order.
        for (; low < high; level++) {
            i64 up = (low + FAN - 1) / FAN, down = high / FAN;
            if (level == a.count || up >= down) break;
            add_nodes<Fold>(a, s, level, low, up * FAN);
            ends[level] = high;
            low = up;
            high = down;
        }
        add_nodes<Fold>(a, s, level, low, high);
        while (level-- > 0) {
            add_nodes<Fold>(a, s, level, high * FAN, ends[level]);
            high = ends[level];
        }
        valid = Fold::write(a, i, s);
    }
    u32 word = __ballot_sync(ALL, valid);
    if (a.out_valid && lane_id() == 0 && i < (a.ranges + 63) / 64 * 64) a.out_valid[i >> 5] = word;
}

#define FOLD(name, Fold)                                        \
    KERNEL(fold_level_##name, TreeArgs) { fold_level<Fold>(a); } \
    KERNEL(fold_ranges_##name, TreeArgs) { fold_ranges<Fold>(a); }
FOLD(sum, SumFold)
FOLD(double, DoubleFold)
FOLD(product, ProductFold)
FOLD(count, CountFold)
FOLD(bit_and, BitFold<And>)
FOLD(bit_or, BitFold<Or>)
FOLD(bit_xor, BitFold<Xor>)
FOLD(extreme, ExtremeFold)

struct SearchArgs {
    const OrderKey* key; // the key on the left, the bounds on the right
    const i32 *from, *to;
    i32* out;
    i64 n;
    i32 after;
};

KERNEL(search_ranges, SearchArgs) {
    i64 i = global_thread();
    if (i >= a.n) return;
    i64 low = a.from[i], high = a.to[i], end = high;
    if (low >= high) {
        a.out[i] = (i32)end;
        return;
    }
    while (low < high) {
        i64 mid = (low + high) / 2;
        if (compare_key(a.key[0], mid, i) < (a.after != 0))
            low = mid + 1;
        else
            high = mid;
    }
    a.out[i] = (i32)low;
}
