// Join tables number the build keys. A number has one build row or a run of build rows. There are three kinds of
// numbers:
//
//   rank   integers in a range that is little wider than the number of keys: the rank among the existing keys
//   row    other unique integers of 8 bytes: the row of the key
//   index  all other keys: the id of a hash index
//
// A probe finds the number of each row's key, counts the pairs of each tile, and then writes one range of the pairs at
// a time. With unique build keys of w bytes it moves 4 + w bytes a row to find the numbers, 4 to read them again and up
// to 8 for the pairs. The bitmap of ranks takes two bits for each key of the range, so it mostly stays in the cache.
#include "index.cuh"

// Range is the result of a first pass over the keys.
struct Range {
    i64 low, high;
    i32 rows;     // rows with a key
    i32 unsorted; // 1: some row has no key, or a key that is not above that of the row before it
};

struct RangeArgs {
    const void* keys;
    const u32* valid;
    Range* range;
    i64 n;
    i32 load;
};

template <class T, class F>
DEVICE T warp_reduce(T v, F f) {
    for (int d = 16; d; d >>= 1) v = f(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

KERNEL(key_range, RangeArgs) {
    i64 low = 0x7fffffffffffffffll, high = -low - 1;
    i32 rows = 0;
    bool unsorted = false;
    for (i64 i = global_thread(); i < a.n; i += grid_threads()) {
        if (!bit(a.valid, i)) {
            unsorted = true;
            continue;
        }
        i64 key = (i64)load_word(a.keys, a.load, i);
        low = key < low ? key : low;
        high = key > high ? key : high;
        rows++;
        unsorted |= i > 0 && (i64)load_word(a.keys, a.load, i - 1) >= key;
    }
    low = warp_reduce(low, [](i64 x, i64 y) { return x < y ? x : y; });
    high = warp_reduce(high, [](i64 x, i64 y) { return x > y ? x : y; });
    rows = warp_sum(rows);
    unsorted = __any_sync(ALL, unsorted);
    if (lane_id() != 0) return;
    atomicMin(&a.range->low, low);
    atomicMax(&a.range->high, high);
    if (rows) atomicAdd(&a.range->rows, rows);
    if (unsorted) a.range->unsorted = 1;
}

// count_rows counts the rows with a key.
KERNEL(count_rows, RangeArgs) {
    i32 rows = 0;
    i64 words = (a.n + 31) / 32;
    for (i64 w = global_thread(); w < words; w += grid_threads()) {
        u32 x = a.valid[w];
        if (a.n - w * 32 < 32) x &= (1u << (a.n - w * 32)) - 1;
        rows += __popc(x);
    }
    rows = warp_sum(rows);
    if (lane_id() == 0 && rows) atomicAdd(&a.range->rows, rows);
}

// Ranked describes 32 keys of a range: which of them exist, and how many keys exist before them.
struct __align__(8) Ranked {
    u32 bits, before;
};

struct RankArgs {
    const void* keys;
    const u32* valid;
    Ranked* ranks;  // null: every key of the range exists
    i32* counts;    // keys of each word, then the number of keys before it
    i32* numbers;   // number of each row's key, -1 without a key
    i64 low;        // the smallest key
    u64 span;       // keys of the range
    i64 n;          // rows or words
    i32 load;
};

KERNEL(rank_bits, RankArgs) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i)) return;
    u64 slot = load_word(a.keys, a.load, i) - (u64)a.low;
    atomicOr(&a.ranks[slot >> 5].bits, 1u << (slot & 31));
}

KERNEL(rank_counts, RankArgs) {
    i64 w = global_thread();
    if (w < a.n) a.counts[w] = __popc(a.ranks[w].bits);
}

KERNEL(rank_before, RankArgs) {
    i64 w = global_thread();
    if (w < a.n) a.ranks[w].before = a.counts[w];
}

