// Encodes columns as pages of a Parquet file: values without nulls, dictionaries, codes, packed differences, definition
// levels, Snappy, and checksums. The host chooses pages by rows; kernels find the sizes.
//
//   encode_values   a block a page: values of the rows that are not null, bounds, bits of the levels
//   encode_wide     the same for values of 16 bytes
//   encode_sample   a block a chunk: does a dictionary pay off, by the first values?
//   encode_insert   a block a page: the values in the hash table of the chunk
//   encode_mark     where values appear first
//   encode_rank     a block a chunk: how many values appear first before each row
//   encode_entries  codes of the slots, and the dictionary page
//   encode_verify   a block a page: values of the same hash are equal
//   encode_strings  a block a chunk: the dictionary page of strings or values of 16 bytes
//   encode_bounds   a block a page: the least and the greatest string
//   encode_body     a block a page: levels, then codes, differences, streams of bytes or values
//   encode_plain    values instead of differences that are not smaller
//   encode_pieces   a warp a piece of a body: Snappy or no compression, checksum
//   encode_ends     a warp a page: its size and checksum
//   encode_gather   a block a piece: moves it to its place in the output
//
// The kernels of encode_text.cu go before these for strings. Those of encode_lz4.cu take the place of encode_pieces and
// encode_gather for LZ4.
#include "encode_match.cuh"

// --- Values ---------------------------------------------------------------------------

constexpr i64 LARGEST = 0x7fffffffffffffffll;

// stored returns a value of a column as the low bytes of a number, for the file. It returns false for a value that does
// not fit. Infinite timestamps, the largest number and its negative, stay as they are.
DEVICE bool stored(const EncodeChunk& c, const u8* data, i64 at, i64& v) {
    bool sign = c.form == ENCODE_SIGNED;
    switch (c.from_width) {
    case 0: v = bit((const u32*)data, at); break;
    case 1: v = sign ? (i64)((const i8*)data)[at] : data[at]; break;
    case 2: v = sign ? (i64)((const i16*)data)[at] : ((const u16*)data)[at]; break;
    case 4: v = sign ? (i64)((const i32*)data)[at] : ((const u32*)data)[at]; break;
    case 8: v = ((const i64*)data)[at]; break;
    default: // a decimal
        v = ((const i64*)data)[2 * at];
        if (((const i64*)data)[2 * at + 1] != v >> 63) return false;
    }
    if (c.scale != 1 && !(c.width == 8 && (v == LARGEST || v == -LARGEST))) {
        if (v < -LARGEST / c.scale || v > LARGEST / c.scale) return false;
        v *= c.scale;
    }
    return c.width == 8 || !sign || (i64)(i32)v == v;
}

// ordered maps the bits of a value to an unsigned number of the same order. It returns false for a NaN.
DEVICE bool ordered(const EncodeChunk& c, i64 v, u64& key) {
    constexpr u64 TOP = 1ull << 63;
    if (c.form == ENCODE_UNSIGNED || c.form == ENCODE_BOOLS) {
        key = v;
        return true;
    }
    if (c.form == ENCODE_SIGNED) {
        key = (u64)v ^ TOP;
        return true;
    }
    u64 bits = c.width == 4 ? (u64)v << 32 : (u64)v;
    u64 exponent = c.width == 4 ? 0x7f800000ull << 32 : 0x7ff0000000000000ull;
    key = bits & TOP ? ~bits : bits | TOP;
    return (bits & ~TOP) <= exponent;
}

