// Compaction returns the ids of the rows whose predicate is true and not null, or of the other rows, by
// reduce-then-scan. select_count counts the selected rows of each tile of the bitmap. Each block of select_rows adds up
// the counts of the tiles before its own and writes the ids. The bitmap's n/8 bytes are read twice (n/4 with validity),
// and 4 bytes are written for each selected row. No block waits for another.
#include "common.cuh"

struct SelectArgs {
    const u32* truth;
    const u32* valid; // null: no nulls
    i32* counts;      // selected rows by tile
    i32* ids;
    u32 n, tiles;
    u32 flip; // all ones selects the other rows
};

// A group has 4 words of the bitmap for each lane. A tile has a group for each warp.
constexpr u32 SELECT_GROUP = 32 * 128;
constexpr int SELECT_THREADS = 256, SELECT_WARPS = SELECT_THREADS / 32;

// Ids are written in whole lines of 128 bytes. The stage has room for a part of a group and for the ids that do not
// fill a line.
constexpr i32 SELECT_LINE = 32, SELECT_PARTS = 4, SELECT_PART = SELECT_GROUP / SELECT_PARTS;

// A group is dense if a lane selects at least this many of its rows, a quarter.
constexpr i32 SELECT_MANY = 32;

// selected_word returns the word with a row's bit, and 0 past the end.
DEVICE u32 selected_word(const SelectArgs& a, u32 row) {
    if (row >= a.n) return 0;
    u32 x = a.truth[row / 32];
    if (a.valid) x &= a.valid[row / 32];
    x ^= a.flip;
    return a.n - row < 32 ? x & ((1u << (a.n - row)) - 1) : x;
}

// lane_words returns this lane's words of a group that is completely within the bitmap.
DEVICE uint4 lane_words(const u32* bitmap, u32 group) { return reinterpret_cast<const uint4*>(bitmap)[group * 32 + lane_id()]; }

DEVICE uint4 both(uint4 x, uint4 y) { return make_uint4(x.x & y.x, x.y & y.y, x.z & y.z, x.w & y.w); }

DEVICE uint4 flipped(uint4 x, u32 flip) { return make_uint4(x.x ^ flip, x.y ^ flip, x.z ^ flip, x.w ^ flip); }

// selected returns this lane's words of a group.
DEVICE uint4 selected(const SelectArgs& a, u32 group) {
    const u32 row = group * SELECT_GROUP + lane_id() * 128;
    if (row + 128 > a.n)
        return make_uint4(selected_word(a, row), selected_word(a, row + 32), selected_word(a, row + 64), selected_word(a, row + 96));
    const uint4 x = lane_words(a.truth, group);
    return flipped(a.valid ? both(x, lane_words(a.valid, group)) : x, a.flip);
}

DEVICE i32 bits_of(uint4 x) { return __popc(x.x) + __popc(x.y) + __popc(x.z) + __popc(x.w); }

// select_count: a warp a tile.
KERNEL(select_count, SelectArgs) {
    const u32 tile = blockIdx.x * SELECT_WARPS + warp_id();
    if (tile >= a.tiles) return;
    const u32 first = tile * SELECT_WARPS;
    i32 count = 0;
    if ((tile + 1) * SELECT_WARPS <= a.n / SELECT_GROUP) {
        uint4 x[SELECT_WARPS];
#pragma unroll
        for (int k = 0; k < SELECT_WARPS; k++) x[k] = lane_words(a.truth, first + k);
        if (a.valid) {
#pragma unroll
            for (int k = 0; k < SELECT_WARPS; k++) x[k] = both(x[k], lane_words(a.valid, first + k));
        }
#pragma unroll
        for (int k = 0; k < SELECT_WARPS; k++) count += bits_of(flipped(x[k], a.flip));
    } else {
        for (int k = 0; k < SELECT_WARPS; k++) count += bits_of(selected(a, first + k));
    }
    count = warp_sum(count);
    if (lane_id() == 0) a.counts[tile] = count;
}

// SelectStage holds the ids of a warp until they fill lines. The ids before `head` in its first line belong to another
// warp.
struct SelectStage {
    i32* ids;
    i32* out; // where the stage begins
    i32 fill, head;

    // room makes room for n more ids. It writes the whole lines if the room does not suffice.
    __device__ __forceinline__ void room(i32 n) {
        if (fill + n <= SELECT_PART + SELECT_LINE) return;
        write_lines();
    }

    __device__ __forceinline__ void write_lines() {
        const i32 lane = lane_id(), lines = fill / SELECT_LINE * SELECT_LINE, rest = fill - lines;
        __syncwarp();
        i32 i = lane * 4;
        if (head && lines) {
            if (lane >= head) __stcs(out + lane, ids[lane]);
            i += SELECT_LINE, head = 0;
        }
#pragma unroll 2
        for (; i < lines; i += 128) __stcs(reinterpret_cast<int4*>(out + i), *reinterpret_cast<const int4*>(ids + i));
        i32 kept = lane < rest ? ids[lines + lane] : 0;
        __syncwarp();
        if (lane < rest) ids[lane] = kept;
        out += lines, fill = rest;
    }

