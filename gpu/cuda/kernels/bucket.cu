// Bucket-chain partitioning (Sioulas et al., ICDE 2019; the PHJ-UR of Wu et al., SIGMOD 2025,
// §3.1.2): atomics append the keys and row ids of a partition to its last bucket. The block
// whose rows do not fit it allocates the next bucket. Meanwhile other blocks with rows of the
// partition wait, for long if many rows have few keys. The order of the rows differs from run
// to run.
//
// Atomics count the rows of a tile by digit in shared memory. The tile is sorted by digit there,
// so the rows of a partition are written together. The tiles of a second pass are the buckets of
// the first.
//
// Bytes of a pass: the key read, and in the second pass the row id; both written.
#include "join.cuh"

constexpr u32 BUCKET_THREADS = 512;
constexpr int BUCKET_ITEMS = 4;
constexpr u32 BUCKET_ROWS = BUCKET_THREADS * BUCKET_ITEMS; // rows of a bucket and of a tile
constexpr u32 BUCKET_WAYS = 256;                           // most partitions of a pass

struct BucketArgs {
    const void* key;
    const u32* valid; // first pass: rows with a null are left out; null: no nulls
    const u32* rows;  // second pass: by slot
    const u32* owner; // second pass: the partition of each bucket
    const u64* full;  // second pass: by partition, its last bucket and the rows in it
    void* toKey;      // by slot
    u32* toRows;
    u32* toOwner;
    u64* heads; // by partition: its last bucket in the low bits, the rows in it above
    u32* used;  // buckets
    u64 mul;    // odd; keys are multiplied by it
    i64 n;      // rows
    const u32* buckets; // second pass: number of buckets of the first
    u32 shift, mask; // select the number of the partition
    u32 bits;        // of the digit of this pass
    u32 unused;
};

template <class K>
DEVICE u32 bucket_partition(const BucketArgs& a, K key) { return (u32)((K)(key * (K)a.mul) >> a.shift) & a.mask; }

// Piece tells where the rows that a tile has of a partition are written: the first rows, and the others.
struct Piece {
    u32 slot, rows, then;
};

// append reserves room for rows, at most as many as a bucket has.
DEVICE Piece append(const BucketArgs& a, u32 partition, u32 rows) {
    for (;;) {
        if ((u32)(*(volatile u64*)&a.heads[partition] >> 32) <= BUCKET_ROWS) {
            const u64 old = atomicAdd(&a.heads[partition], (u64)rows << 32);
            const u32 full = (u32)(old >> 32), bucket = (u32)old;
            if (full + rows <= BUCKET_ROWS) return {bucket * BUCKET_ROWS + full, rows, 0};
            if (full <= BUCKET_ROWS) {
                const u32 fresh = atomicAdd(a.used, 1u), fit = BUCKET_ROWS - full;
                a.toOwner[fresh] = partition;
                atomicExch(&a.heads[partition], (u64)(rows - fit) << 32 | fresh);
                return {bucket * BUCKET_ROWS + full, fit, fresh * BUCKET_ROWS};
            }
        }
        __nanosleep(32); // another block allocates a bucket
    }
}