DEVICE u64 warp_min(u64 v) {
    for (int d = 16; d; d >>= 1) v = min(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

KERNEL_BOUNDS(encode_values, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    __shared__ u64 least[ENCODE_WARPS], most[ENCODE_WARPS];
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (c.form == ENCODE_TEXTS || is_wide(c)) return;
    u64 lo = ~0ull, hi = ~0ull; // hi is the complement of the greatest
    bool lost = false, unordered = false;
    i32 k = p.part, taken = 0, count = 0;
    for (i32 base = 0; base < p.rows; base += ENCODE_THREADS) {
        i32 i = base + threadIdx.x, row = p.row + i;
        bool valid = false;
        i64 v = 0;
        Text text = {nullptr, 0};
        if (i < p.rows) {
            while (k + 1 < c.part_count && c.parts[k + 1].row <= row) k++;
            const EncodePart& q = c.parts[k];
            i64 at = q.from + (row - q.row);
            valid = bit(q.valid, at);
            if (valid && c.form == ENCODE_STRINGS) {
                if (text_of(q, at, text))
                    v = string_hash(text, a.multiplier);
                else
                    lost = true;
            } else if (valid) {
                lost = !stored(c, q.data, at, v) || lost;
                u64 key;
                if (ordered(c, v, key)) {
                    lo = min(lo, key);
                    hi = min(hi, ~key);
                } else {
                    unordered = true;
                }
            }
        }
        i32 to = i, n = min(p.rows - base, ENCODE_THREADS);
        if (c.nullable) {
            u32 word = __ballot_sync(ALL, valid);
            if (lane_id() == 0 && i < p.rows) p.bits[i >> 5] = word;
            to = taken + block_exclusive((i32)valid, warps, n);
        }
        taken += n;
        count += valid;
        if (!valid) continue;
        if (c.form == ENCODE_STRINGS) {
            p.strings[to] = (u64)text.bytes;
            p.lengths[to] = text.length;
        }
        if (c.width == 1)
            p.dense[to] = v;
        else if (c.width == 4)
            ((u32*)p.dense)[to] = (u32)v;
        else
            ((i64*)p.dense)[to] = v;
    }
    lo = warp_min(lo);
    hi = warp_min(hi);
    if (lane_id() == 0) {
        least[warp_id()] = lo;
        most[warp_id()] = hi;
    }
    count = block_sum(count, warps);
    u32 bad = __syncthreads_or(lost), nan = __syncthreads_or(unordered);
    if (threadIdx.x) return;
    clear_after(p.dense + (i64)taken * c.width);
    for (int w = 1; w < ENCODE_WARPS; w++) {
        lo = min(lo, least[w]);
        hi = min(hi, most[w]);
    }
    PageResult& r = a.results[blockIdx.x];
    r.least = lo;
    r.most = ~hi;
    r.unbounded = nan != 0;
    r.nulls = p.rows - count;
    ChunkState& s = a.states[p.chunk];
    if (r.nulls) atomicAdd(&s.nulls, r.nulls);
    if (bad || (r.nulls && !c.nullable)) atomicOr(&s.bad, 1u);
}

// Wide is a value of 16 bytes, as a number.
struct Wide {
    u64 high, low;
};

DEVICE bool before(const Wide& x, const Wide& y) { return x.high < y.high || (x.high == y.high && x.low < y.low); }

DEVICE Wide warp_least(Wide v) {
    for (int d = 16; d; d >>= 1) {
        Wide other = {__shfl_xor_sync(ALL, v.high, d), __shfl_xor_sync(ALL, v.low, d)};
        if (before(other, v)) v = other;
    }
    return v;
}

// wide_at reads a value of 16 bytes. It returns false for a string of another length.
DEVICE bool wide_at(const EncodeChunk& c, const EncodePart& q, i64 at, Wide& v) {
    if (c.form == ENCODE_UNSIGNED_WIDE) {
        Text t;
        if (!text_of(q, at, t) || t.length != 16) return false;
        v = {reversed(load64(t.bytes, 8)), reversed(load64(t.bytes + 8, 8))};
    } else if (c.from_width == 16) {
        v = {((const u64*)q.data)[2 * at + 1], ((const u64*)q.data)[2 * at]};
    } else {
        i64 low = ((const i64*)q.data)[at];
        v = {(u64)(low >> 63), (u64)low};
    }
    return true;
}

KERNEL_BOUNDS(encode_wide, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    __shared__ Wide least[ENCODE_WARPS], most[ENCODE_WARPS];
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (!is_wide(c)) return;
    const u64 top = c.form == ENCODE_WIDE ? 1ull << 63 : 0; // makes the order that of unsigned numbers
    Wide lo = {~0ull, ~0ull}, hi = {~0ull, ~0ull};          // hi is the complement of the greatest
    bool lost = false;
    i32 k = p.part, taken = 0, count = 0;
    for (i32 base = 0; base < p.rows; base += ENCODE_THREADS) {
        i32 i = base + threadIdx.x, row = p.row + i;
        bool valid = false;
        Wide v = {0, 0};
        if (i < p.rows) {
            while (k + 1 < c.part_count && c.parts[k + 1].row <= row) k++;
            const EncodePart& q = c.parts[k];
            i64 at = q.from + (row - q.row);
            valid = bit(q.valid, at);
            if (valid && !wide_at(c, q, at, v)) lost = true;
        }
        i32 to = i, n = min(p.rows - base, ENCODE_THREADS);
        if (c.nullable) {
            u32 word = __ballot_sync(ALL, valid);
            if (lane_id() == 0 && i < p.rows) p.bits[i >> 5] = word;
            to = taken + block_exclusive((i32)valid, warps, n);
        }
        taken += n;
        count += valid;
        if (!valid) continue;
        ((u64*)p.wide)[2 * to] = reversed(v.high);
        ((u64*)p.wide)[2 * to + 1] = reversed(v.low);
        if (c.dictionary >= 0) {
            u64 h = ((a.multiplier ^ v.high) * 0x9E3779B97F4A7C15ull ^ v.low) * 0x9E3779B97F4A7C15ull;
            h ^= h >> 32;
            ((u64*)p.dense)[to] = h == EMPTY ? 0 : h;
        }
        Wide x = {v.high ^ top, v.low}, y = {~x.high, ~x.low};
        if (before(x, lo)) lo = x;
        if (before(y, hi)) hi = y;
    }
    lo = warp_least(lo);
    hi = warp_least(hi);
    if (lane_id() == 0) {
        least[warp_id()] = lo;
        most[warp_id()] = hi;
    }
    count = block_sum(count, warps);
    lost = __syncthreads_or(lost);
    if (threadIdx.x) return;
    clear_after(p.wide + (i64)taken * 16);
    for (int w = 1; w < ENCODE_WARPS; w++) {
        if (before(least[w], lo)) lo = least[w];
        if (before(most[w], hi)) hi = most[w];
    }
    const Wide ends[2] = {{lo.high ^ top, lo.low}, {~hi.high ^ top, ~hi.low}};
    for (int side = 0; side < 2; side++) {
        u8* to = p.bounds + side * (4 + BOUND);
        put32(to, 16);
        for (int b = 0; b < 8; b++) {
            to[4 + b] = ends[side].high >> (56 - 8 * b);
            to[12 + b] = ends[side].low >> (56 - 8 * b);
        }
    }
    PageResult& r = a.results[blockIdx.x];
    r.nulls = p.rows - count;
    ChunkState& s = a.states[p.chunk];
    if (r.nulls) atomicAdd(&s.nulls, r.nulls);
    if (lost || (r.nulls && !c.nullable)) atomicOr(&s.bad, 1u);
}

// --- Dictionary -----------------------------------------------------------------------

// hashed reports whether hashes stand for the values of a dictionary.
DEVICE bool hashed(const EncodeChunk& c) { return c.form == ENCODE_STRINGS || is_wide(c); }

DEVICE u32 most_entries(const EncodeChunk& c, const ChunkState& s) { return (c.rows - s.nulls) / 5; }

// insert finds the slot of a value, and notes its position. It returns false if the table is full.
DEVICE bool insert(const EncodeChunk& c, u64 key, u32 position, u64 multiplier, u32& slot, bool& added) {
    u32 slots = 1u << c.log_slots;
    added = false;
    slot = (u32)(key * multiplier >> (64 - c.log_slots));
    if (key == EMPTY) {
        slot = slots;
        added = atomicMin(&c.firsts[slot], position) == ALL;
        return true;
    }
    for (u32 tries = 0; tries < slots; tries++, slot = (slot + 1) & (slots - 1)) {
        u64 there = *(volatile u64*)&c.keys[slot];
        if (there == EMPTY) {
            there = atomicCAS(&c.keys[slot], EMPTY, key);
            added = there == EMPTY;
        }
        if (added || there == key) {
            if (*(volatile u32*)&c.firsts[slot] > position) atomicMin(&c.firsts[slot], position);
            return true;
        }
    }
    return false;
}

// Inserts the first values of a chunk, and counts those that differ.
KERNEL_BOUNDS(encode_sample, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    const EncodeChunk& c = a.chunks[blockIdx.x];
    ChunkState& s = a.states[blockIdx.x];
    if (c.dictionary < 0) return;
    u32 limit = most_entries(c, s), n = c.rows - s.nulls;
    u32 sample = (u32)sqrt(8.0 * FEW_REPEATS * limit);
    bool full = limit == 0 && n > 0;
    u32 distinct = 0, left = min(sample, n);
    for (i32 page = c.page; page < c.page + c.pages && left > 0 && !full; page++) {
        const EncodePage& p = a.pages[page];
        u32 count = min(left, p.rows - a.results[page].nulls);
        left -= count;
        for (u32 base = 0; base < count && !full; base += ENCODE_THREADS) {
            u32 i = base + threadIdx.x, slot;
            bool added = false, room = true;
            if (i < count) room = insert(c, plain(p.dense, c.width, i), p.row + i, a.multiplier, slot, added);
            distinct += block_sum((i32)added, warps);
            full = __syncthreads_or(!room) || distinct > limit ||
                   (sample >= FEW_REPEATS && distinct > sample - FEW_REPEATS);
        }
    }
    if (threadIdx.x == 0) {
        s.distinct = distinct;
        s.full = full || n == 0;
    }
}

KERNEL_BOUNDS(encode_insert, EncodeArgs, ENCODE_THREADS, 4) {
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    ChunkState& s = a.states[p.chunk];
    if (c.dictionary < 0) return;
    u32 count = p.rows - a.results[blockIdx.x].nulls, limit = most_entries(c, s);
    for (u32 i = threadIdx.x; i < count && !*(volatile u32*)&s.full; i += ENCODE_THREADS) {
        u32 slot;
        bool added;
        if (!insert(c, plain(p.dense, c.width, i), p.row + i, a.multiplier, slot, added) ||
            (added && atomicAdd(&s.distinct, 1u) >= limit)) {
            atomicOr(&s.full, 1u);
            return;
        }
        p.slots[i] = slot;
    }
}


constexpr int SLOT_BLOCKS = 16; // blocks of a chunk that go through its slots

KERNEL_BOUNDS(encode_mark, EncodeArgs, ENCODE_THREADS, 4) {
    i32 chunk = blockIdx.x / SLOT_BLOCKS;
    const EncodeChunk& c = a.chunks[chunk];
    if (c.dictionary < 0 || a.states[chunk].full) return;
    for (u32 slot = blockIdx.x % SLOT_BLOCKS * ENCODE_THREADS + threadIdx.x; slot <= 1u << c.log_slots;
         slot += SLOT_BLOCKS * ENCODE_THREADS) {
        u32 first = c.firsts[slot];
        if (first != ALL) atomicOr(&c.marks[first >> 5], 1u << (first & 31));
    }
}

KERNEL_BOUNDS(encode_rank, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    const EncodeChunk& c = a.chunks[blockIdx.x];
    if (c.dictionary < 0 || a.states[blockIdx.x].full) return;
    i32 words = (c.rows + 31) / 32, sum = 0;
    for (i32 base = 0; base < words; base += ENCODE_THREADS) {
        i32 w = base + threadIdx.x, total;
        i32 before = block_exclusive(w < words ? __popc(c.marks[w]) : 0, warps, total);
        if (w < words) c.before[w] = sum + before;
        sum += total;
    }
}

KERNEL_BOUNDS(encode_entries, EncodeArgs, ENCODE_THREADS, 4) {
    i32 chunk = blockIdx.x / SLOT_BLOCKS;
    const EncodeChunk& c = a.chunks[chunk];
    const ChunkState& s = a.states[chunk];
    if (c.dictionary < 0 || s.full) return;
    for (u32 slot = blockIdx.x % SLOT_BLOCKS * ENCODE_THREADS + threadIdx.x; slot <= 1u << c.log_slots;
         slot += SLOT_BLOCKS * ENCODE_THREADS) {
        u32 first = c.firsts[slot];
        if (first == ALL) continue;
        u32 code = c.before[first >> 5] + __popc(c.marks[first >> 5] & ((1u << (first & 31)) - 1));
        u64 key = slot == 1u << c.log_slots ? EMPTY : c.keys[slot];
        c.codes[slot] = code;
        if (hashed(c))
            c.order[code] = first;
        else if (c.width == 4)
            ((u32*)c.entries)[code] = (u32)key;
        else
            ((u64*)c.entries)[code] = key;
    }
    if (blockIdx.x % SLOT_BLOCKS == 0 && threadIdx.x == 0 && !hashed(c))
        clear_after(c.entries + (a.results[c.dictionary].raw = s.distinct * c.width));
}

// --- Dictionaries of hashes -----------------------------------------------------------

// text_in returns the bytes of a value of a page.
DEVICE Text text_in(const EncodeChunk& c, const EncodePage& p, u32 i) {
    if (is_wide(c)) return {p.wide + 16 * (u64)i, 16};
    return {(const u8*)p.strings[i], p.lengths[i]};
}

// text_at returns the bytes of the value at a position of a chunk.
DEVICE Text text_at(const EncodeArgs& a, const EncodeChunk& c, u32 position) {
    return text_in(c, a.pages[c.page + position / c.page_rows], position % c.page_rows);
}

DEVICE bool coded_hashes(const EncodeChunk& c, const ChunkState& s) {
    return hashed(c) && c.dictionary >= 0 && !s.full && !s.bad;
}

// Compares each value with the first one of its slot.
KERNEL_BOUNDS(encode_verify, EncodeArgs, ENCODE_THREADS, 4) {
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    ChunkState& s = a.states[p.chunk];
    if (!hashed(c) || c.dictionary < 0 || s.full) return;
    u32 count = p.rows - a.results[blockIdx.x].nulls;
    bool differs = false;
    for (u32 i = threadIdx.x; i < count; i += ENCODE_THREADS)
        if (compare(text_in(c, p, i), text_at(a, c, c.firsts[p.slots[i]]))) differs = true;
    if (differs) atomicOr(&s.bad, 1u);
}

constexpr u32 MOST_DICTIONARY = 4 << 20; // as for the CPU's encoder, without the length of the last string

// A block writes the dictionary page of a chunk of hashes.
KERNEL_BOUNDS(encode_strings, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ i32 warps[33];
    const EncodeChunk& c = a.chunks[blockIdx.x];
    ChunkState& s = a.states[blockIdx.x];
    if (!coded_hashes(c, s)) return;
    const u32 head = is_wide(c) ? 0 : 4; // bytes of the length
    u32 at = 0;
    bool over = false;
    for (u32 base = 0; base < s.distinct && at <= (u32)c.capacity; base += ENCODE_THREADS) {
        u32 code = base + threadIdx.x;
        Text t = {nullptr, 0};
        if (code < s.distinct) t = text_at(a, c, c.order[code]);
        i32 n = code < s.distinct ? min(head + t.length, (u32)c.capacity + 1) : 0, total;
        u32 place = at + block_exclusive(n, warps, total);
        at += total;
        if (place + n > (u32)c.capacity) {
            over = true;
        } else if (n) {
            if (head) put32(c.entries + place, t.length);
            for (u32 i = 0; i < t.length; i++) c.entries[place + head + i] = t.bytes[i];
        }
    }
    over = __syncthreads_or(over);
    if (threadIdx.x) return;
    if (over || (head && at > MOST_DICTIONARY + 4)) {
        s.full = 1;
        return;
    }
    a.results[c.dictionary].raw = at;
    clear_after(c.entries + at);
}

// Finds the least and the greatest string of a page.
KERNEL_BOUNDS(encode_bounds, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ u32 least[ENCODE_THREADS], most[ENCODE_THREADS]; // codes; ALL for none
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (c.form != ENCODE_STRINGS || !coded_hashes(c, a.states[p.chunk])) return;
    auto text = [&](u32 code) { return text_at(a, c, c.order[code]); };
    auto widen = [&](u32& lo, u32& hi, u32 code) {
        if (code == ALL || code == lo || code == hi) return;
        if (lo == ALL || compare(text(code), text(lo)) < 0) lo = code;
        if (hi == ALL || compare(text(code), text(hi)) > 0) hi = code;
    };
    u32 lo = ALL, hi = ALL, count = p.rows - a.results[blockIdx.x].nulls;
    for (u32 i = threadIdx.x; i < count; i += ENCODE_THREADS) widen(lo, hi, c.codes[p.slots[i]]);
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
    if (least[0] == ALL) return;
    for (u32 side = 0; side < 2; side++) {
        Text t = text(side ? most[0] : least[0]);
        u8* to = p.bounds + side * (4 + BOUND);
        if (threadIdx.x == 0) put32(to, t.length);
        if (threadIdx.x < BOUND && threadIdx.x < t.length) to[4 + threadIdx.x] = t.bytes[threadIdx.x];
    }
}

// --- Bodies ---------------------------------------------------------------------------

struct BodyShared {
    i32 warps[33];
    u32 at;
    u64 values[ENCODE_WARPS][32];
    u32 sizes[ENCODE_WARPS];
};

// put_levels writes the definition levels of a page, and returns their bytes.
DEVICE u32 put_levels(const EncodePage& p, u32 nulls) {
    u32 rows = p.rows;
    u32 size = levels_size(rows, nulls);
    if (nulls == 0) {
        if (threadIdx.x == 0) {
            put32(p.body, size - 4);
            put_uvarint(p.body + 4, (u64)rows << 1);
            p.body[size - 1] = 1;
        }
        return size;
    }
    u32 groups = (rows + 7) / 8, head = uvarint_size((u64)groups << 1 | 1);
    if (threadIdx.x == 0) {
        put32(p.body, head + groups);
        put_uvarint(p.body + 4, (u64)groups << 1 | 1);
    }
    const u8* bits = (const u8*)p.bits;
    for (u32 i = threadIdx.x; i < groups; i += ENCODE_THREADS) p.body[4 + head + i] = bits[i];
    return size;
}

// Group is eight codes of a page. Codes are in runs: of equal groups, whose codes are all the same, and of packed ones.
DEVICE u32 code_at(const EncodeChunk& c, const EncodePage& p, u32 i) { return c.codes[p.slots[i]]; }

// group_value returns the code of a group of equal codes, or ALL.
DEVICE u32 group_value(const EncodeChunk& c, const EncodePage& p, u32 g) {
    u32 first = code_at(c, p, 8 * g);
    for (u32 k = 1; k < 8; k++)
        if (code_at(c, p, 8 * g + k) != first) return ALL;
    return first;
}

// run_head is the number before a run of groups.
DEVICE u64 run_head(u32 groups, bool equal) { return equal ? (u64)groups << 4 : (u64)groups << 1 | 1; }

// put_codes writes the codes of count values, in runs as the CPU's encoder makes them. It returns their bytes.
DEVICE u32 put_codes(BodyShared& s, const EncodeChunk& c, const EncodePage& p, u8* dst, u32 count, u32 distinct) {
    u32 width = 32 - __clz(distinct - 1), bytes = (width + 7) / 8, groups = count / 8;
    if (threadIdx.x == 0) dst[0] = width;
    if (width == 0) {
        if (threadIdx.x == 0) put_uvarint(dst + 1, (u64)count << 1);
        return 1 + uvarint_size((u64)count << 1);
    }
    dst++;
    u32 *starts = p.groups, *places = starts + groups + 1, *of = places + groups + 1;
    u32 runs = 0;
    for (u32 base = 0; base < groups; base += ENCODE_THREADS) { // where runs begin
        u32 g = base + threadIdx.x;
        bool begins = false;
        if (g < groups) begins = g == 0 || group_value(c, p, g) != group_value(c, p, g - 1);
        i32 total, before = block_exclusive((i32)begins, s.warps, total);
        if (begins) starts[runs + before] = g;
        if (g < groups) of[g] = runs + before + begins - 1;
        runs += total;
    }
    if (threadIdx.x == 0) starts[runs] = groups;
    __syncthreads();
    u32 size = 0;
    for (u32 base = 0; base < runs; base += ENCODE_THREADS) { // where their bytes begin
        u32 r = base + threadIdx.x, n = 0;
        if (r < runs) {
            u32 length = starts[r + 1] - starts[r];
            bool equal = group_value(c, p, starts[r]) != ALL;
            n = uvarint_size(run_head(length, equal)) + (equal ? bytes : length * width);
        }
        i32 total, before = block_exclusive((i32)n, s.warps, total);
        if (r < runs) places[r] = size + before;
        size += total;
    }
    __syncthreads();
    for (u32 g = threadIdx.x; g < groups; g += ENCODE_THREADS) {
        u32 r = of[g], start = starts[r], length = starts[r + 1] - start, value = group_value(c, p, g);
        u64 head = run_head(length, value != ALL);
        u8* to = dst + places[r];
        if (g == start) {
            u32 n = put_uvarint(to, head);
            if (value != ALL)
                for (u32 k = 0; k < bytes; k++) to[n + k] = value >> 8 * k;
        }
        if (value != ALL) continue;
        to += uvarint_size(head) + (g - start) * width;
        u64 bits = 0;
        u32 filled = 0;
        for (u32 k = 0; k < 8; k++) {
            bits |= (u64)code_at(c, p, 8 * g + k) << filled;
            for (filled += width; filled >= 8; filled -= 8, bits >>= 8) *to++ = bits;
        }
    }
    if (threadIdx.x == 0) { // the last codes: runs of equal ones
        u32 at = size;
        for (u32 i = 8 * groups; i < count;) {
            u32 code = code_at(c, p, i), j = i + 1;
            while (j < count && code_at(c, p, j) == code) j++;
            at += put_uvarint(dst + at, (u64)(j - i) << 1);
            for (u32 k = 0; k < bytes; k++) dst[at++] = code >> 8 * k;
            i = j;
        }
        s.at = at;
    }
    __syncthreads();
    return 1 + s.at;
}

// put_bits packs bytes that are 0 or 1, and returns the number of bytes that it has written.
DEVICE u32 put_bits(u8* dst, const u8* values, u32 count) {
    u32 bytes = (count + 7) / 8;
    for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) {
        u32 out = 0;
        for (u32 k = 0; k < 8 && 8 * i + k < count; k++) out |= (u32)values[8 * i + k] << k;
        dst[i] = out;
    }
    return bytes;
}

// put_split writes the lowest bytes of all values, then their second bytes, and so on (BYTE_STREAM_SPLIT). A value is
// read once; the lanes of a warp write 32 consecutive bytes of each stream.
DEVICE void put_split(u8* dst, const u8* values, i32 width, u32 count) {
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        u64 v = plain(values, width, i);
        for (i32 k = 0; k < width; k++, v >>= 8) dst[k * count + i] = v;
    }
}

