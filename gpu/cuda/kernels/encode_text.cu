// Encodes strings as PLAIN values, each after its length of four bytes, and decides which strings get a dictionary.
//
// Before pages are laid out, for all chunks of strings:
//
//   encode_lengths  a block a segment of rows: the bytes of the values before each row
//   encode_offsets  a block a chunk: the bytes before each segment
//   encode_cuts     a warp a chunk: pages of a number of bytes
//   encode_repeats  a block a chunk: do enough of the first values repeat for a dictionary?
//
// For chunks without a dictionary:
//
//   encode_texts    a block a page: bits of the levels, the least and the greatest string
//   encode_copy     a block a run of rows: the strings, to the body of their page
#include "encode.cuh"

constexpr i32 SEGMENT = 2048, TEXT_RUN = 2048;

struct Cut {
    i32 row;    // the first row of a page
    u32 bytes;  // of its values; ALL if they are more
};

struct TextChunk {
    const EncodePart* parts;
    u32* places;    // of each row: the bytes of the values before it in its segment
    u64* segments;  // of each segment, and of the end: the bytes before it
    u32* counts;    // of each segment: the values in it
    Cut* cuts;
    u64* keys;      // a hash table of the first values, at first EMPTY
    i32 part_count, rows;
    i32 segment_count;
    i32 page_rows, page_bytes;
    i32 capacity;   // of cuts; 0: they are counted
    i32 log_slots;  // of keys; negative: the chunk may not have a dictionary
    i32 unused;
};

struct TextState {
    u64 bytes;
    u32 values;
    u32 bad;      // a row has no string, or a segment more than 4 GiB
    u32 pages;
    u32 repeats;  // a dictionary may pay off
};

struct TextArgs {
    const TextChunk* chunks;
    TextState* states;
    const Piece* segments;  // of chunks
    u64 multiplier;
    i32 count;              // of chunks
    i32 unused;
};

// place_of returns the bytes of the values before a row of a chunk.
DEVICE u64 place_of(const u32* places, const u64* segments, i32 row) { return segments[row / SEGMENT] + places[row]; }

KERNEL_BOUNDS(encode_lengths, TextArgs, ENCODE_THREADS, 4) {
    __shared__ u64 warps[33];
    const Piece s = a.segments[blockIdx.x];
    const TextChunk& c = a.chunks[s.page];
    i32 first = s.index * SEGMENT, rows = min(SEGMENT, c.rows - first), k = part_of(c.parts, c.part_count, first);
    u64 sum = 0;
    u32 count = 0;
    bool lost = false;
    for (i32 base = 0; base < rows; base += ENCODE_THREADS) {
        i32 i = base + threadIdx.x;
        Text t;
        bool valid = i < rows && row_text(c.parts, c.part_count, k, first + i, t, lost);
        u64 total, before = block_exclusive(valid ? 4 + (u64)t.length : 0, warps, total);
        if (i < rows) c.places[first + i] = (u32)(sum + before);
        sum += total;
        count += __syncthreads_count(valid);
    }
    lost = __syncthreads_or(lost);
    if (threadIdx.x) return;
    c.segments[s.index] = sum;
    c.counts[s.index] = count;
    if (lost || sum > ALL) atomicOr(&a.states[s.page].bad, 1u);
}

KERNEL_BOUNDS(encode_offsets, TextArgs, ENCODE_THREADS, 4) {
    __shared__ u64 warps[33];
    const TextChunk& c = a.chunks[blockIdx.x];
    TextState& s = a.states[blockIdx.x];
    u64 sum = 0, values = 0;
    for (i32 base = 0; base < c.segment_count; base += ENCODE_THREADS) {
        i32 i = base + threadIdx.x;
        bool inside = i < c.segment_count;
        u64 total, before = block_exclusive(inside ? c.segments[i] : 0, warps, total);
        if (inside) c.segments[i] = sum + before;
        sum += total;
        values += block_sum(inside ? (u64)c.counts[i] : 0, warps);
    }
    if (threadIdx.x) return;
    c.segments[c.segment_count] = sum;
    s.bytes = sum;
    s.values = values;
}

