// Scatter inverts the ids and gathers the rows by the inverse. Only the inverse is written in random order, at 4 bytes
// a row. A column then costs at most one sector read a row. A scatter of the column itself would read and write a
// sector a row. Bits and strings need no kernels of their own.
//
// This file also has match bitmaps, and the rows that have no match among pairs.
#include "common.cuh"

struct InvertArgs {
    const i32* ids;
    i32* inverse; // all -1 at first
    i64 rows;     // ids
    i64 n;        // rows of the inverse
};

KERNEL(scatter_invert, InvertArgs) {
    i64 i = global_thread();
    if (i >= a.rows) return;
    i32 id = a.ids[i];
    if (id >= 0 && id < a.n) atomicMax(&a.inverse[id], (i32)i);
}

// A match bitmap has a bit for each id. A bit that is set already costs no atomic access.
struct MarkArgs {
    const i32* ids;
    u32* marks;
    i64 n; // ids
};

KERNEL(mark_rows, MarkArgs) {
    i64 i = global_thread();
    if (i >= a.n) return;
    u32 id = (u32)a.ids[i], bit = 1u << id % 32;
    if (!(a.marks[id / 32] & bit)) atomicOr(&a.marks[id / 32], bit);
}

// Rows without a match are inserted among the pairs. Both lists ascend. So the output position of a row is its position
// in its own list plus the number of rows of the other list that precede it.
struct UnmatchedArgs {
    const i32* probe; // of the pairs
    const i32* build;
    const i32* rest;
    i32* to_probe;
    i32* to_build;
    i64 pairs, rests;
};

// rows_before counts the rows of an ascending list that are less than a given row.
DEVICE i64 rows_before(const i32* list, i64 n, i32 row) {
    i64 low = 0, high = n;
    while (low < high) {
        i64 mid = (low + high) / 2;
        if (list[mid] < row)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

KERNEL(add_unmatched, UnmatchedArgs) {
    i64 i = global_thread();
    if (i >= a.pairs + a.rests) return;
    i64 k = i - a.pairs;
    bool pair = k < 0;
    i32 row = pair ? a.probe[i] : a.rest[k];
    i64 to = pair ? i + rows_before(a.rest, a.rests, row) : k + rows_before(a.probe, a.pairs, row);
    a.to_probe[to] = row;
    a.to_build[to] = pair ? a.build[i] : -1;
}