constexpr u32 DELTA_BLOCK = 128, DELTA_MINI = 32;

DEVICE i64 signed_at(const u8* values, i32 width, u32 i) {
    return width == 4 ? ((const i32*)values)[i] : ((const i64*)values)[i];
}

DEVICE u64 warp_or(u64 v) {
    return __reduce_or_sync(ALL, (u32)v) | (u64)__reduce_or_sync(ALL, (u32)(v >> 32)) << 32;
}

// put_deltas writes values as differences (DELTA_BINARY_PACKED), a warp a block of 128, and returns their bytes.
DEVICE u32 put_deltas(BodyShared& s, const u8* values, i32 width, u32 count, u8* dst) {
    u64 first = zigzag(count ? signed_at(values, width, 0) : 0);
    u32 size = 3 + uvarint_size(count) + uvarint_size(first);
    if (threadIdx.x == 0) {
        dst[0] = DELTA_BLOCK & 127 | 128;
        dst[1] = DELTA_BLOCK >> 7;
        dst[2] = DELTA_BLOCK / DELTA_MINI;
        u32 n = 3 + put_uvarint(dst + 3, count);
        put_uvarint(dst + n, first);
    }
    u32 blocks = count > 1 ? (count - 2) / DELTA_BLOCK + 1 : 0, lane = lane_id(), warp = warp_id();
    for (u32 base = 0; base < blocks; base += ENCODE_WARPS) {
        u32 b = base + warp, n = 0;
        u64 d[4];
        i64 least = LARGEST;
        u32 widths[4];
        if (b < blocks) {
            for (u32 m = 0; m < 4; m++) {
                u32 i = 1 + b * DELTA_BLOCK + m * DELTA_MINI + lane;
                // The least difference of a block counts the zeros after the last value, as the CPU's encoder does.
                u64 now = i < count ? signed_at(values, width, i) : 0;
                u64 before = i <= count ? signed_at(values, width, i - 1) : 0;
                d[m] = width == 4 ? (u64)(i64)(i32)(now - before) : now - before;
                least = min(least, (i64)d[m]);
            }
            least = (i64)(warp_min((u64)least ^ 1ull << 63) ^ 1ull << 63);
            n = uvarint_size(zigzag(least)) + 4;
            for (u32 m = 0; m < 4; m++) {
                bool there = 1 + b * DELTA_BLOCK + m * DELTA_MINI + lane < count;
                d[m] = there ? d[m] - (u64)least : 0;
                if (width == 4) d[m] = (u32)d[m];
                u64 any = warp_or(d[m]);
                widths[m] = any ? 64 - __clzll(any) : 0;
                n += DELTA_MINI / 8 * widths[m];
            }
        }
        if (lane == 0) s.sizes[warp] = n;
        __syncthreads();
        u32 at = size;
        for (u32 w = 0; w < ENCODE_WARPS; w++) {
            if (w < warp) at += s.sizes[w];
            size += s.sizes[w];
        }
        __syncthreads();
        if (b >= blocks) continue;
        u8* to = dst + at;
        u32 head = uvarint_size(zigzag(least));
        if (lane == 0) {
            put_uvarint(to, zigzag(least));
            for (u32 m = 0; m < 4; m++) to[head + m] = widths[m];
        }
        to += head + 4;
        for (u32 m = 0; m < 4; m++) {
            u32 w = widths[m];
            __syncwarp();
            s.values[warp][lane] = d[m];
            __syncwarp();
            for (u32 word = lane; word < w; word += 32) { // 32 values of w bits are w words
                u32 bit = 32 * word, out = 0;
                for (u32 i = bit / w; i < 32 && i * w < bit + 32; i++) {
                    u64 v = s.values[warp][i];
                    out |= i * w >= bit ? (u32)v << (i * w - bit) : (u32)(v >> (bit - i * w));
                }
                put32(to + 4 * word, out);
            }
            to += 4 * w;
        }
    }
    return size;
}