template <class K>
DEVICE void bucket_pass(const BucketArgs& a) {
    __shared__ K key[BUCKET_ROWS];
    __shared__ u32 rows[BUCKET_ROWS], count[BUCKET_WAYS], start[BUCKET_WAYS], sums[33];
    __shared__ Piece piece[BUCKET_WAYS];
    const u32 ways = 1u << a.bits, tiles = a.buckets ? *a.buckets : (u32)((a.n + BUCKET_ROWS - 1) / BUCKET_ROWS);
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (threadIdx.x < ways) count[threadIdx.x] = 0;
        __syncthreads();
        u32 n = (u32)min((i64)BUCKET_ROWS, a.n - (i64)tile * BUCKET_ROWS), first = 0;
        if (a.owner) { // the tile is a bucket of the first pass
            const u64 last = a.full[a.owner[tile]];
            n = (u32)last == tile ? (u32)(last >> 32) : BUCKET_ROWS;
            first = a.owner[tile] << a.bits;
        }
        K k[BUCKET_ITEMS];
        u32 row[BUCKET_ITEMS], digit[BUCKET_ITEMS], rank[BUCKET_ITEMS];
#pragma unroll
        for (int i = 0; i < BUCKET_ITEMS; i++) {
            const u32 r = i * BUCKET_THREADS + threadIdx.x, slot = tile * BUCKET_ROWS + r;
            digit[i] = NONE;
            if (r >= n || !bit(a.valid, slot)) continue;
            k[i] = ((const K*)a.key)[slot];
            row[i] = a.rows ? a.rows[slot] : slot;
            digit[i] = bucket_partition(a, k[i]) - first;
            rank[i] = atomicAdd(&count[digit[i]], 1u);
        }
        __syncthreads();
        u32 total;
        const u32 mine = threadIdx.x < ways ? count[threadIdx.x] : 0, begin = block_exclusive(mine, sums, total);
        if (threadIdx.x < ways) start[threadIdx.x] = begin;
        if (mine) piece[threadIdx.x] = append(a, first + threadIdx.x, mine);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BUCKET_ITEMS; i++) {
            if (digit[i] == NONE) continue;
            key[start[digit[i]] + rank[i]] = k[i];
            rows[start[digit[i]] + rank[i]] = row[i];
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < total; i += BUCKET_THREADS) {
            const u32 d = bucket_partition(a, key[i]) - first, r = i - start[d];
            const Piece to = piece[d];
            const u32 slot = r < to.rows ? to.slot + r : to.then + (r - to.rows);
            ((K*)a.toKey)[slot] = key[i];
            a.toRows[slot] = rows[i];
        }
        __syncthreads();
    }
}
KERNEL_BOUNDS(bucket_pass_k4, BucketArgs, BUCKET_THREADS, 2) { bucket_pass<u32>(a); }
KERNEL_BOUNDS(bucket_pass_k8, BucketArgs, BUCKET_THREADS, 2) { bucket_pass<u64>(a); }

struct BucketHeadsArgs {
    u64* heads;
    u32 partitions;
};

// bucket_heads gives every partition a full bucket that does not exist.
KERNEL(bucket_heads, BucketHeadsArgs) {
    const u32 p = (u32)global_thread();
    if (p < a.partitions) a.heads[p] = (u64)BUCKET_ROWS << 32 | NONE;
}

struct BucketEndArgs {
    const u32* owner;
    const u64* heads;
    u32* valid;   // by slot, 32 a word: whether it has a row
    u32* offsets; // of the partitions: buckets before them, then positions
    u32* key;     // by slot, of words 4-byte words
    u32* rows;
    u32 buckets, partitions;
    u32 words, unused;
};

KERNEL(bucket_end, BucketEndArgs) {
    const u32 i = (u32)global_thread();
    if (i <= a.partitions) a.offsets[i] *= BUCKET_ROWS;
    if (i >= a.buckets * (BUCKET_ROWS / 32)) return;
    const u32 bucket = i / (BUCKET_ROWS / 32), at = i % (BUCKET_ROWS / 32) * 32;
    const u64 last = a.heads[a.owner[bucket]];
    const u32 rows = (u32)last == bucket ? (u32)(last >> 32) : BUCKET_ROWS;
    a.valid[i] = rows >= at + 32 ? ~0u : rows > at ? (1u << (rows - at)) - 1 : 0;
    for (u32 r = max(rows, at); r < at + 32; r++) { // rows that no block wrote
        const u64 slot = (u64)bucket * BUCKET_ROWS + r;
        a.rows[slot] = 0;
        for (u32 w = 0; w < a.words; w++) a.key[slot * a.words + w] = 0;
    }
}
