// Compaction: the ids of the rows whose predicate is true and not null, in one
// pass with decoupled look-back: n/8 bytes of bitmap are read (twice that with
// validity) and 4 bytes written a selected row. Without room for ids the same
// kernel counts.
#include "common.cuh"

struct SelectArgs {
    const u32* truth;
    const u32* valid; // null: no nulls
    u64* tiles;       // zero: a ticket counter, then the state of each tile
    i32* ids;         // null: count only
    i64* total;
    i64 n;
};

// A tile is 256 threads × 4 words of 32 rows.
constexpr int SELECT_THREADS = 256, SELECT_WORDS = 4;

// The state of a tile: nothing yet, its own count, or the count up to its end.
constexpr u64 SELECT_COUNT = 1ull << 62, SELECT_PREFIX = 2ull << 62, SELECT_VALUE = SELECT_COUNT - 1;

// selected is word w of the predicate, false past the end.
DEVICE u32 selected(const SelectArgs& a, i64 w) {
    i64 row = w * 32;
    if (row >= a.n) return 0;
    u32 x = a.truth[w];
    if (a.valid) x &= a.valid[w];
    if (a.n - row < 32) x &= (1u << (a.n - row)) - 1;
    return x;
}

// select_before is the count of all tiles before this one, in every lane of the
// warp that calls it. It reads the states of 32 tiles at a time, back to one whose
// prefix is known. Tickets make earlier tiles start earlier, so they are never
// waited for in vain.
DEVICE i64 select_before(const u64* states, i64 tile) {
    i64 sum = 0;
    for (i64 t = tile - 1; t >= 0; t -= 32) {
        i64 mine = t - lane_id();
        u64 s = SELECT_PREFIX;
        do {
            if (mine >= 0) s = *(const volatile u64*)(states + mine);
        } while (__any_sync(ALL, (s & ~SELECT_VALUE) == 0));
        u32 known = __ballot_sync(ALL, (s & SELECT_PREFIX) != 0);
        u32 first = known ? __ffs(known) - 1 : 31;
        sum += warp_sum(lane_id() <= first ? (i64)(s & SELECT_VALUE) : 0);
        if (known) break;
    }
    return sum;
}

KERNEL_BOUNDS(select_rows, SelectArgs, SELECT_THREADS, 4) {
    __shared__ i32 warps[33];
    __shared__ i32 stage[SELECT_THREADS / 32][1024];
    __shared__ i64 tile_shared, before_shared;
    if (threadIdx.x == 0) tile_shared = atomicAdd(a.tiles, 1ull);
    __syncthreads();
    i64 tile = tile_shared;
    // Word k of a lane: a warp's words are next to each other for each k.
    i64 word = tile * SELECT_THREADS * SELECT_WORDS + warp_id() * 32 * SELECT_WORDS + lane_id();
    u32 words[SELECT_WORDS];
    i32 count = 0, total;
    for (int k = 0; k < SELECT_WORDS; k++) {
        words[k] = selected(a, word + k * 32);
        count += __popc(words[k]);
    }
    count = warp_sum(count);
    i32 at = block_exclusive(lane_id() == 0 ? count : 0, warps, total);
    at = __shfl_sync(ALL, at, 0);
    u64* states = a.tiles + 1;
    if (warp_id() == 0) {
        if (lane_id() == 0 && tile > 0) atomicExch(states + tile, SELECT_COUNT | (u64)total);
        i64 before = select_before(states, tile);
        if (lane_id() == 0) {
            atomicExch(states + tile, SELECT_PREFIX | (u64)(before + total));
            before_shared = before;
            if (tile == gridDim.x - 1) *a.total = before + total;
        }
    }
    __syncthreads();
    if (!a.ids) return;
    // Each lane lists the rows of its word in shared memory, and the warp writes
    // them side by side.
    i32* out = a.ids + before_shared + at;
    i32* mine = stage[warp_id()];
    for (int k = 0; k < SELECT_WORDS; k++) {
        i32 n = __popc(words[k]);
        i32 end = warp_inclusive(n), j = end - n;
        i32 row = (i32)((word + k * 32) * 32);
        for (u32 x = words[k]; x; x &= x - 1) mine[j++] = row + __ffs(x) - 1;
        n = __shfl_sync(ALL, end, 31);
        __syncwarp();
        for (i32 i = lane_id(); i < n; i += 32) out[i] = mine[i];
        __syncwarp();
        out += n;
    }
}