KERNEL_BOUNDS(encode_body, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ BodyShared s;
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    const ChunkState& state = a.states[p.chunk];
    PageResult& r = a.results[blockIdx.x];
    u32 nulls = r.nulls, count = p.rows - nulls, at = c.nullable ? put_levels(p, nulls) : 0, n = count * c.width;
    if (c.dictionary >= 0 && !state.full)
        n = put_codes(s, c, p, p.body + at, count, state.distinct);
    else if (c.form == ENCODE_STRINGS)
        n = 0; // without a dictionary they are encoded again
    else if (c.form == ENCODE_TEXTS)
        n = p.bytes; // encode_copy writes them
    else if (c.form == ENCODE_BOOLS)
        n = put_bits(p.body + at, p.dense, count);
    else if (is_wide(c))
        put_values(p.body + at, p.wide, n);
    else if (c.delta)
        n = put_deltas(s, p.dense, c.width, count, p.body + at);
    else if (c.split)
        put_split(p.body + at, p.dense, c.width, count);
    else
        put_values(p.body + at, p.dense, n);
    if (threadIdx.x) return;
    r.raw = at + n;
    r.deltas = n;
    clear_after(p.body + r.raw);
}

// Differences do not pay off if those of the first page are not much smaller than its values.
KERNEL_BOUNDS(encode_plain, EncodeArgs, ENCODE_THREADS, 4) {
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (!c.delta || (c.dictionary >= 0 && !a.states[p.chunk].full)) return;
    const PageResult& first = a.results[c.page];
    if (first.deltas <= (a.pages[c.page].rows - first.nulls) * c.width / 4 * 3) return;
    PageResult& r = a.results[blockIdx.x];
    u32 n = (p.rows - r.nulls) * c.width, at = c.nullable ? put_levels(p, r.nulls) : 0;
    put_values(p.body + at, p.dense, n);
    if (threadIdx.x) return;
    r.raw = at + n;
    clear_after(p.body + r.raw);
}

