// Makes split-block Bloom filters of the values of column chunks, after their pages. Each hash, XXH64 of a PLAIN value,
// is kept once in a set in device memory. The host finds the size of the filter from the number of hashes.
//
//   encode_hashes   a block a page: the hashes of its values in the set of the chunk
//   encode_filters  FILTER_BLOCKS blocks a chunk: the bits of all hashes
//   encode_filtered FILTER_BLOCKS blocks a chunk: moves the filter to its place in the output
#include "encode.cuh"

struct FilterChunk {
    u64* keys;      // the set, at first EMPTY, and one more slot for EMPTY
    u32* filter;    // at first zero
    u8* out;        // the place of the filter in the output; null if the chunk has none
    i32 log_slots;
    u32 blocks;     // of 32 bytes
};

struct FilterArgs {
    const EncodeChunk* chunks;
    const ChunkState* states;
    const EncodePage* pages;
    const PageResult* results;
    const FilterChunk* filters;
    u64* counts;    // of hashes of each filter
};

constexpr u64 P1 = 0x9E3779B185EBCA87ull, P2 = 0xC2B2AE3D27D4EB4Full, P3 = 0x165667B19E3779F9ull;
constexpr u64 P4 = 0x85EBCA77C2B2AE63ull, P5 = 0x27D4EB2F165667C5ull;

DEVICE u64 rotated(u64 v, int n) { return v << n | v >> (64 - n); }

DEVICE u64 mixed(u64 sum, u64 word) { return rotated(sum + word * P2, 31) * P1; }

// xxh64 is XXH64 with seed 0.
DEVICE u64 xxh64(const u8* p, u32 n) {
    u32 i = 0;
    u64 h = P5;
    if (n >= 32) {
        u64 sums[4] = {P1 + P2, P2, 0, 0 - P1};
        for (; i + 32 <= n; i += 32)
            for (u32 k = 0; k < 4; k++) sums[k] = mixed(sums[k], load64(p + i + 8 * k, n - i - 8 * k));
        h = rotated(sums[0], 1) + rotated(sums[1], 7) + rotated(sums[2], 12) + rotated(sums[3], 18);
        for (u32 k = 0; k < 4; k++) h = (h ^ mixed(0, sums[k])) * P1 + P4;
    }
    h += n;
    for (; i + 8 <= n; i += 8) h = rotated(h ^ mixed(0, load64(p + i, n - i)), 27) * P1 + P4;
    if (i + 4 <= n) {
        u64 word = load64(p + i, 4);
        h = rotated(h ^ word * P1, 23) * P2 + P3;
        i += 4;
    }
    for (; i < n; i++) h = rotated(h ^ p[i] * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

// keep adds a hash to a set, and reports whether it is new.
DEVICE bool keep(const FilterChunk& f, u64 hash) {
    u32 slots = 1u << f.log_slots, slot = (u32)(hash * 0x9E3779B97F4A7C15ull >> (64 - f.log_slots));
    if (hash == EMPTY) return atomicCAS(&f.keys[slots], EMPTY, 0) == EMPTY;
    for (u32 tries = 0; tries < slots; tries++, slot = (slot + 1) & (slots - 1)) {
        u64 there = *(volatile u64*)&f.keys[slot];
        if (there == EMPTY) {
            there = atomicCAS(&f.keys[slot], EMPTY, hash);
            if (there == EMPTY) return true;
        }
        if (there == hash) return false;
    }
    return false;
}

// keep_equal keeps the hashes of the floats that SQL takes for equal to a value: both zeros, and one NaN for all.
DEVICE u32 keep_equal(const EncodeChunk& c, const FilterChunk& f, const u8* value) {
    u64 bits = c.width == 4 ? (u64)*(const u32*)value << 32 : *(const u64*)value;
    u64 magnitude = bits << 1 >> 1, infinity = c.width == 4 ? 0x7f800000ull << 32 : 0x7ff0000000000000ull;
    auto keep_bits = [&](u64 v) {
        if (c.width == 4) v >>= 32;
        return (u32)keep(f, xxh64((const u8*)&v, c.width));
    };
    if (magnitude == 0) return keep_bits(0) + keep_bits(1ull << 63);
    return magnitude > infinity ? keep_bits(c.width == 4 ? 0x7fc00000ull << 32 : 0x7ff8000000000000ull) : 0;
}

KERNEL_BOUNDS(encode_hashes, FilterArgs, ENCODE_THREADS, 4) {
    __shared__ u64 warps[33];
    const EncodePage& p = a.pages[blockIdx.x];
    const EncodeChunk& c = a.chunks[p.chunk];
    if (c.filter < 0 || a.states[p.chunk].bad) return;
    const FilterChunk& f = a.filters[c.filter];
    // Strings without a dictionary are where their rows are, all others where nulls are left out.
    bool texts = c.form == ENCODE_TEXTS, lost = false;
    i32 count = texts ? p.rows : p.rows - a.results[blockIdx.x].nulls, k = p.part;
    u64 added = 0;
    for (i32 i = threadIdx.x; i < count; i += ENCODE_THREADS) {
        Text t;
        if (texts) {
            if (!row_text(c.parts, c.part_count, k, p.row + i, t, lost)) continue;
        } else if (c.form == ENCODE_STRINGS) {
            t = {(const u8*)p.strings[i], p.lengths[i]};
        } else {
            t = {(is_wide(c) ? p.wide : p.dense) + (i64)i * c.width, (u32)c.width};
        }
        added += keep(f, xxh64(t.bytes, t.length));
        if (c.form == ENCODE_FLOAT) added += keep_equal(c, f, t.bytes);
    }
    added = block_sum(added, warps);
    if (threadIdx.x == 0 && added) atomicAdd(&a.counts[c.filter], added);
}

constexpr u32 FILTER_BLOCKS = 16;

KERNEL_BOUNDS(encode_filters, FilterArgs, ENCODE_THREADS, 4) {
    const u32 salts[8] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                          0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};
    const FilterChunk& f = a.filters[blockIdx.x / FILTER_BLOCKS];
    if (!f.out) return;
    u32 slots = 1u << f.log_slots;
    for (u32 slot = blockIdx.x % FILTER_BLOCKS * ENCODE_THREADS + threadIdx.x; slot <= slots;
         slot += FILTER_BLOCKS * ENCODE_THREADS) {
        u64 hash = f.keys[slot];
        if (hash == EMPTY) continue;
        if (slot == slots) hash = EMPTY;
        u32* block = f.filter + 8 * ((hash >> 32) * f.blocks >> 32);
        for (u32 k = 0; k < 8; k++) {
            u32 bit = 1u << ((u32)hash * salts[k] >> 27);
            if (!(*(volatile u32*)&block[k] & bit)) atomicOr(&block[k], bit);
        }
    }
}

KERNEL_BOUNDS(encode_filtered, FilterArgs, ENCODE_THREADS, 4) {
    const FilterChunk& f = a.filters[blockIdx.x / FILTER_BLOCKS];
    if (!f.out) return;
    const u8* from = (const u8*)f.filter;
    for (i64 i = (i64)(blockIdx.x % FILTER_BLOCKS) * ENCODE_THREADS + threadIdx.x; i < (i64)f.blocks * 32;
         i += FILTER_BLOCKS * ENCODE_THREADS)
        f.out[i] = from[i];
}