// rank returns the number of the key of row i, or -1.
DEVICE i32 rank(const RankArgs& a, i64 i) {
    if (!bit(a.valid, i)) return -1;
    u64 slot = load_word(a.keys, a.load, i) - (u64)a.low;
    if (slot >= a.span) return -1;
    if (!a.ranks) return (i32)slot;
    Ranked r = a.ranks[slot >> 5];
    u32 shift = slot & 31;
    if (!(r.bits >> shift & 1)) return -1;
    return (i32)(r.before + __popc(r.bits & ((1u << shift) - 1)));
}

KERNEL(rank_numbers, RankArgs) {
    i64 i = global_thread();
    if (i < a.n) a.numbers[i] = rank(a, i);
}

// The rows of each number.
struct RowsArgs {
    const i32* numbers;
    i32* entries; // build rows, ordered by number and then by row
    i32* start;   // where a number's rows begin
    i64 n;
    i32 dead;     // rows without a number, which precede the others
};

KERNEL(rows_unique, RowsArgs) {
    i64 i = global_thread();
    if (i < a.n && a.numbers[i] >= 0) a.entries[a.numbers[i]] = (i32)i;
}

// rows_start writes where each run of rows with one number begins and ends.
KERNEL(rows_start, RowsArgs) {
    i64 k = global_thread();
    if (k < a.n) {
        i32 number = a.numbers[a.entries[k]];
        if (k == 0 || a.numbers[a.entries[k - 1]] != number) a.start[number] = (i32)k;
        if (k == a.n - 1) a.start[number + 1] = (i32)a.n;
    }
}

// A table of rows finds unique keys of 8 bytes. A slot has 32 bits. The low bits contain the row plus one, the bits
// above them a part of the hash. 0 is an empty slot, so no key is reserved. The key itself is in the column of the
// build side. Buckets of 8 slots, one sector of memory each, are filled in order, and a search ends at an empty slot.
// So a probe costs one random access to a sector and one to the key. The table takes 5 bytes a row, an index 21.
constexpr u32 BUCKET = 8;

struct RowTableArgs {
    u32* slots;
    const u64* keys;      // of the build side
    const u64* rows;      // keys of the rows to insert or look up
    const u32* valid;     // rows that have a key
    i32* duplicate;       // insert: set if two rows have the same key
    u64 seed;
    i64 n;                // rows
    u32 buckets;
    u32 row_bits;         // of a slot
};

// seek calls f with each slot that may have a key, and with the part of the hash, until f returns true.
template <class F>
DEVICE void seek(const RowTableArgs& a, u64 key, F f) {
    u64 hash = mix<TABLE_MIX>(key, a.seed);
    u32 tag = (u32)hash >> a.row_bits << a.row_bits, b = __umulhi((u32)(hash >> 32), a.buckets);
    for (u32 step = 0; step < a.buckets; step++) {
        u32* bucket = a.slots + (u64)b * BUCKET;
        u32 slots[BUCKET];
        *(uint4*)slots = *(const uint4*)bucket;
        *(uint4*)(slots + 4) = *(const uint4*)(bucket + 4);
#pragma unroll
        for (u32 k = 0; k < BUCKET; k++)
            if (f(bucket + k, slots[k], tag)) return;
        b = b + 1 == a.buckets ? 0 : b + 1;
    }
}

// has reports whether a slot has a key.
DEVICE bool has(const RowTableArgs& a, u32 slot, u32 tag, u64 key, u32& row) {
    row = (slot & (1u << a.row_bits) - 1) - 1;
    return slot >> a.row_bits == tag >> a.row_bits && a.keys[row] == key;
}

// rows_insert inserts the build rows. Another thread may have filled a slot that was empty when it was read. That slot
// may have the same key; otherwise the search continues.
KERNEL(rows_insert, RowTableArgs) {
    i64 i = global_thread();
    if (i >= a.n || !bit(a.valid, i) || *static_cast<volatile i32*>(a.duplicate)) return;
    u64 key = streamed<u64>(a.rows, i);
    seek(a, key, [&](u32* at, u32 slot, u32 tag) {
        if (slot == 0) slot = atomicCAS(at, 0u, tag | (u32)(i + 1));
        if (slot == 0) return true;
        u32 row;
        if (!has(a, slot, tag, key, row)) return false;
        *a.duplicate = 1;
        return true;
    });
}