// --- Snappy ---------------------------------------------------------------------------

// put_literal writes bytes [from, to) of the input, and returns the bytes that it has written.
DEVICE u32 put_literal(u8* out, const u8* in, u32 from, u32 to) {
    u32 n = to - from;
    if (n == 0) return 0;
    u32 head = n <= 60 ? 1 : n <= 256 ? 2 : 3;
    if (lane_id() == 0) {
        out[0] = head == 1 ? (n - 1) << 2 : (58 + head) << 2;
        if (head > 1) out[1] = n - 1;
        if (head > 2) out[2] = (n - 1) >> 8;
    }
    copy_bytes(out + head, in + from, n);
    return head + n;
}

// put_copy writes a copy of n ≥ 4 bytes that are offset bytes before.
DEVICE u32 put_copy(u8* out, u32 offset, u32 n) {
    auto put = [&](u8* to, u32 length) {
        to[0] = (length - 1) << 2 | 2;
        to[1] = offset;
        to[2] = offset >> 8;
    };
    u32 full = n >= 68 ? (n - 68) / 64 + 1 : 0, size = 3 * full;
    for (u32 i = lane_id(); i < full; i += 32) put(out + 3 * i, 64);
    n -= 64 * full;
    bool first = lane_id() == 0;
    if (n > 64) {
        if (first) put(out + size, 60);
        size += 3;
        n -= 60;
    }
    if (n < 12 && offset < 2048) {
        if (first) {
            out[size] = (offset >> 8) << 5 | (n - 4) << 2 | 1;
            out[size + 1] = offset;
        }
        return size + 2;
    }
    if (first) put(out + size, n);
    return size + 3;
}