// Cuts a chunk into pages. A page ends before a value that makes it larger than page_bytes, unless that is its first
// value, and after page_rows rows.
KERNEL_BOUNDS(encode_cuts, TextArgs, ENCODE_THREADS, 4) {
    i32 chunk = blockIdx.x * ENCODE_WARPS + warp_id(), lane = lane_id();
    if (chunk >= a.count) return;
    const TextChunk& c = a.chunks[chunk];
    auto place = [&](i32 row) {
        return row < c.rows ? place_of(c.places, c.segments, row) : c.segments[c.segment_count];
    };
    // last_within returns the last row of [lo, hi] before which there are at most some bytes, as there are before lo.
    auto last_within = [&](i32 lo, i32 hi, u64 most) {
        while (lo < hi) {
            i64 step = ((i64)hi - lo + 31) / 32;
            i32 probe = (i32)min(lo + step * (lane + 1), (i64)hi);
            i32 n = __popc(__ballot_sync(ALL, place(probe) <= most));
            if (n < 32) hi = (i32)min(lo + step * (n + 1), (i64)hi) - 1;
            lo = (i32)min(lo + step * n, (i64)hi);
        }
        return lo;
    };
    u32 pages = 0;
    for (i32 row = 0; row < c.rows; pages++) {
        i32 end = (i32)min((i64)row + c.page_rows, (i64)c.rows);
        u64 start = place(row);
        i32 to = last_within(row, end, start + c.page_bytes);
        if (to < end && place(to) == start) to = last_within(to, end, place(to + 1)); // the value `to` is large
        u64 bytes = place(to) - start;
        if (lane == 0 && pages < (u32)c.capacity) c.cuts[pages] = {row, (u32)min(bytes, (u64)ALL)};
        row = to;
    }
    if (lane == 0) a.states[chunk].pages = pages;
}

// add puts a key into a table, and reports whether it is new.
DEVICE bool add(u64* keys, i32 log_slots, u64 key) {
    u32 slots = 1u << log_slots, slot = (u32)(key * 0x9E3779B97F4A7C15ull >> (64 - log_slots));
    for (u32 tries = 0; tries < slots; tries++, slot = (slot + 1) & (slots - 1)) {
        u64 there = atomicCAS(&keys[slot], EMPTY, key);
        if (there == EMPTY) return true;
        if (there == key) return false;
    }
    return true;
}

KERNEL_BOUNDS(encode_repeats, TextArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    const TextChunk& c = a.chunks[blockIdx.x];
    TextState& s = a.states[blockIdx.x];
    if (c.log_slots < 0 || s.bad) return;
    u32 limit = s.values / 5, sample = (u32)sqrt(8.0 * FEW_REPEATS * limit), left = min(sample, s.values);
    u32 distinct = 0;
    bool full = limit == 0, lost = false;
    i32 k = 0;
    for (i32 base = 0; base < c.rows && left > 0 && !full; base += ENCODE_THREADS) {
        i32 row = base + threadIdx.x, total;
        Text t;
        bool valid = row < c.rows && row_text(c.parts, c.part_count, k, row, t, lost);
        u32 rank = block_exclusive((i32)valid, warps, total);
        bool added = valid && rank < left && add(c.keys, c.log_slots, string_hash(t, a.multiplier));
        distinct += block_sum((i32)added, warps);
        left -= min(left, (u32)total);
        full = distinct > limit || (sample >= FEW_REPEATS && distinct > sample - FEW_REPEATS);
    }
    if (threadIdx.x == 0) s.repeats = !full;
}

// Bound is a string, and its first eight bytes as a number that has their order.
struct Bound {
    u64 head;
    Text text;  // of length ALL: there is none
};

// before reports whether x comes before y, by the bytes that the host gets of them.
DEVICE bool before(const Bound& x, const Bound& y) {
    if (x.head != y.head) return x.head < y.head;
    u32 n = min(min(x.text.length, y.text.length), BOUND);
    for (u32 i = 8; i < n; i++)
        if (x.text.bytes[i] != y.text.bytes[i]) return x.text.bytes[i] < y.text.bytes[i];
    return x.text.length < y.text.length;
}

