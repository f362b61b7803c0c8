// The join of partitioned sides (PHJ of Wu et al., SIGMOD 2025, §4): one block a
// work item builds a chained hash table of a part of a build partition in shared
// memory and probes it with a part of the probe partition. Pairs are counted, and
// written when their places are known.
//
// Bytes: keys of both sides twice, 8 a pair written.
#include "common.cuh"

// JoinItem is a piece of work: rows of one partition of both sides. The build
// rows are at most JOIN_BUILD.
struct JoinItem {
    u32 buildFrom, buildTo, probeFrom, probeTo;
};

struct JoinArgs {
    u64 build; // keys, partitioned
    u64 probe;
    const u32* buildValid; // null: no nulls
    const u32* probeValid;
    const JoinItem* items;
    i64* counts;     // pairs of each item; for join_write where they begin
    u32* probeIDs;
    u32* buildIDs;
    u32* matched;    // zeroed bitmap of the probe rows that have a match
};

constexpr u32 JOIN_THREADS = 1024, JOIN_ITEMS = 3; // rows a thread probes at a time
constexpr u32 JOIN_BUILD = 9216;
constexpr u16 JOIN_END = 0xffff;

// As many buckets as leave room for two blocks a multiprocessor.
template <class K>
constexpr u32 join_bits = sizeof(K) == 4 ? 13 : 12;

// join_bucket takes bits that partitioning by a hash or by the key itself leaves
// different: the upper ones of a product.
DEVICE u32 join_bucket(u32 key) { return key * 0x9e3779b1u >> (32 - join_bits<u32>); }
DEVICE u32 join_bucket(u64 key) { return (u32)((key ^ key >> 32) * 0x9e3779b97f4a7c15ull >> (64 - join_bits<u64>)); }

// JoinTable is a chained hash table in shared memory; joinShared in Go counts its
// bytes.
template <class K>
struct JoinTable {
    K* key;    // by place
    u32* head; // by bucket: the place of its last row, or JOIN_END
    u16* next; // by place: the row before it in the bucket, or JOIN_END

    __device__ __forceinline__ JoinTable(K* memory) {
        key = memory;
        head = (u32*)(key + JOIN_BUILD);
        next = (u16*)(head + (1 << join_bits<K>));
    }

    __device__ __forceinline__ void build(const JoinArgs& a, const JoinItem& item) {
        for (u32 b = threadIdx.x; b < 1 << join_bits<K>; b += JOIN_THREADS) head[b] = JOIN_END;
        __syncthreads();
        const K* keys = (const K*)a.build + item.buildFrom;
        const u32 n = item.buildTo - item.buildFrom;
#pragma unroll 4
        for (u32 i = threadIdx.x; i < n; i += JOIN_THREADS) {
            K k = keys[i];
            key[i] = k;
            if (bit(a.buildValid, item.buildFrom + i)) next[i] = (u16)atomicExch(&head[join_bucket(k)], i);
        }
        __syncthreads();
    }

    // find returns the first place of a key from a place on, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 at) const {
        while (at != JOIN_END && key[at] != k) at = next[at];
        return at;
    }
};

// probe_rows looks up a thread's rows of a piece, 32 apart: the first match of
// each and how many there are.
template <class K>
DEVICE void probe_rows(const JoinArgs& a, const JoinItem& item, const JoinTable<K>& table, u32 row, K (&k)[JOIN_ITEMS], u32 (&first)[JOIN_ITEMS], u32 (&count)[JOIN_ITEMS]) {
    const K* keys = (const K*)a.probe;
#pragma unroll
    for (u32 i = 0; i < JOIN_ITEMS; i++) {
        u32 r = row + 32 * i;
        bool valid = r < item.probeTo && bit(a.probeValid, r);
        if (valid) k[i] = keys[r];
        first[i] = valid ? table.head[join_bucket(k[i])] : JOIN_END;
    }
#pragma unroll
    for (u32 i = 0; i < JOIN_ITEMS; i++) {
        count[i] = 0;
        first[i] = table.find(k[i], first[i]);
        for (u32 at = first[i]; at != JOIN_END; at = table.find(k[i], table.next[at])) count[i]++;
    }
}

// The rows of a piece go round the threads as in a partition: (warp, item, lane)
// is their order.
DEVICE u32 join_first_row() { return warp_id() * (32 * JOIN_ITEMS) + lane_id(); }

