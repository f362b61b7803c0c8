// The match finding of a sort-merge join by merge path (Rui & Tu, SSDBM 2017, §3.3.2).
// A merge of the build side's runs with the probe rows, probe rows first among equals, is a
// path. Diagonals cut it into splits of equal length, first for blocks, then for their threads.
// Each thread walks its split. When the path meets a probe row, the current run is the first
// that is not less than the row. It is the row's run if it is equal. A run has the lower and the
// upper bound of its matches, so one walk finds both. The probes of table.cu count and write the
// pairs.
//
// Bytes: a key for each run and each row, 4 for the row's run.
#include "order.cuh"

constexpr int MERGE_THREADS = 256, MERGE_ITEMS = 8, MERGE_TILE = MERGE_THREADS * MERGE_ITEMS;

struct MergeArgs {
    const void* build;    // one plain key
    const void* probe;
    const OrderKey* keys; // other keys: the build side is the left one
    const i32* starts;    // the first rows of the build side's runs; null: each row is one
    i32* cuts;            // by tile, and for the end: runs before its diagonal
    i32* numbers;         // of the probe rows: the run with an equal key, or -1
    u64 flip;             // bits of a plain key to invert, so that it is unsigned and ascending
    i64 runs, rows;
    i64 tiles;
    i32 count;            // keys
};

DEVICE i64 run_row(const MergeArgs& a, i64 run) { return a.starts ? a.starts[run] : run; }

// The kinds of keys: how a run compares with a probe row, and whether a row may match.
template <class K>
struct PlainOrder {
    DEVICE i32 compare(const MergeArgs& a, i64 run, i64 row) {
        return compare_values(at<K>(a.build, run_row(a, run)) ^ (K)a.flip, at<K>(a.probe, row) ^ (K)a.flip);
    }
    DEVICE bool matches(const MergeArgs&, i64) { return true; }
};

struct AnyOrder {
    DEVICE i32 compare(const MergeArgs& a, i64 run, i64 row) { return compare_rows(a.keys, a.count, run_row(a, run), row); }
    DEVICE bool matches(const MergeArgs& a, i64 row) {
        for (i32 k = 0; k < a.count; k++)
            if (!a.keys[k].null_safe && !bit(a.keys[k].right.valid, row)) return false;
        return true;
    }
};

// path_at finds where the path crosses a diagonal. It returns the number of runs before that point, at least low and at
// most high.
template <class Order>
DEVICE i64 path_at(const MergeArgs& a, i64 diagonal, i64 low, i64 high) {
    while (low < high) {
        i64 mid = (low + high) / 2;
        if (Order::compare(a, mid, diagonal - 1 - mid) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

template <class Order>
DEVICE void merge_cut(const MergeArgs& a) {
    i64 tile = global_thread();
    if (tile > a.tiles) return;
    i64 d = min(tile * MERGE_TILE, a.runs + a.rows);
    a.cuts[tile] = (i32)path_at<Order>(a, d, max(d - a.rows, (i64)0), min(d, a.runs));
}

template <class Order>
DEVICE void merge_find(const MergeArgs& a) {
    __shared__ i32 numbers[MERGE_TILE]; // of the tile's probe rows
    i64 tile = blockIdx.x, from = tile * MERGE_TILE, to = min(from + MERGE_TILE, a.runs + a.rows);
    i64 low = a.cuts[tile], high = a.cuts[tile + 1], first = from - low, last = to - high;
    i64 d = min(from + threadIdx.x * MERGE_ITEMS, to);
    i64 run = path_at<Order>(a, d, max(low, d - last), min(high, d - first)), row = d - run;
    for (i64 end = min(d + MERGE_ITEMS, to); d < end && row < last; d++) {
        i32 c = run < a.runs ? Order::compare(a, run, row) : 1;
        if (c < 0) {
            run++;
        } else {
            numbers[row - first] = c == 0 && Order::matches(a, row) ? (i32)run : -1;
            row++;
        }
    }
    __syncthreads();
    for (i64 r = first + threadIdx.x; r < last; r += MERGE_THREADS) a.numbers[r] = numbers[r - first];
}

#define MERGE(name, Order)                                                                   \
    KERNEL(merge_cut_##name, MergeArgs) { merge_cut<Order>(a); }                             \
    KERNEL_BOUNDS(merge_find_##name, MergeArgs, MERGE_THREADS, 1) { merge_find<Order>(a); }
MERGE(k4, PlainOrder<u32>)
MERGE(k8, PlainOrder<u64>)
MERGE(any, AnyOrder)

// The match finding of range joins: two binary searches find the run of the build side between the bounds of a row.
// Each row has its own number for its run. The probes of table.cu count and write the pairs.
//
// Bytes: the bounds of a row, 12 for its run, and random reads of the build side.
enum Bounded : i32 { RANGE_OPEN, RANGE_CLOSED, RANGE_STRICT };

struct BoundArgs {
    const OrderKey* keys; // of the lower and the upper bound: the build side is the left one
    i32* starts;          // start and end of the run of each row
    i32* numbers;         // of the rows: twice the row, or -1 without a match
    i64 builds, rows;
    i32 lower, upper;     // a Bounded
};

// range_at returns the first build row from low on that follows the bound of a row: it is above the bound, or equal to
// it unless equal rows precede the bound.
DEVICE i64 range_at(const OrderKey& k, i64 low, i64 high, i64 row, bool equals) {
    while (low < high) {
        i64 mid = (low + high) / 2;
        i32 c = compare_key(k, mid, row);
        if (c < 0 || (c == 0 && equals))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

KERNEL(range_find, BoundArgs) {
    i64 row = global_thread();
    if (row >= a.rows) return;
    const OrderKey &lower = a.keys[0], &upper = a.keys[1];
    i64 begin = 0, end = 0;
    if ((a.lower == RANGE_OPEN || bit(lower.right.valid, row)) && (a.upper == RANGE_OPEN || bit(upper.right.valid, row))) {
        if (a.lower != RANGE_OPEN) begin = range_at(lower, 0, a.builds, row, a.lower == RANGE_STRICT);
        if (a.upper != RANGE_OPEN) {
            end = range_at(upper, begin, a.builds, row, a.upper == RANGE_CLOSED);
        } else {
            i64 high = a.builds; // rows before the nulls
            for (end = lower.left.valid ? begin : high; end < high;) {
                i64 mid = (end + high) / 2;
                if (bit(lower.left.valid, mid))
                    end = mid + 1;
                else
                    high = mid;
            }
        }
    }
    a.starts[2 * row] = (i32)begin;
    a.starts[2 * row + 1] = (i32)end;
    a.numbers[row] = begin < end ? (i32)(2 * row) : -1;
}
