// The probe stage of the radix hash join (Rui & Tu, SSDBM 2017, §3.2.2) with its three write strategies for pairs. A
// block makes a hash table of the build rows of a work item in shared memory. Each thread holds a few probe rows in
// registers.
//
//   exact   counts the pairs of each item, computes their start by a scan, and probes again to write them (double probe)
//   pages   each thread writes into a small page of its own, and takes the next page from a global pointer
//   direct  each block writes into a span of its own, with one pointer in shared memory; pairs that a warp finds
//           together are contiguous
//
// Pages and spans that are not full at the end leave gaps. The last pairs are moved into the gaps.
//
// Bytes: the keys of both sides, twice for exact, and 8 a pair.
#include "join.cuh"

constexpr u32 RADIX_THREADS = 512;
constexpr int RADIX_ROWS = 4;       // probe rows of a thread
constexpr u32 RADIX_SPAN = 2048;    // pairs of a span
constexpr u32 RADIX_BUCKET = 2048;  // rows of a bucket, see bucket.cu

struct RadixState {
    JoinState join;    // its pairs: the slots of all pages and spans that were given out
    u32 holes;         // slots without a pair in these
    u32 below, behind; // holes before the end of the pairs, pairs after the end
    u32 unused[3];     // pads to a multiple of 16 bytes, where tables begin
};

// RadixThread tells where a thread stopped in a chunk.
struct RadixThread {
    u32 row; // the rows before it are finished
    u32 at;  // next match of the row; JOIN_END: its first
};

struct RadixArgs {
    u64 build; // keys
    u64 probe;
    const u32* buildValid; // null: no nulls
    const u32* probeValid;
    const u32* buildChain; // the buckets of the rows, in order; null: the rows are contiguous
    const u32* probeChain;
    const JoinItem* items;
    RadixState* state;
    JoinPlace* places;    // by block
    RadixThread* threads; // by thread of the grid
    u8* tables;           // by block: its shared memory when it stopped; a new table might have other chains
    u64* counts;  // pairs of each item; after radix_starts, the pairs before it
    u32* matched; // bitmap of the probe rows with a match
    u32* outProbe;
    u32* outBuild;
    u32* holes;
    u64 limit; // most pairs
    u64 base;  // exact: pairs that earlier calls have written
    u64 mul;   // odd; the bucket of a key is part of its product with it
    u32 capacity; // build rows of a table
    u32 bits;     // log2 of the number of its buckets
    u32 unique;   // 1: the build keys are distinct
    u32 page;     // pairs of a page
    u32 next, head; // offsets in shared memory, where the keys are at 0
    u32 shared;     // bytes of shared memory, a multiple of 16
    u32 unused;
};

enum RadixWay { RADIX_COUNT, RADIX_EXACT, RADIX_PAGES, RADIX_DIRECT, RADIX_MARK };

// row_at returns the row at a position of a side.
DEVICE u32 row_at(const u32* chain, u32 place) { return chain ? chain[place / RADIX_BUCKET] * RADIX_BUCKET + place % RADIX_BUCKET : place; }

DEVICE void hole(const RadixArgs& a, u64 slot) {
    if (slot >= a.limit) return;
    a.outProbe[slot] = NONE;
    a.holes[atomicAdd(&a.state->holes, 1u)] = (u32)slot;
}

// Room tells where a thread writes its pairs. The lower half of span counts the used slots of the block's span, the
// upper half is its first slot. For exact, span is the next slot.
template <RadixWay WAY>
struct Room {
    const RadixArgs& a;
    u64* span;
    u64 page;
    u32 used; // pairs in the page

    __device__ __forceinline__ Room(const RadixArgs& args, u64* s) : a(args), span(s), page(0), used(args.page) {}

    // take returns the first of n contiguous slots.
    __device__ __forceinline__ u64 take(u32 n) {
        const u64 old = atomicAdd(span, (u64)n);
        if (WAY == RADIX_EXACT) return old;
        const u32 taken = (u32)old;
        if (taken + n <= RADIX_SPAN) return (old >> 32) + taken;
        if (taken > RADIX_SPAN) return atomicAdd(&a.state->join.pairs, (u64)n); // another warp fetches the next span
        const u64 next = atomicAdd(&a.state->join.pairs, (u64)RADIX_SPAN);
        atomicExch(span, next << 32 | n);
        for (u32 i = taken; i < RADIX_SPAN; i++) hole(a, (old >> 32) + i);
        return next;
    }

    // claim returns the slot for a thread's pair. All threads of a warp call it. A slot of a.limit or more means that
    // there is no room.
    __device__ __forceinline__ u64 claim(bool has) {
        if (WAY == RADIX_PAGES) {
            if (!has) return ~0ull;
            if (used == a.page) {
                page = atomicAdd(&a.state->join.pairs, (u64)a.page);
                used = 0;
            }
            return page + used++;
        }
        const u32 who = __ballot_sync(ALL, has);
        u64 first = 0;
        if (lane_id() == 0) first = take(__popc(who));
        return __shfl_sync(ALL, first, 0) + __popc(who & lanes_below());
    }