template <class K>
DEVICE void join_count(const JoinArgs& a, K* shared) {
    const JoinItem item = a.items[blockIdx.x];
    JoinTable<K> table(shared);
    table.build(a, item);
    u32 total = 0;
    for (u32 row = item.probeFrom + join_first_row(); row - join_first_row() < item.probeTo; row += JOIN_THREADS * JOIN_ITEMS) {
        K k[JOIN_ITEMS];
        u32 first[JOIN_ITEMS], count[JOIN_ITEMS];
        probe_rows(a, item, table, row, k, first, count);
#pragma unroll
        for (u32 i = 0; i < JOIN_ITEMS; i++) total += count[i];
    }
    // A count may need more than 32 bits: JOIN_BUILD × rows of the piece.
    i64 sum = warp_sum((i64)total);
    i64* sums = (i64*)shared;
    __syncthreads();
    if (lane_id() == 0) sums[warp_id()] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 w = 1; w < JOIN_THREADS / 32; w++) sum += sums[w];
        a.counts[blockIdx.x] = sum;
    }
}

template <class K>
DEVICE void join_write(const JoinArgs& a, K* shared) {
    __shared__ u32 warps[33];
    const JoinItem item = a.items[blockIdx.x];
    JoinTable<K> table(shared);
    table.build(a, item);
    i64 base = a.counts[blockIdx.x];
    for (u32 row = item.probeFrom + join_first_row(); row - join_first_row() < item.probeTo; row += JOIN_THREADS * JOIN_ITEMS) {
        K k[JOIN_ITEMS];
        u32 first[JOIN_ITEMS], count[JOIN_ITEMS], place[JOIN_ITEMS], mine = 0;
        probe_rows(a, item, table, row, k, first, count);
        // Places within the warp, item by item.
#pragma unroll
        for (u32 i = 0; i < JOIN_ITEMS; i++) {
            u32 through = warp_inclusive(count[i]);
            place[i] = mine + through - count[i];
            mine += __shfl_sync(ALL, through, 31);
        }
        u32 total, warp = block_exclusive(lane_id() == 0 ? mine : 0, warps, total);
        i64 at = base + __shfl_sync(ALL, warp, 0);
        base += total;
#pragma unroll
        for (u32 i = 0; i < JOIN_ITEMS; i++) {
            i64 to = at + place[i];
            for (u32 m = first[i]; m != JOIN_END; m = table.find(k[i], table.next[m])) {
                a.probeIDs[to] = row + 32 * i;
                a.buildIDs[to++] = item.buildFrom + m;
            }
        }
    }
}

// join_mark sets the bits of the probe rows that have a match.
template <class K>
DEVICE void join_mark(const JoinArgs& a, K* shared) {
    const JoinItem item = a.items[blockIdx.x];
    JoinTable<K> table(shared);
    table.build(a, item);
    for (u32 row = item.probeFrom + threadIdx.x; row - threadIdx.x < item.probeTo; row += JOIN_THREADS) {
        bool found = false;
        if (row < item.probeTo && bit(a.probeValid, row)) {
            K k = ((const K*)a.probe)[row];
            found = table.find(k, table.head[join_bucket(k)]) != JOIN_END;
        }
        u32 rows = __ballot_sync(ALL, found), first = row - lane_id();
        u64 bits = (u64)rows << first % 32;
        if (lane_id() == 0 && (u32)bits) atomicOr(&a.matched[first / 32], (u32)bits);
        if (lane_id() == 1 && bits >> 32) atomicOr(&a.matched[first / 32 + 1], (u32)(bits >> 32));
    }
}

struct JoinStartsArgs {
    i64* counts; // replaced by where the pairs of each item begin; the total behind
    i64 n;
};

// One block.
KERNEL_BOUNDS(join_starts, JoinStartsArgs, 1024, 1) {
    __shared__ i64 warps[33];
    i64 before = 0;
    for (i64 base = 0; base < a.n; base += blockDim.x) {
        i64 i = base + threadIdx.x, v = i < a.n ? a.counts[i] : 0, total;
        i64 at = before + block_exclusive(v, warps, total);
        if (i < a.n) a.counts[i] = at;
        before += total;
    }
    if (threadIdx.x == 0) a.counts[a.n] = before;
}

struct JoinInvertArgs {
    u32* bits;    // a bitmap of n rows, in whole 64-bit words
    i64 n;
    i64 from, to; // rows outside become 0
};

// join_invert leaves the bits of the rows that had none.
KERNEL(join_invert, JoinInvertArgs) {
    for (i64 w = global_thread(); w < (a.n + 63) / 64 * 2; w += grid_threads()) {
        i64 from = max(a.from - 32 * w, (i64)0), to = min(a.to - 32 * w, (i64)32);
        u32 mask = from < to ? ALL >> (32 - (to - from)) << from : 0;
        a.bits[w] = ~a.bits[w] & mask;
    }
}

#define JOIN(name, K, k) \
    KERNEL_BOUNDS(name##_##k, JoinArgs, JOIN_THREADS, 2) { \
        SHARED(K, shared); \
        name<K>(a, shared); \
    }
JOIN(join_count, u32, k4)
JOIN(join_count, u64, k8)
JOIN(join_write, u32, k4)
JOIN(join_write, u64, k8)
JOIN(join_mark, u32, k4)
JOIN(join_mark, u64, k8)
