// Compaction: the ids of the rows whose predicate is true and not null, by
// reduce-then-scan. select_count counts what each warp's range of the bitmap
// selects, and select_rows, whose warps have the same ranges, writes the ids: n/8
// bytes of bitmap read twice (n/4 with validity), 4 bytes written a selected row.
// No warp waits for another.
//
// What bounds it beside the memory is the issue of instructions: see list_few and
// list_many.
#include "common.cuh"

struct SelectArgs {
    const u32* truth;
    const u32* valid; // null: no nulls
    i32* blocks;      // selected rows by block
    i32* warps;       // and by warp
    i32* ids;
    u32 n;
    u32 chunk;        // groups of rows a block
};

// A group is 4 words of the bitmap a lane.
constexpr u32 SELECT_GROUP = 32 * 128;
constexpr int SELECT_THREADS = 256, SELECT_WARPS = SELECT_THREADS / 32;

// Ids leave by whole lines of 128 bytes, and the stage has room for a sparse group
// beside what does not fill a line.
constexpr i32 SELECT_LINE = 32, SELECT_STAGE = SELECT_GROUP / 4 + SELECT_LINE;

// A group is dense if the rows of a lane give this many ids, a quarter.
constexpr i32 SELECT_MANY = 32;

// SelectRange is the groups of a warp.
struct SelectRange {
    u32 begin, end;

    __device__ __forceinline__ SelectRange(const SelectArgs& a) {
        const u32 first = blockIdx.x * a.chunk, groups = (a.n + SELECT_GROUP - 1) / SELECT_GROUP;
        begin = min(first + a.chunk * warp_id() / SELECT_WARPS, groups);
        end = min(first + a.chunk * (warp_id() + 1) / SELECT_WARPS, groups);
    }
};

// selected_word is the word of a row's bit, false past the end.
DEVICE u32 selected_word(const SelectArgs& a, u32 row) {
    if (row >= a.n) return 0;
    u32 x = a.truth[row / 32];
    if (a.valid) x &= a.valid[row / 32];
    return a.n - row < 32 ? x & ((1u << (a.n - row)) - 1) : x;
}

// lane_words is this lane's words of a group that the bitmap has whole.
DEVICE uint4 lane_words(const u32* bitmap, u32 group) { return reinterpret_cast<const uint4*>(bitmap)[group * 32 + lane_id()]; }

DEVICE uint4 both(uint4 x, uint4 y) { return make_uint4(x.x & y.x, x.y & y.y, x.z & y.z, x.w & y.w); }

// selected is this lane's words of a group.
DEVICE uint4 selected(const SelectArgs& a, u32 group) {
    const u32 row = group * SELECT_GROUP + lane_id() * 128;
    if (row + 128 > a.n)
        return make_uint4(selected_word(a, row), selected_word(a, row + 32), selected_word(a, row + 64), selected_word(a, row + 96));
    const uint4 x = lane_words(a.truth, group);
    return a.valid ? both(x, lane_words(a.valid, group)) : x;
}

DEVICE i32 bits_of(uint4 x) { return __popc(x.x) + __popc(x.y) + __popc(x.z) + __popc(x.w); }

KERNEL_BOUNDS(select_count, SelectArgs, SELECT_THREADS, 6) {
    __shared__ i32 shared[33];
    constexpr int AT_ONCE = 4;
    const SelectRange range(a);
    const u32 whole = min(range.end, a.n / SELECT_GROUP);
    i32 count = 0;
    u32 g = range.begin;
    for (; g + AT_ONCE <= whole; g += AT_ONCE) {
        uint4 x[AT_ONCE], valid[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) x[k] = lane_words(a.truth, g + k);
        if (a.valid) {
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) valid[k] = lane_words(a.valid, g + k);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) x[k] = both(x[k], valid[k]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) count += bits_of(x[k]);
    }
    for (; g < range.end; g++) count += bits_of(selected(a, g));
    count = warp_sum(count);
    if (lane_id() == 0) a.warps[blockIdx.x * SELECT_WARPS + warp_id()] = count;
    const i32 total = block_sum(lane_id() == 0 ? count : 0, shared);
    if (threadIdx.x == 0) a.blocks[blockIdx.x] = total;
}

// select_before is how many rows are selected before this warp's range.
DEVICE i64 select_before(const SelectArgs& a, i64* shared) {
    i64 before = 0;
    for (u32 b = threadIdx.x; b < blockIdx.x; b += SELECT_THREADS) before += a.blocks[b];
    before = block_sum(before, shared);
    return before + warp_sum(lane_id() < warp_id() ? a.warps[blockIdx.x * SELECT_WARPS + lane_id()] : 0);
}

// SelectStage holds ids of a warp until they fill lines. What lies before `head`
// in its first line is another warp's.
struct SelectStage {
    i32* ids;
    i32* out; // where the stage begins
    i32 fill, head;