    __device__ __forceinline__ void write_all() {
        write_lines();
        __syncwarp();
        if ((i32)lane_id() >= head && (i32)lane_id() < fill) __stcs(out + lane_id(), ids[lane_id()]);
    }
};

// list_few lists the rows of a sparse group. Each lane lists those of its own words, in as many steps as the fullest
// lane has ids. Lanes may collide in a bank in each step.
DEVICE void list_few(i32* ids, uint4 x, i32 row) {
    const u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        for (u32 w = words[k]; w; w &= w - 1) *ids++ = row + 32 * k + __ffs(w) - 1;
}

// A dense group is listed four words at a time. Each lane lists four rows and counts the bits below them once.
constexpr u32 SELECT_LANE = 4, SELECT_ROW = 32 + 4; // padded, for the banks

// SelectWords holds the words of a dense group and the positions of their first ids: the first word of each four, then
// the second ones and so on.
struct alignas(16) SelectWords {
    u32 word[SELECT_LANE * SELECT_ROW];
    i32 place[SELECT_LANE * SELECT_ROW];
};

// list_many lists the rows of a dense group.
DEVICE void list_many(SelectStage& stage, SelectWords& words, uint4 x, i32 before, i32 total, i32 row) {
    const u32 lane = lane_id();
    const i32 p1 = before + __popc(x.x), p2 = p1 + __popc(x.y), p3 = p2 + __popc(x.z);
    words.word[lane] = x.x, words.word[SELECT_ROW + lane] = x.y, words.word[2 * SELECT_ROW + lane] = x.z, words.word[3 * SELECT_ROW + lane] = x.w;
    words.place[lane] = before, words.place[SELECT_ROW + lane] = p1, words.place[2 * SELECT_ROW + lane] = p2, words.place[3 * SELECT_ROW + lane] = p3;
    __syncwarp();
    const u32 bit = 1u << SELECT_LANE * lane % 32, below = bit - 1, mine = SELECT_LANE * lane / 32 * SELECT_ROW;
    const uint4* word = reinterpret_cast<const uint4*>(words.word + mine);
    const int4* place = reinterpret_cast<const int4*>(words.place + mine);
    row += SELECT_LANE * lane;
    i32 from = 0;
    for (int part = 0; part < SELECT_PARTS; part++) {
        constexpr int STEPS = 32 / SELECT_PARTS; // of four words
        const i32 to = part + 1 < SELECT_PARTS ? words.place[STEPS * (part + 1)] : total;
        stage.room(to - from);
        i32* ids = stage.ids + stage.fill - from;
#pragma unroll
        for (int k = 0; k < STEPS; k += 4) {
            const int step = STEPS * part + k;
            const uint4 w = word[step / 4];
            const int4 p = place[step / 4];
            const u32 four[4] = {w.x, w.y, w.z, w.w};
            const i32 at[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                i32* id = ids + at[j] + __popc(four[j] & below);
#pragma unroll
                for (u32 r = 0; r < SELECT_LANE; r++)
                    if (four[j] & bit << r) *id++ = row + 128 * (step + j) + r;
            }
        }
        stage.fill += to - from;
        from = to;
    }
    __syncwarp();
}

KERNEL_BOUNDS(select_rows, SelectArgs, SELECT_THREADS, 4) {
    __shared__ __align__(16) i32 ids[SELECT_WARPS][SELECT_PART + SELECT_LINE];
    __shared__ SelectWords words[SELECT_WARPS];
    __shared__ i32 sums[2][2][SELECT_WARPS]; // of the skipped tiles, and of this one
    const u32 warp = warp_id();
    u32 tile = blockIdx.x, from = 0, even = 0;
    i64 before = 0; // selected before this tile
    uint4 next = selected(a, tile * SELECT_WARPS + warp);
    for (; tile < a.tiles; from = tile, tile += gridDim.x, even ^= 1) {
        const uint4 x = next;
        if (tile + gridDim.x < a.tiles) next = selected(a, (tile + gridDim.x) * SELECT_WARPS + warp);
        const i32 count = bits_of(x), through = warp_inclusive(count), total = __shfl_sync(ALL, through, 31);
        i32 passed = 0;
        for (u32 t = from + threadIdx.x; t < tile; t += SELECT_THREADS) passed += a.counts[t];
        passed = warp_sum(passed);
        if (lane_id() == 0) sums[even][0][warp] = passed, sums[even][1][warp] = total;
        __syncthreads();
        i64 at = 0;
#pragma unroll
        for (u32 w = 0; w < SELECT_WARPS; w++) {
            before += sums[even][0][w];
            at += w < warp ? sums[even][1][w] : 0;
        }
        at += before;
        if (!total) continue;
        const i32 row = (i32)((tile * SELECT_WARPS + warp) * SELECT_GROUP), head = at % SELECT_LINE;
        SelectStage stage = {ids[warp], a.ids + at - head, head, head};
        if (total > SELECT_PART || __any_sync(ALL, count >= SELECT_MANY)) {
            list_many(stage, words[warp], x, through - count, total, row);
        } else {
            list_few(stage.ids + stage.fill + through - count, x, row + 128 * lane_id());
            stage.fill += total;
        }
        stage.write_all();
    }
}
