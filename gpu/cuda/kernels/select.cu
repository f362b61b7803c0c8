// Compaction: the ids of the rows whose predicate is true and not null, by
// reduce-then-scan. select_count counts what each warp's range of the bitmap
// selects, and select_rows, whose warps have the same ranges, writes the ids: n/8
// bytes of bitmap read twice (n/4 with validity), 4 bytes written a selected row.
// No warp waits for another.
//
// What bounds it beside the memory is the traffic of shared memory, through which
// ids come to lie side by side: see list_few and list_many.
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

// Ids leave by whole lines of 128 bytes, and the stage has room for a quarter of a
// group beside what does not fill a line.
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

KERNEL_BOUNDS(select_count, SelectArgs, SELECT_THREADS, 5) {
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
        write_lines();
        __syncwarp();
        if ((i32)lane_id() >= head && (i32)lane_id() < fill) out[lane_id()] = ids[lane_id()];
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

// SelectWords are the words of a dense group and the places of their first ids, the
// words of even number apart from the others.
struct alignas(16) SelectWords {
    u32 word[2][64];
    i32 place[2][64];

    // put writes this lane's words, 4 × lane_id() and on.
    __device__ __forceinline__ void put(uint4 x, i32 place0) {
        const i32 place1 = place0 + __popc(x.x), place2 = place1 + __popc(x.y), place3 = place2 + __popc(x.z);
        reinterpret_cast<uint2*>(word[0])[lane_id()] = make_uint2(x.x, x.z);
        reinterpret_cast<uint2*>(word[1])[lane_id()] = make_uint2(x.y, x.w);
        reinterpret_cast<int2*>(place[0])[lane_id()] = make_int2(place0, place2);
        reinterpret_cast<int2*>(place[1])[lane_id()] = make_int2(place1, place3);
    }
};

// list_two lists two rows, of bit `first` of a word and the next.
DEVICE void list_two(i32* ids, u32 word, u32 first, i32 row) {
    ids += __popc(word & (first - 1));
    if (word & first) *ids++ = row;
    if (word & first << 1) *ids = row + 1;
}

// list_many lists the rows of a dense group, two words at a time, each lane two rows:
// the places of all are so near each other that lanes hardly queue for a bank. (With
// more rows a lane they would, with one the words would be read twice as often.)
DEVICE void list_many(SelectStage& stage, SelectWords& words, uint4 x, i32 before, i32 total, i32 row) {
    const u32 half = lane_id() / 16, first = 1u << lane_id() % 16 * 2;
    const uint4* word = reinterpret_cast<const uint4*>(words.word[half]);
    const int4* place = reinterpret_cast<const int4*>(words.place[half]);
    words.put(x, before);
    __syncwarp();
    row += 2 * lane_id();
    for (int quarter = 0; quarter < 4; quarter++) {
        const i32 from = words.place[0][16 * quarter], to = quarter < 3 ? words.place[0][16 * quarter + 16] : total;
        if (from == to) continue;
        stage.room(to - from);
        i32* ids = stage.ids + stage.fill - from;
#pragma unroll
        for (int k = 4 * quarter; k < 4 * quarter + 4; k++) {
            const uint4 w = word[k];
            const int4 at = place[k];
            list_two(ids + at.x, w.x, first, row + 256 * k);
            list_two(ids + at.y, w.y, first, row + 256 * k + 64);
            list_two(ids + at.z, w.z, first, row + 256 * k + 128);
            list_two(ids + at.w, w.w, first, row + 256 * k + 192);
        }
        stage.fill += to - from;
    }
    __syncwarp();
}

KERNEL_BOUNDS(select_rows, SelectArgs, SELECT_THREADS, 5) {
    __shared__ __align__(16) i32 ids[SELECT_WARPS][SELECT_STAGE];
    __shared__ SelectWords words[SELECT_WARPS];
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
            list_many(stage, words[warp_id()], x, through - count, total, row);
        } else {
            stage.room(total);
            list_few(stage.ids + stage.fill + through - count, x, row + 128 * lane_id());
            stage.fill += total;
        }
    }
    stage.write_all();
}