// Probes.
constexpr int PROBE_THREADS = 256, PROBE_ROWS = 8, PROBE_TILE = PROBE_THREADS * PROBE_ROWS;
constexpr i64 PROBE_CHUNK = 8192; // pairs that a block writes if a row may have several

struct ProbeArgs {
    IndexArgs index;
    RankArgs ranks;
    RowTableArgs rows;
    i32* numbers;       // of the rows
    const i32* start;   // null: each number has one row
    const i32* entries; // null: the number is the row
    i64* pairs;         // pairs of each tile, then the pairs before it, and the total at the end
    i32* probe;         // pairs [from, to)
    i32* build;
    u32* matched;       // bitmap of the rows
    i64 n;              // rows
    i64 from, to;
    i32 tiles;
};

DEVICE i64 matches(const ProbeArgs& a, i32 number) {
    return number < 0 ? 0 : a.start ? a.start[number + 1] - a.start[number] : 1;
}

struct Ranks {
    DEVICE i32 number(const ProbeArgs& a, i64 i) { return rank(a.ranks, i); }
};

template <class Key>
struct Hashed {
    DEVICE i32 number(const ProbeArgs& a, i64 i) { return find<Key>(a.index, i); }
};

struct ByRow {
    DEVICE i32 number(const ProbeArgs& a, i64 i) {
        i32 number = -1;
        if (!bit(a.rows.valid, i)) return number;
        u64 key = streamed<u64>(a.rows.rows, i);
        seek(a.rows, key, [&](u32*, u32 slot, u32 tag) {
            u32 row;
            if (slot != 0 && !has(a.rows, slot, tag, key, row)) return false;
            if (slot != 0) number = (i32)row;
            return true;
        });
        return number;
    }
};

// The numbers of these rows were found earlier, by merge.cu.
struct Numbered {
    DEVICE i32 number(const ProbeArgs& a, i64 i) { return a.numbers[i]; }
};

template <class Numbers>
DEVICE void probe_find(const ProbeArgs& a) {
    __shared__ i64 warps[33];
    i64 base = (i64)blockIdx.x * PROBE_TILE + threadIdx.x, pairs = 0;
    i32 numbers[PROBE_ROWS];
#pragma unroll
    for (int k = 0; k < PROBE_ROWS; k++) {
        i64 i = base + k * PROBE_THREADS;
        numbers[k] = i < a.n ? Numbers::number(a, i) : -1;
    }
#pragma unroll
    for (int k = 0; k < PROBE_ROWS; k++) {
        i64 i = base + k * PROBE_THREADS;
        if (i < a.n) {
            a.numbers[i] = numbers[k];
            pairs += matches(a, numbers[k]);
        }
    }
    pairs = block_sum(pairs, warps);
    if (threadIdx.x == 0) a.pairs[blockIdx.x] = pairs;
}

KERNEL_BOUNDS(probe_ranks, ProbeArgs, PROBE_THREADS, 1) { probe_find<Ranks>(a); }
KERNEL_BOUNDS(probe_exact, ProbeArgs, PROBE_THREADS, 1) { probe_find<Hashed<Exact>>(a); }
KERNEL_BOUNDS(probe_words, ProbeArgs, PROBE_THREADS, 1) { probe_find<Hashed<Words>>(a); }
KERNEL_BOUNDS(probe_rows, ProbeArgs, PROBE_THREADS, 1) { probe_find<ByRow>(a); }
KERNEL_BOUNDS(probe_numbered, ProbeArgs, PROBE_THREADS, 1) { probe_find<Numbered>(a); }

// probe_starts computes the number of pairs before each tile, in one block.
KERNEL_BOUNDS(probe_starts, ProbeArgs, 1024, 1) {
    __shared__ i64 warps[33];
    i64 before = 0;
    for (i32 base = 0; base < a.tiles; base += blockDim.x) {
        i32 t = base + (i32)threadIdx.x;
        i64 mine = t < a.tiles ? a.pairs[t] : 0, total, at = before + block_exclusive(mine, warps, total);
        if (t < a.tiles) a.pairs[t] = at;
        before += total;
    }
    if (threadIdx.x == 0) a.pairs[a.tiles] = before;
}