// put_match writes bytes [from, start) of the input, and a copy of length ≥ 4 bytes that are offset bytes before. It
// returns the bytes that it has written.
DEVICE u32 put_match(u8* out, const u8* in, u32 from, u32 start, u32 offset, u32 length) {
    u32 n = start - from;
    if (n > 28 || length > 64) {
        u32 size = put_literal(out, in, from, start);
        return size + put_copy(out + size, offset, length);
    }
    // Most are short: each lane writes a byte.
    bool brief = length < 12 && offset < 2048;
    u32 tag = brief ? (offset >> 8) << 5 | (length - 4) << 2 | 1 : (length - 1) << 2 | 2;
    u32 copy = tag | (brief ? offset & 255 : offset) << 8;
    u32 head = n ? 1 : 0, size = head + n + (brief ? 2 : 3), lane = lane_id();
    u32 byte = copy >> (lane - head - n) * 8 % 32;
    if (lane < head + n) byte = lane ? in[from + lane - 1] : (n - 1) << 2;
    if (lane < size) out[lane] = byte;
    return size;
}

// compress writes n ≤ PIECE bytes as elements of Snappy, and returns their number of bytes. All lanes of a warp take
// part.
DEVICE u32 compress(const u8* in, u32 n, u8* out, u16* table, u32 width) {
    u32 op = 0;
    u32 end = find_matches<false>({}, in, n, 0, most_starts(n), n, table, width,
                                  [&](u32 from, u32 start, u32 offset, u32 length) {
        op += put_match(out + op, in, from, start, offset, length);
    });
    op += put_literal(out + op, in, end, n);
    __syncwarp();
    return op;
}

