// Write strategies of partitioning out of core (Lutz et al., SIGMOD 2022, §4). Rows of a key and a value are written as
// tuples to their partitions, which may be in host memory, over the link. Atomics count the rows of a tile by partition
// in shared memory. All strategies except the first also sort the tile by partition there.
//
//   standard      each thread writes its tuples (plain scatter)
//   linear        tuples are written in the order of partitions, each partition after the room that the linear
//                 allocator has given to other blocks
//   shared        a partition's tuples stay in shared memory until they fill a granule, so only whole, aligned
//                 granules are written (software write-combining)
//   hierarchical  granules are collected in buffers in device memory. A full buffer is swapped with a spare one, and
//                 warps flush it while others fill the next tile
//
// The tuples of a partition have no order, because blocks claim room by atomics. Whole granules are claimed from the
// front and the rest at the end from the back, so granules stay aligned.
//
// Bytes: key and value read, a tuple written. Hierarchical: also a tuple written and read in device memory.
#include "common.cuh"

constexpr u32 TUPLE_THREADS = 1024, TUPLE_WARPS = TUPLE_THREADS / 32;
constexpr int TUPLE_ITEMS = 4;
constexpr u32 TUPLE_TILE = TUPLE_THREADS * TUPLE_ITEMS;
constexpr u32 TUPLE_SPARES = 128; // full buffers of a block that are not flushed yet
constexpr u32 NOWHERE = ~0u;

#define MEMBER __device__ __forceinline__

enum Way { STANDARD, LINEAR, COMBINED, HIERARCHICAL };

template <class K> struct TupleOf;
template <> struct TupleOf<u32> { using T = uint2; };
template <> struct TupleOf<u64> { using T = ulonglong2; };

struct TupleArgs {
    const void* key;
    const void* value;
    void* out;
    const u32* starts; // first tuple of each partition, and the end of the last
    u32* next;         // by partition: tuples claimed from the front
    u32* rest;         // by partition: tuples claimed from the back
    void* buffers;     // hierarchical: by block, one a partition and the spare ones
    u64 mul;           // odd; keys are multiplied by it
    u32 rows;
    u32 bits, shift;   // select the number of the partition
    u32 granule;       // tuples that are written together, a power of two
    u32 unit;          // tuples to which claims from the front are aligned, a power of two
    u32 capacity;      // tuples of a buffer, a multiple of granule and unit
};

template <class K>
DEVICE u32 tuple_partition(const TupleArgs& a, K key) { return (u32)((K)(key * (K)a.mul) >> a.shift) & ((1u << a.bits) - 1); }

struct TupleCountArgs {
    const void* key;
    u32* counts; // by partition
    u64 mul;
    u32 rows, bits, shift, unused;
};

// tuples_count makes the histogram for the prefix sum.
template <class K>
DEVICE void tuples_count(const TupleCountArgs& a) {
    SHARED(u32, count);
    const u32 ways = 1u << a.bits;
    for (u32 p = threadIdx.x; p < ways; p += TUPLE_THREADS) count[p] = 0;
    __syncthreads();
    for (u64 i = global_thread(); i < a.rows; i += grid_threads())
        atomicAdd(&count[(u32)((K)(((const K*)a.key)[i] * (K)a.mul) >> a.shift) & (ways - 1)], 1u);
    __syncthreads();
    for (u32 p = threadIdx.x; p < ways; p += TUPLE_THREADS)
        if (count[p]) atomicAdd(&a.counts[p], count[p]);
}
KERNEL_BOUNDS(tuples_count_k4, TupleCountArgs, TUPLE_THREADS, 1) { tuples_count<u32>(a); }
KERNEL_BOUNDS(tuples_count_k8, TupleCountArgs, TUPLE_THREADS, 1) { tuples_count<u64>(a); }