// probe_matched writes the bitmap of the rows with a match, in whole words of 64 rows.
KERNEL(probe_matched, ProbeArgs) {
    i64 i = global_thread();
    u32 word = __ballot_sync(ALL, i < a.n && a.numbers[i] >= 0);
    if (lane_id() == 0 && i < (a.n + 63) / 64 * 64) a.matched[i / 32] = word;
}

// tile_offsets computes the position of each row of a tile among the pairs of the tile, and the end of the last.
template <class T>
DEVICE void tile_offsets(const ProbeArgs& a, i64 first, T* offsets, T* warps) {
    for (int k = 0; k < PROBE_ROWS; k++) {
        int r = k * PROBE_THREADS + threadIdx.x;
        offsets[r] = first + r < a.n ? (T)matches(a, a.numbers[first + r]) : 0;
    }
    __syncthreads();
    T sum = 0, counts[PROBE_ROWS], total;
    for (int k = 0; k < PROBE_ROWS; k++) sum += counts[k] = offsets[threadIdx.x * PROBE_ROWS + k];
    T at = block_exclusive(sum, warps, total);
    for (int k = 0; k < PROBE_ROWS; k++) {
        offsets[threadIdx.x * PROBE_ROWS + k] = at;
        at += counts[k];
    }
    if (threadIdx.x == 0) offsets[PROBE_TILE] = total;
    __syncthreads();
}

// emit writes pair p: a row and its match j.
DEVICE void emit(const ProbeArgs& a, i64 p, i64 row, i64 j) {
    i32 number = a.numbers[row];
    i64 entry = a.start ? a.start[number] + j : number;
    a.probe[p - a.from] = (i32)row;
    a.build[p - a.from] = a.entries ? a.entries[entry] : (i32)entry;
}

// Each row has at most one pair. A block writes the pairs of a tile.
KERNEL_BOUNDS(probe_write, ProbeArgs, PROBE_THREADS, 1) {
    __shared__ i32 offsets[PROBE_TILE + 1];
    __shared__ i32 warps[33];
    i64 first = (i64)blockIdx.x * PROBE_TILE, before = a.pairs[blockIdx.x];
    if (before >= a.to || a.pairs[blockIdx.x + 1] <= a.from) return;
    tile_offsets(a, first, offsets, warps);
    for (int k = 0; k < PROBE_ROWS; k++) {
        int r = k * PROBE_THREADS + threadIdx.x;
        i64 p = before + offsets[r];
        if (offsets[r] < offsets[r + 1] && p >= a.from && p < a.to) emit(a, p, first + r, 0);
    }
}

// A row may have many pairs. A block writes a chunk of the range. Neighbouring threads write neighbouring pairs.
KERNEL_BOUNDS(probe_write_many, ProbeArgs, PROBE_THREADS, 1) {
    __shared__ i64 offsets[PROBE_TILE + 1];
    __shared__ i64 warps[33];
    const i64 begin = a.from + (i64)blockIdx.x * PROBE_CHUNK, end = min(begin + PROBE_CHUNK, a.to);
    i32 tile = 0, high = a.tiles; // the last tile whose pairs begin at or before the chunk
    while (high - tile > 1) {
        i32 mid = (tile + high) / 2;
        (a.pairs[mid] <= begin ? tile : high) = mid;
    }
    for (; tile < a.tiles && a.pairs[tile] < end; tile++) {
        const i64 before = a.pairs[tile], first = (i64)tile * PROBE_TILE;
        tile_offsets(a, first, offsets, warps);
        const i64 last = min(end - before, offsets[PROBE_TILE]);
        for (i64 p = max(begin - before, (i64)0) + threadIdx.x; p < last; p += PROBE_THREADS) {
            int row = 0, past = PROBE_TILE; // the last row whose pairs begin at or before p
            while (past - row > 1) {
                int mid = (row + past) / 2;
                (offsets[mid] <= p ? row : past) = mid;
            }
            emit(a, before + p, first + row, p - offsets[row]);
        }
        __syncthreads();
    }
}