KERNEL_BOUNDS(encode_pieces, EncodeArgs, PIECE_WARPS * 32, 4) {
    __shared__ Checksums checksums;
    __shared__ u16 tables[PIECE_WARPS][1 << HASH_LOG];
    load_checksums(checksums, a.checksums);
    for (i32 i = next_piece(a); i < a.count; i = next_piece(a)) {
        const Piece piece = a.pieces[i];
        const EncodePage& p = a.pages[piece.page];
        u32 raw = a.results[piece.page].raw, at = piece.index * PIECE;
        if (at >= raw) {
            if (lane_id() == 0) a.ends[i].size = 0;
            continue;
        }
        const u8* from = p.body + at;
        u32 n = min(raw - at, PIECE), size = n;
        if (a.packed) {
            u8* to = a.packed + (i64)i * a.slot;
            size = 0;
            if (at == 0) {
                size = uvarint_size(raw);
                if (lane_id() == 0) put_uvarint(to, raw);
            }
            size += compress(from, n, to + size, tables[warp_id()], a.chunks[p.chunk].width);
            if (lane_id() == 0) clear_after(to + size);
            __syncwarp();
            from = to;
        }
        u32 checksum = remainder_of(checksums, from, size);
        if (lane_id() == 0) {
            a.ends[i].size = size;
            a.ends[i].checksum = checksum;
        }
    }
}

