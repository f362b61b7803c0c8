// Runs of rows with equal keys. A bitmap has a bit for every row that starts a run. The rows of these bits are the
// first rows of the runs. The run of a row is the number of bits up to it. Keys are read once, 4 bytes a row and 4 a
// run are written, and the bitmap is read three times.
#include "order.cuh"

struct HeadArgs {
    const void* data;     // of one plain key
    const OrderKey* keys; // of others
    u32* heads;           // n + 1 bits in whole 64-bit words
    i64 n;
    i32 count;            // keys
};

template <class K>
struct PlainRows {
    DEVICE bool equal(const HeadArgs& a, i64 i, i64 j) { return at<K>(a.data, i) == at<K>(a.data, j); }
};

struct AnyRows {
    DEVICE bool equal(const HeadArgs& a, i64 i, i64 j) { return compare_rows(a.keys, a.count, i, j) == 0; }
};

// run_heads sets the bit of the first row of every run, and the bit after the last row.
template <class Rows>
DEVICE void run_heads(const HeadArgs& a) {
    i64 i = global_thread();
    bool head = i == 0 || i == a.n || i < a.n && !Rows::equal(a, i - 1, i);
    u32 word = __ballot_sync(ALL, head);
    if (lane_id() == 0 && i <= (a.n | 63)) a.heads[i >> 5] = word;
}

KERNEL(run_heads_k4, HeadArgs) { run_heads<PlainRows<u32>>(a); }
KERNEL(run_heads_k8, HeadArgs) { run_heads<PlainRows<u64>>(a); }
KERNEL(run_heads_any, HeadArgs) { run_heads<AnyRows>(a); }

struct RunArgs {
    const u32* heads;
    i32* counts; // by word of 32 rows, then how many before
    i32* ids;
    i64 n;       // words, or rows
};

KERNEL(run_counts, RunArgs) {
    i64 w = global_thread();
    if (w < a.n) a.counts[w] = __popc(a.heads[w]);
}

KERNEL(run_ids, RunArgs) {
    i64 i = global_thread();
    if (i < a.n) a.ids[i] = a.counts[i >> 5] + __popc(a.heads[i >> 5] & ((2u << (i & 31)) - 1)) - 1;
}