    // end gives up the unused slots of the page and of the span. All threads of the block call it after a barrier.
    __device__ __forceinline__ void end() {
        if (WAY == RADIX_PAGES)
            for (u32 i = used; i < a.page; i++) hole(a, page + i);
        if (WAY == RADIX_DIRECT)
            for (u32 i = min((u32)*span, RADIX_SPAN) + threadIdx.x; i < RADIX_SPAN; i += RADIX_THREADS) hole(a, (*span >> 32) + i);
    }
};

template <class K>
DEVICE u32 radix_bucket(const RadixArgs& a, K key) {
    return sizeof(K) == 4 ? (u32)key * (u32)a.mul >> (32 - a.bits) : (u32)((u64)key * a.mul >> (64 - a.bits));
}

template <class K, RadixWay WAY>
DEVICE void radix_probe(const RadixArgs& a, u8* shared) {
    __shared__ u32 taken;
    __shared__ u64 span, sums[33];
    const Chains<K> t = {(const K*)shared, (u16*)(shared + a.next), (u32*)(shared + a.head)};
    constexpr u32 CHUNK = RADIX_THREADS * RADIX_ROWS;
    JoinPlace place = a.places[blockIdx.x];
    uint4* table = (uint4*)(a.tables + (u64)blockIdx.x * a.shared);
    RadixThread& saved = a.threads[(u64)blockIdx.x * RADIX_THREADS + threadIdx.x];
    Room<WAY> room(a, &span);
    if (threadIdx.x == 0) span = RADIX_SPAN; // full
    for (bool resumed = place.item != NONE;; resumed = false) {
        if (threadIdx.x == 0) taken = resumed ? place.item : atomicAdd(&a.state->join.taken, 1u);
        __syncthreads();
        place.item = taken;
        if (place.item >= a.state->join.items) break;
        const JoinItem item = a.items[place.item];
        if (!resumed) {
            place.table = item.buildFrom;
            place.probe = item.probeFrom;
            place.next = NONE; // there is no table
        }
        if (WAY == RADIX_EXACT) {
            const u64 begin = max(a.counts[place.item], a.base) - a.base;
            if (begin >= a.limit) { // the item is joined by a later call
                if (!resumed) saved = {0, JOIN_END};
                if (threadIdx.x == 0) a.places[blockIdx.x] = place;
                return;
            }
            if (threadIdx.x == 0) span = begin;
        }
        u64 pairs = 0; // of the thread
        for (; place.table < item.buildTo; place.table += a.capacity, place.probe = item.probeFrom) {
            const u32 rows = min(a.capacity, item.buildTo - place.table);
            const bool made = place.next != NONE;
            place.next = NONE;
            for (u32 i = threadIdx.x; made && i < a.shared / 16; i += RADIX_THREADS) ((uint4*)shared)[i] = table[i];
            for (u32 b = threadIdx.x; !made && b < 1u << a.bits; b += RADIX_THREADS) t.head[b] = JOIN_END;
            __syncthreads();
            for (u32 r = threadIdx.x; !made && r < rows; r += RADIX_THREADS) {
                const u32 row = row_at(a.buildChain, place.table + r);
                if (!bit(a.buildValid, row)) continue;
                const K k = ((const K*)a.build)[row];
                ((K*)shared)[r] = k;
                t.next[r] = (u16)atomicExch(&t.head[radix_bucket(a, k)], r);
            }
            __syncthreads();
            for (; place.probe < item.probeTo; place.probe += CHUNK, resumed = false) {
                K k[RADIX_ROWS];
                u32 row[RADIX_ROWS], at[RADIX_ROWS];
#pragma unroll
                for (int i = 0; i < RADIX_ROWS; i++) {
                    const u32 p = place.probe + i * RADIX_THREADS + threadIdx.x;
                    at[i] = JOIN_END;
                    k[i] = 0;
                    row[i] = 0;
                    if (p >= item.probeTo) continue;
                    row[i] = row_at(a.probeChain, p);
                    if (!bit(a.probeValid, row[i])) continue;
                    k[i] = ((const K*)a.probe)[row[i]];
                    at[i] = t.head[radix_bucket(a, k[i])];
                }
#pragma unroll
                for (int i = 0; i < RADIX_ROWS; i++) at[i] = t.find(k[i], at[i]);
                if (WAY == RADIX_MARK) {
#pragma unroll
                    for (int i = 0; i < RADIX_ROWS; i++)
                        if (at[i] != JOIN_END) atomicOr(&a.matched[row[i] / 32], 1u << row[i] % 32);
                    continue;
                }
                if (WAY == RADIX_COUNT) {
#pragma unroll
                    for (int i = 0; i < RADIX_ROWS; i++)
                        for (; at[i] != JOIN_END; pairs++) at[i] = a.unique ? JOIN_END : t.find(k[i], t.next[at[i]]);
                    continue;
                }
                if (resumed) {
                    const RadixThread from = saved;
#pragma unroll
                    for (int i = 0; i < RADIX_ROWS; i++) {
                        if ((u32)i < from.row) at[i] = JOIN_END;
                        if ((u32)i == from.row && from.at != JOIN_END) at[i] = from.at;
                    }
                }
                RadixThread stop = {RADIX_ROWS, JOIN_END};
#pragma unroll
                for (int i = 0; i < RADIX_ROWS; i++) {
                    for (;;) {
                        const bool has = at[i] != JOIN_END && stop.row == RADIX_ROWS;
                        if (!__any_sync(ALL, has)) break;
                        const u64 slot = room.claim(has);
                        if (!has) continue;
                        if (slot >= a.limit) {
                            stop = {(u32)i, at[i]};
                            continue;
                        }
                        a.outProbe[slot] = row[i];
                        a.outBuild[slot] = row_at(a.buildChain, place.table + at[i]);
                        at[i] = a.unique ? JOIN_END : t.find(k[i], t.next[at[i]]);
                    }
                }
                if (__syncthreads_or(stop.row < RADIX_ROWS)) {
                    saved = stop;
                    for (u32 i = threadIdx.x; i < a.shared / 16; i += RADIX_THREADS) table[i] = ((const uint4*)shared)[i];
                    place.next = 0;
                    if (threadIdx.x == 0) {
                        a.places[blockIdx.x] = place;
                        atomicExch(&a.state->join.stopped, 1u);
                    }
                    room.end();
                    return;
                }
            }
            __syncthreads();
        }
        if (WAY == RADIX_COUNT) {
            pairs = block_sum(pairs, sums);
            if (threadIdx.x == 0) a.counts[place.item] = pairs;
        }
        __syncthreads();
    }
    __syncthreads();
    room.end();
    if (threadIdx.x == 0) a.places[blockIdx.x].item = NONE;
}

