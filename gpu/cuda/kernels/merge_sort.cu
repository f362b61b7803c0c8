// Merge sort by merge path (Rui & Tu, SSDBM 2017, §3.3.1), for any keys that can be compared. A thread sorts SORT_ITEMS
// rows in registers by odd-even exchanges. A block merges the rows of its threads in shared memory. Passes over all
// rows then merge pairs of runs. Diagonals cut the merge path into pieces of equal length, first for blocks and then
// for their threads. Among equal rows, those of the left run come first, so the sort is stable.
//
// Bytes: a pass reads and writes the row ids, and the keys if they are plain. Other keys are read by row, in random
// order, in every comparison. There is one pass for the blocks, and one for each doubling of 2,048 rows.
#include "order.cuh"

constexpr int SORT_THREADS = 256, SORT_ITEMS = 8, SORT_TILE = SORT_THREADS * SORT_ITEMS;

struct MergeSortArgs {
    const void* key; // plain keys, in the order of the rows
    const u32* rows;
    void* toKey;
    u32* toRows;
    const OrderKey* keys; // other keys: both sides are the rows
    u32* cuts;            // by tile: rows of the left run before the tile
    u64 flip;             // flips bits of a plain key, which makes it unsigned and ascending
    i64 n;
    i64 run;              // rows of a run
    i64 tiles;
    i32 count;            // number of keys
};

// The kinds of keys. A Row is what the sort moves.
template <class K>
struct PlainSort {
    struct Row {
        K key;
        u32 row;
    };
    struct Shared {
        K key[SORT_TILE];
        u32 row[SORT_TILE];
    };
    DEVICE bool less(const MergeSortArgs&, const Row& x, const Row& y) { return x.key < y.key; }
    DEVICE Row first(const MergeSortArgs& a, i64 i) { return {(K)(at<K>(a.key, i) ^ (K)a.flip), (u32)i}; }
    DEVICE Row load(const MergeSortArgs& a, i64 i) { return {at<K>(a.key, i), a.rows[i]}; }
    DEVICE void store(const MergeSortArgs& a, i64 i, const Row& r) {
        ((K*)a.toKey)[i] = r.key;
        a.toRows[i] = r.row;
    }
    DEVICE Row get(const Shared& s, u32 i) { return {s.key[i], s.row[i]}; }
    DEVICE void put(Shared& s, u32 i, const Row& r) {
        s.key[i] = r.key;
        s.row[i] = r.row;
    }
};

struct AnySort {
    typedef u32 Row;
    struct Shared {
        u32 row[SORT_TILE];
    };
    DEVICE bool less(const MergeSortArgs& a, Row x, Row y) { return compare_rows(a.keys, a.count, x, y) < 0; }
    DEVICE Row first(const MergeSortArgs&, i64 i) { return (u32)i; }
    DEVICE Row load(const MergeSortArgs& a, i64 i) { return a.rows[i]; }
    DEVICE void store(const MergeSortArgs& a, i64 i, Row r) { a.toRows[i] = r; }
    DEVICE Row get(const Shared& s, u32 i) { return s.row[i]; }
    DEVICE void put(Shared& s, u32 i, Row r) { s.row[i] = r; }
};