KERNEL_BOUNDS(encode_texts, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    __shared__ Bound least[ENCODE_THREADS], most[ENCODE_THREADS];
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (c.form != ENCODE_TEXTS) return;
    auto widen = [](Bound& lo, Bound& hi, const Bound& b) {
        if (b.text.length == ALL) return;
        if (lo.text.length == ALL || before(b, lo)) lo = b;
        if (hi.text.length == ALL || before(hi, b)) hi = b;
    };
    const Bound none = {0, {nullptr, ALL}};
    Bound lo = none, hi = none;
    i32 k = p.part, count = 0;
    bool lost = false;
    for (i32 base = 0; base < p.rows; base += ENCODE_THREADS) {
        i32 i = base + threadIdx.x;
        Bound b = none;
        bool valid = i < p.rows && row_text(c.parts, c.part_count, k, p.row + i, b.text, lost);
        u32 word = __ballot_sync(ALL, valid);
        if (c.nullable && lane_id() == 0 && i < p.rows) p.bits[i >> 5] = word;
        count += valid;
        if (!valid) continue;
        b.head = reversed(load64(b.text.bytes, b.text.length));
        widen(lo, hi, b);
    }
    count = block_sum(count, warps);
    lost = __syncthreads_or(lost);
    least[threadIdx.x] = lo;
    most[threadIdx.x] = hi;
    for (u32 d = ENCODE_THREADS / 2; d; d /= 2) {
        __syncthreads();
        if (threadIdx.x >= d) continue;
        widen(lo, hi, least[threadIdx.x + d]);
        widen(lo, hi, most[threadIdx.x + d]);
        least[threadIdx.x] = lo;
        most[threadIdx.x] = hi;
    }
    __syncthreads();
    for (u32 side = 0; side < 2; side++) {
        Text t = side ? most[0].text : least[0].text;
        if (t.length == ALL) break;
        u8* to = p.bounds + side * (4 + BOUND);
        if (threadIdx.x == 0) put32(to, t.length);
        if (threadIdx.x < BOUND && threadIdx.x < t.length) to[4 + threadIdx.x] = t.bytes[threadIdx.x];
    }
    if (threadIdx.x) return;
    PageResult& r = a.results[blockIdx.x];
    r.nulls = p.rows - count;
    ChunkState& s = a.states[p.chunk];
    if (r.nulls) atomicAdd(&s.nulls, r.nulls);
    if (lost || (r.nulls && !c.nullable)) atomicOr(&s.bad, 1u);
}

constexpr u32 LONG_TEXT = 1024; // bytes that a warp copies at most; a block copies more

// A warp takes 32 strings: its lanes find one each, and then copy them together, one after the other.
KERNEL_BOUNDS(encode_copy, EncodeArgs, ENCODE_THREADS, 4) {
    constexpr u32 TOGETHER = 4; // loads of that many strings are under way at a time
    const Piece run = a.runs[blockIdx.x];
    const EncodePage& p = a.pages[run.page];
    const EncodeChunk& c = a.chunks[p.chunk];
    u8* body = p.body + (c.nullable ? levels_size(p.rows, a.results[run.page].nulls) : 0);
    u64 start = place_of(c.places, c.segments, p.row);
    i32 first = p.row + run.index * TEXT_RUN, rows = min(TEXT_RUN, p.row + p.rows - first);
    i32 k = part_of(c.parts, c.part_count, first);
    // Finds the string of a row, and its place in the body. It returns false if there is none.
    auto find = [&](i32 i, Text& t, u32& to) {
        bool lost = false;
        if (i >= rows || !row_text(c.parts, c.part_count, k, first + i, t, lost)) return false;
        u64 place = place_of(c.places, c.segments, first + i) - start;
        to = (u32)place;
        return place + 4 + t.length <= p.bytes;
    };
    bool longer = false;
    u32 lane = lane_id();
    for (i32 base = 32 * warp_id(); base < rows; base += ENCODE_THREADS) {
        Text t = {nullptr, 0};
        u32 place = 0, size = 0;
        if (find(base + lane, t, place)) size = 4 + t.length;
        if (size > LONG_TEXT) {
            longer = true;
            size = 0;
        }
        for (u32 s = 0; s < 32; s += TOGETHER) {
            const u8* from[TOGETHER];
            u8* to[TOGETHER];
            u32 sizes[TOGETHER];
            u8 bytes[TOGETHER];
            for (u32 j = 0; j < TOGETHER; j++) {
                from[j] = (const u8*)__shfl_sync(ALL, (u64)t.bytes, s + j) - 4;
                to[j] = body + __shfl_sync(ALL, place, s + j);
                sizes[j] = __shfl_sync(ALL, size, s + j);
            }
            for (u32 j = 0; j < TOGETHER; j++)
                if (lane < sizes[j]) bytes[j] = lane < 4 ? (sizes[j] - 4) >> 8 * lane : from[j][lane];
            for (u32 j = 0; j < TOGETHER; j++)
                if (lane < sizes[j]) to[j][lane] = bytes[j];
            for (u32 j = 0; j < TOGETHER; j++)
                for (u32 i = lane + 32; i < sizes[j]; i += 32) to[j][i] = from[j][i];
        }
    }
    if (!__syncthreads_or(longer)) return;
    k = part_of(c.parts, c.part_count, first);
    for (i32 i = 0; i < rows; i++) {
        Text t;
        u32 place;
        if (!find(i, t, place) || 4 + t.length <= LONG_TEXT) continue;
        u32 most = t.length - 8; // put_values reads up to three bytes more
        u8* to = body + place;
        if (threadIdx.x == 0) put32(to, t.length);
        put_values(to + 4, t.bytes, most);
        if (threadIdx.x < 8) to[4 + most + threadIdx.x] = t.bytes[most + threadIdx.x];
    }
}