// radix_WAY_kK: keys of K bytes.
#define RADIX(way, WAY)                                                                                                           \
    KERNEL_BOUNDS(radix_##way##_k4, RadixArgs, RADIX_THREADS, 2) {                                                              \
        SHARED(u8, shared);                                                                                                       \
        radix_probe<u32, WAY>(a, shared);                                                                                         \
    }                                                                                                                             \
    KERNEL_BOUNDS(radix_##way##_k8, RadixArgs, RADIX_THREADS, 2) {                                                              \
        SHARED(u8, shared);                                                                                                       \
        radix_probe<u64, WAY>(a, shared);                                                                                         \
    }
RADIX(count, RADIX_COUNT)
RADIX(exact, RADIX_EXACT)
RADIX(pages, RADIX_PAGES)
RADIX(direct, RADIX_DIRECT)
RADIX(mark, RADIX_MARK)

struct RadixStartsArgs {
    u64* counts; // of n items, followed by the total
    i64 n;
};

// radix_starts replaces the pairs of each item by the pairs before it, in one block.
KERNEL_BOUNDS(radix_starts, RadixStartsArgs, 1024, 1) {
    __shared__ u64 sums[33];
    u64 before = 0;
    for (i64 i0 = 0; i0 < a.n; i0 += blockDim.x) {
        const i64 i = i0 + threadIdx.x;
        u64 total;
        const u64 at = block_exclusive(i < a.n ? a.counts[i] : 0ull, sums, total);
        if (i < a.n) a.counts[i] = before + at;
        before += total;
    }
    if (threadIdx.x == 0) a.counts[a.n] = before;
}

struct RadixGapsArgs {
    u32* probe; // of the pairs
    u32* build;
    const u32* holes;
    u32* to;   // positions of the holes before the end of the pairs
    u32* from; // positions of the pairs after the end
    RadixState* state;
    u64 pairs;
    u32 n; // holes, and slots after the end
};

// radix_gaps lists the holes to fill, and as many pairs that fill them.
KERNEL(radix_gaps, RadixGapsArgs) {
    const u32 i = (u32)global_thread();
    if (i >= a.n) return;
    const u32 slot = a.holes[i], behind = (u32)(a.pairs + i);
    if (slot < a.pairs) a.to[atomicAdd(&a.state->below, 1u)] = slot;
    if (a.probe[behind] != NONE) a.from[atomicAdd(&a.state->behind, 1u)] = behind;
}

KERNEL(radix_close, RadixGapsArgs) {
    const u32 i = (u32)global_thread();
    if (i >= a.state->below) return;
    a.probe[a.to[i]] = a.probe[a.from[i]];
    a.build[a.to[i]] = a.build[a.from[i]];
}