// Range describes the positions that tuples of a partition are written to. The tuples of aligned units have the lowest
// numbers; those before and after the units follow.
struct Range {
    u32 from, inner, units, head; // first position; first aligned one, and their number; positions before these
    MEMBER Range(const TupleArgs& a, u32 p) {
        from = a.starts[p];
        const u32 to = a.starts[p + 1], last = to / a.unit * a.unit;
        inner = (from + a.unit - 1) / a.unit * a.unit;
        units = last > inner ? last - inner : 0;
        head = min(inner, to) - from;
    }
    MEMBER u32 place(u32 c) const {
        if (c < units) return inner + c;
        c -= units;
        return c < head ? from + c : inner + units + (c - head);
    }
};

template <class K, int WAY>
struct Tuples {
    using T = typename TupleOf<K>::T;
    const TupleArgs& a;
    const u32 ways, kept; // partitions; most tuples of each that are carried
    T* tile;              // in order of partition
    T* carry;             // by partition
    u32* count;           // of the tile, by partition
    u32* start;
    u32* claimed;         // of buffers to flush
    u16* left;            // by partition: tuples in carry
    u16* fill;            // by partition: tuples in its buffer
    u16* buffer;          // by partition: its buffer
    u16* spare;           // spare buffers, full ones first
    u16* owner;           // by full buffer: its partition
    u32* full;            // buffers to flush; the first TUPLE_SPARES were spare ones

    MEMBER Tuples(const TupleArgs& a, u32* full) : a(a), ways(1u << a.bits), kept(WAY >= COMBINED ? a.granule - 1 : 0), full(full) {
        SHARED(T, memory);
        tile = memory;
        carry = tile + (WAY == STANDARD ? 0 : TUPLE_TILE);
        count = (u32*)(carry + ways * kept);
        start = count + ways;
        claimed = start + ways;
        left = (u16*)(claimed + TUPLE_SPARES);
        fill = left + ways;
        buffer = fill + ways;
        spare = buffer + ways;
        owner = spare + TUPLE_SPARES;
    }

    MEMBER T* out() const { return (T*)a.out; }
    MEMBER T* buffer_at(u32 b) const { return (T*)a.buffers + ((u64)blockIdx.x * (ways + TUPLE_SPARES) + b) * a.capacity; }

    // get returns tuple i of a partition: the carried tuples first, then those of the tile.
    MEMBER T get(u32 p, u32 had, u32 i) const { return i < had ? carry[p * kept + i] : tile[start[p] + i - had]; }

    // claim returns the room that lane 0 claims, in every lane of the warp.
    MEMBER u32 claim(u32* from, u32 n) const {
        u32 c = 0;
        if (lane_id() == 0) c = atomicAdd(from, n);
        return __shfl_sync(ALL, c, 0);
    }

    // write writes tuples [i, i + n) of a partition to positions that it claims.
    MEMBER void write(const Range& to, u32 p, u32 had, u32 i, u32 n) const {
        const u32 c = claim(&a.next[p], n);
        for (u32 k = lane_id(); k < n; k += 32) out()[to.place(c + k)] = get(p, had, i + k);
    }

    MEMBER void flush(u32 b, u32 p, u32 c) const {
        const T* from = buffer_at(b);
        const Range to(a, p);
        for (u32 k = lane_id(); k < a.capacity; k += 32) out()[to.place(c + k)] = from[k];
    }

    // drain flushes the full buffers of the last tile.
    MEMBER void drain() const {
        const u32 n = min(*full, TUPLE_SPARES);
        for (u32 s = warp_id(); s < n; s += TUPLE_WARPS) flush(spare[s], owner[s], claimed[s]);
    }

