// Scatter: ids are inverted, and the rows gathered by the inverse. Only the inverse is
// written in no order, at 4 bytes a row; a column then costs a sector read a row at
// worst, where a scatter of the column itself would read and write one, and bits and
// strings need no way of their own.
#include "common.cuh"

struct InvertArgs {
    const i32* ids;
    i32* inverse; // all -1
    i64 rows;     // ids
    i64 n;        // of the inverse
};

KERNEL(scatter_invert, InvertArgs) {
    i64 i = global_thread();
    if (i >= a.rows) return;
    i32 id = a.ids[i];
    if (id >= 0 && id < a.n) atomicMax(&a.inverse[id], (i32)i);
}