KERNEL_BOUNDS(encode_ends, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ Checksums checksums;
    load_checksums(checksums, a.checksums);
    i32 page = blockIdx.x * ENCODE_WARPS + warp_id();
    if (page >= a.all_pages) return;
    const EncodePage& p = a.pages[page];
    u32 size = 0, sum = 0;
    for (i32 base = 0; base < p.pieces; base += 32) {
        i32 i = base + lane_id();
        u32 n = i < p.pieces ? a.ends[p.piece + i].size : 0, end = warp_inclusive(n);
        if (i < p.pieces) a.ends[p.piece + i].at = size + end - n;
        size += __shfl_sync(ALL, end, 31);
    }
    __syncwarp();
    for (i32 i = lane_id(); i < p.pieces; i += 32) {
        const PieceResult& e = a.ends[p.piece + i];
        if (e.size) sum ^= moved(checksums, e.checksum, size - e.at - e.size);
    }
    sum = __reduce_xor_sync(ALL, sum);
    if (lane_id()) return;
    a.results[page].size = size;
    a.results[page].checksum = ~(sum ^ moved(checksums, ALL, size));
}

KERNEL_BOUNDS(encode_gather, EncodeArgs, ENCODE_THREADS, 4) {
    const Piece piece = a.pieces[blockIdx.x];
    const PieceResult& e = a.ends[blockIdx.x];
    i64 place = a.places[piece.page];
    if (place < 0) return;
    const u8* from = a.packed ? a.packed + (i64)blockIdx.x * a.slot
                              : a.pages[piece.page].body + (i64)piece.index * PIECE;
    put_values(a.out + place + e.at, from, e.size);
}