// left_of returns how many of the first d rows of a merge come from its left run. left and right return a row of a run.
template <class Sort, class Left, class Right>
DEVICE i64 left_of(const MergeSortArgs& a, i64 d, i64 lefts, i64 rights, Left left, Right right) {
    i64 low = max(d - rights, (i64)0), high = min(d, lefts);
    while (low < high) {
        const i64 mid = (low + high) / 2;
        if (Sort::less(a, right(d - 1 - mid), left(mid)))
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

// merge_shared merges the runs [from, middle) and [middle, to) in shared memory. This thread produces rows [d, d +
// SORT_ITEMS) of the result, or up to its end.
template <class Sort>
DEVICE void merge_shared(const MergeSortArgs& a, const typename Sort::Shared& s, u32 from, u32 middle, u32 to, u32 d, typename Sort::Row (&out)[SORT_ITEMS]) {
    const u32 n = to - from;
    if (d >= n) return;
    u32 x = from + (u32)left_of<Sort>(a, d, middle - from, to - middle, [&](i64 i) { return Sort::get(s, from + (u32)i); },
                                      [&](i64 i) { return Sort::get(s, middle + (u32)i); });
    u32 y = middle + d - (x - from);
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; i++) {
        if (d + i >= n) break;
        const bool left = y >= to || x < middle && !Sort::less(a, Sort::get(s, y), Sort::get(s, x));
        out[i] = Sort::get(s, left ? x : y);
        if (left)
            x++;
        else
            y++;
    }
}

// sort_blocks sorts tiles.
template <class Sort>
DEVICE void sort_blocks(const MergeSortArgs& a) {
    __shared__ typename Sort::Shared s;
    const i64 first = (i64)blockIdx.x * SORT_TILE;
    const u32 n = (u32)min((i64)SORT_TILE, a.n - first);
    for (u32 i = threadIdx.x; i < n; i += SORT_THREADS) Sort::put(s, i, Sort::first(a, first + i));
    __syncthreads();
    typename Sort::Row r[SORT_ITEMS];
    const u32 mine = threadIdx.x * SORT_ITEMS, rows = mine < n ? min(n - mine, (u32)SORT_ITEMS) : 0;
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; i++)
        if ((u32)i < rows) r[i] = Sort::get(s, mine + i);
#pragma unroll
    for (int pass = 0; pass < SORT_ITEMS; pass++) {
#pragma unroll
        for (int i = pass & 1; i + 1 < SORT_ITEMS; i += 2) {
            if ((u32)i + 1 < rows && Sort::less(a, r[i + 1], r[i])) {
                const typename Sort::Row greater = r[i];
                r[i] = r[i + 1];
                r[i + 1] = greater;
            }
        }
    }
    for (u32 run = SORT_ITEMS;; run *= 2) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; i++)
            if ((u32)i < rows) Sort::put(s, mine + i, r[i]);
        __syncthreads();
        if (run >= SORT_TILE) break;
        const u32 from = mine / (2 * run) * (2 * run), middle = min(from + run, n), to = min(from + 2 * run, n);
        if (from < n) merge_shared<Sort>(a, s, from, middle, to, mine - from, r);
    }
    for (u32 i = threadIdx.x; i < n; i += SORT_THREADS) Sort::store(a, first + i, Sort::get(s, i));
}

// sort_cut cuts the merges of pairs of runs into tiles. A tile lies within one merge, because the rows of a run are a
// multiple of the rows of a tile.
template <class Sort>
DEVICE void sort_cut(const MergeSortArgs& a) {
    const i64 tile = global_thread();
    if (tile >= a.tiles) return;
    const i64 at = tile * SORT_TILE, from = at / (2 * a.run) * (2 * a.run), middle = min(from + a.run, a.n), to = min(from + 2 * a.run, a.n);
    a.cuts[tile] = (u32)left_of<Sort>(a, at - from, middle - from, to - middle, [&](i64 i) { return Sort::load(a, from + i); },
                                      [&](i64 i) { return Sort::load(a, middle + i); });
}

// sort_merge merges pairs of runs.
template <class Sort>
DEVICE void sort_merge(const MergeSortArgs& a) {
    __shared__ typename Sort::Shared s;
    const i64 tile = blockIdx.x, at = tile * SORT_TILE, from = at / (2 * a.run) * (2 * a.run), middle = min(from + a.run, a.n), to = min(from + 2 * a.run, a.n);
    const i64 end = min(at + SORT_TILE, to);
    const u32 n = (u32)(end - at);
    const i64 x = a.cuts[tile], xEnd = end == to ? middle - from : a.cuts[tile + 1], y = at - from - x;
    const u32 lefts = (u32)(xEnd - x);
    for (u32 i = threadIdx.x; i < n; i += SORT_THREADS) Sort::put(s, i, Sort::load(a, i < lefts ? from + x + i : middle + y + (i - lefts)));
    __syncthreads();
    typename Sort::Row r[SORT_ITEMS];
    const u32 mine = threadIdx.x * SORT_ITEMS;
    merge_shared<Sort>(a, s, 0, lefts, n, mine, r);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; i++)
        if (mine + i < n) Sort::put(s, mine + i, r[i]);
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += SORT_THREADS) Sort::store(a, at + i, Sort::get(s, i));
}

#define MERGE_SORT(name, Sort)                                                                    \
    KERNEL_BOUNDS(merge_sort_blocks_##name, MergeSortArgs, SORT_THREADS, 1) { sort_blocks<Sort>(a); } \
    KERNEL(merge_sort_cut_##name, MergeSortArgs) { sort_cut<Sort>(a); }                               \
    KERNEL_BOUNDS(merge_sort_merge_##name, MergeSortArgs, SORT_THREADS, 1) { sort_merge<Sort>(a); }
MERGE_SORT(k4, PlainSort<u32>)
MERGE_SORT(k8, PlainSort<u64>)
MERGE_SORT(any, AnySort)