    // room writes the whole lines if it takes that to have room for n more ids.
    __device__ __forceinline__ void room(i32 n) {
        if (fill + n <= SELECT_STAGE) return;
        write_lines();
    }

    __device__ __forceinline__ void write_lines() {
        const i32 lane = lane_id(), lines = fill / SELECT_LINE * SELECT_LINE, rest = fill - lines;
        __syncwarp();
        i32 i = lane * 4;
        if (head && lines) {
            if (lane >= head) out[lane] = ids[lane];
            i += SELECT_LINE, head = 0;
        }
#pragma unroll 2
        for (; i < lines; i += 128) *reinterpret_cast<int4*>(out + i) = *reinterpret_cast<const int4*>(ids + i);
        i32 kept = lane < rest ? ids[lines + lane] : 0;
        __syncwarp();
        if (lane < rest) ids[lane] = kept;
        out += lines, fill = rest;
    }

    __device__ __forceinline__ void write_all() {
        if (fill == head) return;
        write_lines();
        __syncwarp();
        if ((i32)lane_id() >= head && (i32)lane_id() < fill) out[lane_id()] = ids[lane_id()];
        __syncwarp();
    }

    // skip passes over n ids that were written past an empty stage.
    __device__ __forceinline__ void skip(i32 n) {
        fill += n;
        out += fill / SELECT_LINE * SELECT_LINE;
        head = fill %= SELECT_LINE;
    }
};

// list_few lists the rows of a sparse group: each lane those of its own words, in as
// many steps as the fullest lane has ids. Lanes may queue for a bank in each.
DEVICE void list_few(i32* ids, uint4 x, i32 row) {
    const u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        for (u32 w = words[k]; w; w &= w - 1) *ids++ = row + 32 * k + __ffs(w) - 1;
}

// SelectWords are the words of a dense group and the places of their first ids. They
// take the place of the stage, which is empty then.
struct alignas(16) SelectWords {
    u32 word[128];
    i32 place[128];
};

// list_many writes the rows of a dense group, a word at a time and each lane one row:
// a write that ends within a sector meets the next one in the L2 cache. No lane waits
// for what another writes, so that many words are under way.
DEVICE void list_many(SelectStage& stage, uint4 x, i32 before, i32 total, i32 row) {
    stage.write_all();
    SelectWords& words = *reinterpret_cast<SelectWords*>(stage.ids);
    i32* out = stage.out + stage.fill;
    const u32 bit = 1u << lane_id(), below = bit - 1;
    const i32 p1 = before + __popc(x.x), p2 = p1 + __popc(x.y), p3 = p2 + __popc(x.z);
    reinterpret_cast<uint4*>(words.word)[lane_id()] = x;
    reinterpret_cast<int4*>(words.place)[lane_id()] = make_int4(before, p1, p2, p3);
    __syncwarp();
    row += lane_id();
#pragma unroll 4
    for (int k = 0; k < 32; k++) {
        const uint4 w = reinterpret_cast<const uint4*>(words.word)[k];
        const int4 at = reinterpret_cast<const int4*>(words.place)[k];
        if (w.x & bit) out[at.x + __popc(w.x & below)] = row + 128 * k;
        if (w.y & bit) out[at.y + __popc(w.y & below)] = row + 128 * k + 32;
        if (w.z & bit) out[at.z + __popc(w.z & below)] = row + 128 * k + 64;
        if (w.w & bit) out[at.w + __popc(w.w & below)] = row + 128 * k + 96;
    }
    __syncwarp();
    stage.skip(total);
}

KERNEL_BOUNDS(select_rows, SelectArgs, SELECT_THREADS, 6) {
    __shared__ __align__(16) i32 ids[SELECT_WARPS][SELECT_STAGE];
    __shared__ i64 sums[33];
    const SelectRange range(a);
    const i64 before = select_before(a, sums);
    const i32 head = before % SELECT_LINE;
    SelectStage stage = {ids[warp_id()], a.ids + before - head, head, head};
    uint4 next = range.begin < range.end ? selected(a, range.begin) : make_uint4(0, 0, 0, 0);
    for (u32 g = range.begin; g < range.end; g++) {
        const uint4 x = next;
        if (g + 1 < range.end) next = selected(a, g + 1);
        const i32 count = bits_of(x), through = warp_inclusive(count), total = __shfl_sync(ALL, through, 31);
        const i32 row = (i32)(g * SELECT_GROUP);
        if (!total) continue;
        if (__any_sync(ALL, count >= SELECT_MANY)) {
            list_many(stage, x, through - count, total, row);
        } else {
            stage.room(total);
            list_few(stage.ids + stage.fill + through - count, x, row + 128 * lane_id());
            stage.fill += total;
        }
    }
    stage.write_all();
}
