// Compaction: the ids of the rows whose predicate is true and not null. Reads
// n/8 bytes of bitmap (twice, with validity) and writes 4 bytes a selected row.
#include "common.cuh"

struct SelectArgs {
    const u32* truth;
    const u32* valid; // null: no nulls
    i32* counts;      // of the tiles; their starts when ids are written
    i32* ids;
    i64 n;
};

// A tile is 256 threads × 4 words of 32 rows.
constexpr int SELECT_THREADS = 256, SELECT_WORDS = 4;

// selected is word w of the predicate, false past the end.
DEVICE u32 selected(const SelectArgs& a, i64 w) {
    i64 row = w * 32;
    if (row >= a.n) return 0;
    u32 x = a.truth[w];
    if (a.valid) x &= a.valid[w];
    if (a.n - row < 32) x &= (1u << (a.n - row)) - 1;
    return x;
}

// Word k of a lane: a warp's words are next to each other for each k.
DEVICE i64 select_word(int k) {
    return (i64)blockIdx.x * SELECT_THREADS * SELECT_WORDS + warp_id() * 32 * SELECT_WORDS + k * 32 + lane_id();
}

KERNEL_BOUNDS(select_count, SelectArgs, SELECT_THREADS, 1) {
    __shared__ i32 warps[33];
    i32 count = 0;
    for (int k = 0; k < SELECT_WORDS; k++) count += __popc(selected(a, select_word(k)));
    count = block_sum(count, warps);
    if (threadIdx.x == 0) a.counts[blockIdx.x] = count;
}

// A warp writes its ids in runs: each lane takes a row of each of its words, so
// that a word's ids leave in one store.
KERNEL_BOUNDS(select_write, SelectArgs, SELECT_THREADS, 1) {
    __shared__ i32 warps[33];
    u32 words[SELECT_WORDS];
    i32 count = 0, total;
    for (int k = 0; k < SELECT_WORDS; k++) {
        words[k] = selected(a, select_word(k));
        count += __popc(words[k]);
    }
    count = warp_sum(count);
    i32 at = a.counts[blockIdx.x] + block_exclusive(lane_id() == 0 ? count : 0, warps, total);
    at = __shfl_sync(ALL, at, 0);
    for (int k = 0; k < SELECT_WORDS; k++) {
        i32 mine = __popc(words[k]);
        i32 before = warp_inclusive(mine) - mine;
        i64 row = (select_word(k) - lane_id()) * 32 + lane_id();
        for (int l = 0; l < 32; l++) {
            u32 x = __shfl_sync(ALL, words[k], l);
            i32 start = at + __shfl_sync(ALL, before, l);
            if (x >> lane_id() & 1) a.ids[start + __popc(x & lanes_below())] = (i32)(row + l * 32);
        }
        at += __shfl_sync(ALL, before + mine, 31);
    }
}