    // evict moves the first n tuples of a partition to its buffer.
    MEMBER void evict(u32 p, u32 had, u32 n) const {
        u32 f = fill[p], b = buffer[p];
        T* to = buffer_at(b);
        const u32 fits = min(n, a.capacity - f);
        for (u32 k = lane_id(); k < fits; k += 32) to[f + k] = get(p, had, k);
        f += fits;
        if (f == a.capacity) {
            const u32 c = claim(&a.next[p], a.capacity), s = claim(full, 1);
            __syncwarp();
            if (s < TUPLE_SPARES) {
                const u32 fresh = spare[s];
                __syncwarp();
                if (lane_id() == 0) {
                    claimed[s] = c;
                    owner[s] = (u16)p;
                    spare[s] = (u16)b;
                    buffer[p] = (u16)fresh;
                }
                to = buffer_at(fresh);
            } else { // flush at once: no spare buffer is left
                flush(b, p, c);
                __syncwarp();
            }
            const u32 whole = (n - fits) / a.capacity * a.capacity;
            if (whole) write(Range(a, p), p, had, fits, whole);
            f = n - fits - whole;
            for (u32 k = lane_id(); k < f; k += 32) to[k] = get(p, had, fits + whole + k);
        }
        __syncwarp();
        if (lane_id() == 0) fill[p] = (u16)f;
    }

    // combine adds the tuples that the tile has of a partition.
    MEMBER void combine(u32 p) const {
        const u32 fresh = count[p];
        if (fresh == 0) return;
        const u32 had = left[p], n = had + fresh, whole = n / a.granule * a.granule;
        if (whole && WAY == COMBINED) write(Range(a, p), p, had, 0, whole);
        if (whole && WAY == HIERARCHICAL) evict(p, had, whole);
        __syncwarp();
        for (u32 i = (whole ? whole : had) + lane_id(); i < n; i += 32) carry[p * kept + i - whole] = tile[start[p] + i - had];
        if (lane_id() == 0) {
            left[p] = (u16)(n - whole);
            count[p] = 0;
        }
    }

    // finish writes the remaining tuples of a partition.
    MEMBER void finish(u32 p) const {
        const u32 had = left[p], held = WAY == HIERARCHICAL ? fill[p] : 0, n = had + held;
        if (n == 0) return;
        const T* from = WAY == HIERARCHICAL ? buffer_at(buffer[p]) : nullptr;
        const Range to(a, p);
        auto tuple = [&](u32 i) {
            if (WAY == HIERARCHICAL && i < held) return from[i];
            return carry[p * kept + i - held];
        };
        const u32 whole = n / a.unit * a.unit, front = whole ? claim(&a.next[p], whole) : 0, others = n - whole;
        const u32 back = others ? a.starts[p + 1] - a.starts[p] - claim(&a.rest[p], others) - others : 0;
        for (u32 i = lane_id(); i < n; i += 32)
            out()[to.place(i < whole ? front + i : back + i - whole)] = tuple(i);
    }

    MEMBER void run() const {
        for (u32 p = threadIdx.x; p < ways; p += TUPLE_THREADS) {
            count[p] = 0;
            if (WAY >= COMBINED) left[p] = 0;
            if (WAY == HIERARCHICAL) fill[p] = 0, buffer[p] = (u16)p;
        }
        if (WAY == HIERARCHICAL) {
            for (u32 s = threadIdx.x; s < TUPLE_SPARES; s += TUPLE_THREADS) spare[s] = (u16)(ways + s);
            if (threadIdx.x == 0) *full = 0;
        }
        K key[TUPLE_ITEMS], value[TUPLE_ITEMS];
        const u32 tiles = (a.rows + TUPLE_TILE - 1) / TUPLE_TILE;
        auto load = [&](u32 t) {
#pragma unroll
            for (int i = 0; i < TUPLE_ITEMS; i++) {
                const u64 row = (u64)t * TUPLE_TILE + i * TUPLE_THREADS + threadIdx.x;
                if (row < a.rows) key[i] = ((const K*)a.key)[row], value[i] = ((const K*)a.value)[row];
            }
        };
        load(blockIdx.x);
        __shared__ u32 sums[33];
        __syncthreads();
        for (u32 t = blockIdx.x; t < tiles; t += gridDim.x) {
            if (WAY == HIERARCHICAL) drain(); // the other warps start with the tile
            u32 digit[TUPLE_ITEMS], rank[TUPLE_ITEMS];
#pragma unroll
            for (int i = 0; i < TUPLE_ITEMS; i++) {
                digit[i] = NOWHERE;
                if ((u64)t * TUPLE_TILE + i * TUPLE_THREADS + threadIdx.x >= a.rows) continue;
                digit[i] = tuple_partition<K>(a, key[i]);
                rank[i] = atomicAdd(&count[digit[i]], 1u);
            }
            __syncthreads();
            if (WAY == STANDARD) {
                for (u32 p = threadIdx.x; p < ways; p += TUPLE_THREADS) {
                    if (count[p]) start[p] = a.starts[p] + atomicAdd(&a.next[p], count[p]);
                    count[p] = 0;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TUPLE_ITEMS; i++)
                    if (digit[i] != NOWHERE) out()[start[digit[i]] + rank[i]] = {key[i], value[i]};
                load(t + gridDim.x);
                continue;
            }
            if (WAY == HIERARCHICAL && threadIdx.x == 0) *full = 0;
            u32 rows = 0;
            for (u32 first = 0; first < ways; first += TUPLE_THREADS) {
                const u32 p = first + threadIdx.x, mine = p < ways ? count[p] : 0;
                u32 total;
                const u32 at = rows + block_exclusive(mine, sums, total);
                rows += total;
                if (p < ways) start[p] = at;
                if (WAY == LINEAR && mine) count[p] = a.starts[p] + atomicAdd(&a.next[p], mine) - at; // position in the array
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < TUPLE_ITEMS; i++)
                if (digit[i] != NOWHERE) tile[start[digit[i]] + rank[i]] = {key[i], value[i]};
            load(t + gridDim.x);
            __syncthreads();
            if (WAY == LINEAR) {
                for (u32 j = threadIdx.x; j < rows; j += TUPLE_THREADS) {
                    const T x = tile[j];
                    out()[count[tuple_partition<K>(a, x.x)] + j] = x;
                }
                __syncthreads();
                for (u32 p = threadIdx.x; p < ways; p += TUPLE_THREADS) count[p] = 0;
            } else {
                for (u32 p = warp_id(); p < ways; p += TUPLE_WARPS) combine(p);
            }
            __syncthreads();
        }
        if (WAY == HIERARCHICAL) drain();
        if (WAY >= COMBINED)
            for (u32 p = warp_id(); p < ways; p += TUPLE_WARPS) finish(p);
    }
};

template <class K, int WAY>
DEVICE void tuples_write(const TupleArgs& a) {
    __shared__ u32 full;
    Tuples<K, WAY>(a, &full).run();
}
KERNEL_BOUNDS(tuples_standard_k4, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u32, STANDARD>(a); }
KERNEL_BOUNDS(tuples_standard_k8, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u64, STANDARD>(a); }
KERNEL_BOUNDS(tuples_linear_k4, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u32, LINEAR>(a); }
KERNEL_BOUNDS(tuples_linear_k8, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u64, LINEAR>(a); }
KERNEL_BOUNDS(tuples_shared_k4, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u32, COMBINED>(a); }
KERNEL_BOUNDS(tuples_shared_k8, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u64, COMBINED>(a); }
KERNEL_BOUNDS(tuples_hierarchical_k4, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u32, HIERARCHICAL>(a); }
KERNEL_BOUNDS(tuples_hierarchical_k8, TupleArgs, TUPLE_THREADS, 1) { tuples_write<u64, HIERARCHICAL>(a); }

struct TupleSplitArgs {
    const void* tuples;
    void* key;
    void* value;
    i64 n;
};

// tuples_split converts tuples to columns.
template <class K>
DEVICE void tuples_split(const TupleSplitArgs& a) {
    for (i64 i = global_thread(); i < a.n; i += grid_threads()) {
        const typename TupleOf<K>::T x = ((const typename TupleOf<K>::T*)a.tuples)[i];
        ((K*)a.key)[i] = x.x;
        ((K*)a.value)[i] = x.y;
    }
}
KERNEL(tuples_split_k4, TupleSplitArgs) { tuples_split<u32>(a); }
KERNEL(tuples_split_k8, TupleSplitArgs) { tuples_split<u64>(a); }
