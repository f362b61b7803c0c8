// The join of partitioned sides (PHJ of Wu et al., SIGMOD 2025, §4) matches and materialises in one kernel. A block
// executes work items. It copies the build rows of a partition into shared memory and makes a hash table of them. Then
// it probes the table with the partition's probe rows, chunk by chunk, and writes the columns of the pairs. Row ids are
// written to device memory only if the caller wants them.
//
// Bytes: the columns of both sides read once, those of the pairs written once.
//
// Work items are planned on the device. A block counts the pairs of a chunk and reserves room before it writes them. If
// no room is left, it records where it stopped, and the next launch continues there.
#include "join.cuh"

// Bulk copies (Hopper and later) copy rows into shared memory by one instruction of one thread. On other GPUs each
// thread copies 16 bytes.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool JOIN_BULK = true;
#else
constexpr bool JOIN_BULK = false;
#endif

DEVICE u32 shared_address(const void* p) {
#if defined(__CUDA_ARCH__)
    return (u32)__cvta_generic_to_shared(p);
#else
    return 0;
#endif
}

// Arrival is a barrier in shared memory at which bulk copies arrive.
struct Arrival {
    u64* barrier;

    // init is called by one thread, before a barrier of the block.
    __device__ __forceinline__ void init() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }

    // expect sets the number of bytes that the copies of a phase have. One thread calls it.
    __device__ __forceinline__ void expect(u32 bytes) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#endif
    }

    // copy starts a copy. Both addresses and the size are multiples of 16 bytes.
    __device__ __forceinline__ void copy(void* dst, const void* src, u32 bytes) const {
#if !defined(__CUDA_ARCH__)
        for (u32 i = 0; i < bytes / 16; i++) ((uint4*)dst)[i] = ((const uint4*)src)[i];
#elif __CUDA_ARCH__ >= 900
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(dst)), "l"(src), "r"(bytes),
                     "r"(shared_address(barrier))
                     : "memory");
#endif
    }

    // wait waits for the copies of a phase.
    __device__ __forceinline__ void wait(u32 phase) const {
#if !defined(__CUDA_ARCH__)
        __syncthreads();
#elif __CUDA_ARCH__ >= 900
        u32 done = 0;
        while (!done)
            asm volatile(
                "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                : "=r"(done)
                : "r"(shared_address(barrier)), "r"(phase & 1)
                : "memory");
#endif
    }
};

// bulk_fence orders a thread's stores to shared memory before the copies that start after
// the next barrier.
DEVICE void bulk_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// async_copy starts a copy of 16 bytes. async_wait waits for all copies of the thread.
DEVICE void async_copy(void* dst, const void* src) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
#else
    *(uint4*)dst = *(const uint4*)src;
#endif
}

DEVICE void async_wait() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// JoinLoad is a column whose rows are copied into shared memory.
struct JoinLoad {
    u64 src;
    u64 rows;
    u32 width; // bytes: 1, 2, 4 or 8
    u32 at;    // offset in the table, or in a slot of probe rows
};

// JoinOutput is a column of the pairs.
struct JoinOutput {
    u64 src; // 0: row numbers, width 4
    u64 dst;
    u32 width;  // bytes: 1, 2, 4 or 8
    u32 stride; // in units of width: values of 16 bytes are two columns of stride 2
    i32 at;     // offset of its rows in shared memory; -1: not in shared memory; -2: the probe keys
    i32 build;
};

constexpr int JOIN_LOADS = 16, JOIN_OUTPUTS = 32;

struct JoinArgs {
    u64 build; // keys
    u64 probe;
    const u32* buildValid; // null: no nulls
    const u32* probeValid;
    const JoinItem* items;
    JoinItem* late;    // items for join_runs: a table, and probe rows with one that has many matches
    JoinState* state;
    JoinPlace* places; // by block
    u32* matched;      // bitmap of the probe rows with a match
    u64 limit;         // of pairs
    u64 mul;           // odd; the bucket of a key is part of its product with it
    JoinLoad load[JOIN_LOADS]; // build side, then keys of the probe side, then its payload columns
    JoinOutput output[JOIN_OUTPUTS];
    u32 loads, outputs;
    u32 builds;   // number of loads of the build side
    u32 capacity; // build rows of a table
    u32 bits;     // log2 of the number of buckets
    u32 unique;   // 1: the build keys are distinct
    u32 most;     // most late items
    // Offsets in shared memory. The columns of the table are at 0, its keys first. Keys of probe
    // rows have two slots at slots, their payload columns two of slot bytes at payload.
    u32 next, head, slots, slot, payload;
    u32 list; // the pairs of a chunk: build row << 16 | probe row
    u32 flat; // 1: all columns of the pairs are in shared memory and as wide as the keys
};

constexpr u32 JOIN_ALIGN = 32;      // copies begin at a multiple of this number of rows
constexpr u32 JOIN_MANY = 32;       // most matches of a row for which chains are fast
constexpr u32 JOIN_BATCH = 1 << 16; // pairs that a block of join_runs reserves at a time

template <class K>
DEVICE u32 join_bucket(const JoinArgs& a, K key) {
    return sizeof(K) == 4 ? (u32)key * (u32)a.mul >> (32 - a.bits) : (u32)((u64)key * a.mul >> (64 - a.bits));
}

// Pairs holds the pairs of a thread: the rows of both sides and the output position of each pair.
template <int N>
struct Pairs {
    u32 build[N]; // in the table
    u32 probe[N]; // in the chunk
    u32 to[N];    // output position, relative to the first
    bool in[N];   // whether there is a pair
};

// Sides tells where the rows of both sides are stored.
struct Sides {
    const u8* table; // the build rows that are in shared memory
    const u8* chunk; // the probe rows that are in shared memory
    u64 firstBuild, firstProbe; // row numbers of their first rows
};

template <class T, bool STRIDED, int N>
DEVICE void write_column(const JoinOutput& o, const u8* shared, const u32 (&pick)[N], const Pairs<N>& p, u64 to, u64 first) {
    const u32 stride = STRIDED ? o.stride : 1;
    T v[N];
    if (o.at >= 0) {
        const T* src = (const T*)(shared + o.at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[pick[i]];
    } else if (o.src) {
        const T* src = (const T*)o.src + first * stride;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[pick[i] * stride];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (T)(first + pick[i]);
    }
    T* dst = (T*)o.dst + to * stride;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (p.in[i]) dst[p.to[i] * stride] = v[i];
}

template <int N>
DEVICE void write_side(const JoinOutput& o, const u8* shared, const u32 (&pick)[N], const Pairs<N>& p, u64 to, u64 first) {
    switch (o.width) {
    case 1: write_column<u8, false>(o, shared, pick, p, to, first); break;
    case 2: write_column<u16, false>(o, shared, pick, p, to, first); break;
    case 4: write_column<u32, false>(o, shared, pick, p, to, first); break;
    default:
        if (o.stride == 1)
            write_column<u64, false>(o, shared, pick, p, to, first);
        else
            write_column<u64, true>(o, shared, pick, p, to, first);
    }
}

// write_pairs writes the columns of pairs to the result, from its pair `to` on. k has the keys.
template <class K, int N>
DEVICE void write_pairs(const JoinArgs& a, const Sides& s, const Pairs<N>& p, const K (&k)[N], u64 to) {
    if (a.flat) {
        for (u32 c = 0; c < a.outputs; c++) {
            const JoinOutput& o = a.output[c];
            K* dst = (K*)o.dst + to;
            const K* table = (const K*)(s.table + o.at);
            const K* chunk = (const K*)(s.chunk + o.at);
            K v[N];
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = k[i];
            if (o.at >= 0 && o.build) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (p.in[i]) v[i] = table[p.build[i]];
            } else if (o.at >= 0) {
#pragma unroll
                for (int i = 0; i < N; i++) v[i] = chunk[p.probe[i]];
            }
#pragma unroll
            for (int i = 0; i < N; i++)
                if (p.in[i]) dst[p.to[i]] = v[i];
        }
        return;
    }
    for (u32 c = 0; c < a.outputs; c++) {
        const JoinOutput& o = a.output[c];
        if (o.build) {
            write_side(o, s.table, p.build, p, to, s.firstBuild);
        } else if (o.at == -2) {
            K* dst = (K*)o.dst + to;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (p.in[i]) dst[p.to[i]] = k[i];
        } else {
            write_side(o, s.chunk, p.probe, p, to, s.firstProbe);
        }
    }
}

// fits returns the first position of the n pairs for which a thread has reserved room, or ~0 if there is no room.
DEVICE u64 fits(const JoinArgs& a, u64 at, u32 n) {
    if (at + n <= a.limit) return at;
    atomicMin(&a.state->written, at);
    a.state->stopped = 1;
    return ~0ull;
}

// Joiner is a block that joins through chains.
template <class K, u32 THREADS, int ROWS, bool MARK>
struct Joiner {
    static constexpr u32 CHUNK = THREADS * ROWS, WARPS = THREADS / 32;
    static constexpr u32 ROW_BITS = 12; // bits of a row in a chunk
    static_assert(CHUNK < 1 << ROW_BITS, "the rows of a chunk need more bits");
    enum { TABLE, COLUMNS, KEYS, PAYLOAD = KEYS + 2, COPIES = PAYLOAD + 2 }; // COLUMNS: payload columns of the table

    const JoinArgs& a;
    u8* memory;
    u32* list;     // the pairs of the chunk
    u32* sums;     // 2 × WARPS values
    u64* base;
    u64* barriers; // of copies
    u32 phases;    // phase of each barrier, one bit each
    JoinItem item;
    u32 table, last; // build rows of the table
    u32 probe;       // first probe row
    bool unique;     // the keys of the table are distinct

    __device__ __forceinline__ Joiner(const JoinArgs& args, u8* shared, u32* s, u64* b, u64* of) : a(args), memory(shared), list((u32*)(shared + args.list)), sums(s), base(b), barriers(of), phases(0) {
        if (threadIdx.x < COPIES) arrival(threadIdx.x).init();
        __syncthreads();
    }

    __device__ __forceinline__ Arrival arrival(u32 which) const { return {barriers + which}; }
    __device__ __forceinline__ u8* keys(u32 which) const { return memory + a.slots + which * (CHUNK * sizeof(K)); }
    __device__ __forceinline__ u8* payload(u32 which) const { return memory + a.payload + which * a.slot; }
    __device__ __forceinline__ static u32 align(u32 row) { return row / JOIN_ALIGN * JOIN_ALIGN; }

    struct Range {
        const u8* src;
        u32 bytes;
        u32 whole; // of them, in units of 16
    };

    // range returns the bytes of rows [from, to), in whole units of 16 except at the end of the column.
    __device__ __forceinline__ static Range range(const JoinLoad& load, u32 from, u32 to) {
        const u64 begin = (u64)from * load.width;
        const u32 bytes = (u32)(min(((u64)to * load.width + 15) / 16 * 16, load.rows * load.width) - begin);
        return {(const u8*)load.src + begin, bytes, bytes / 16 * 16};
    }

    // copy starts to copy rows [from, to) of loads [begin, end) to dst. `from` is aligned.
    // which is a barrier. Warps take turns, since starting a copy takes the time of looking
    // up a row; the first warp has pairs to reserve room for.
    __device__ __forceinline__ void copy(u32 which, u8* dst, u32 begin, u32 end, u32 from, u32 to) {
        const u32 who = 32 * (1 + which);
        if (JOIN_BULK && threadIdx.x != who) return;
        u32 bytes = 0;
        for (u32 c = begin; c < end; c++) {
            const JoinLoad& load = a.load[c];
            const Range r = range(load, from, to);
            bytes += r.whole;
            if (threadIdx.x == who)
                for (u32 b = r.whole; b < r.bytes; b++) dst[load.at + b] = r.src[b];
            for (u32 b = 16 * threadIdx.x; !JOIN_BULK && b < r.whole; b += 16 * THREADS) async_copy(dst + load.at + b, r.src + b);
        }
        if (!JOIN_BULK) return;
        arrival(which).expect(bytes);
        for (u32 c = begin; c < end; c++) {
            const Range r = range(a.load[c], from, to);
            if (r.whole) arrival(which).copy(dst + a.load[c].at, r.src, r.whole);
        }
    }

    // The loads are the build side's, then the keys of the probe side, then its payload
    // columns. The barriers are in this order too; probe rows have two slots.
    __device__ __forceinline__ void copy_table() {
        copy(TABLE, memory, 0, 1, align(table), last);
        if (!MARK) copy(COLUMNS, memory, 1, a.builds, align(table), last);
    }

    __device__ __forceinline__ void copy_keys(u32 which, u32 chunk) {
        if (chunk < item.probeTo) copy(KEYS + which, keys(which), a.builds, a.builds + 1, chunk, min(chunk + CHUNK, item.probeTo));
    }

    __device__ __forceinline__ void copy_payload(u32 which, u32 chunk) {
        if (chunk < item.probeTo) copy(PAYLOAD + which, payload(which), a.builds + 1, a.loads, chunk, min(chunk + CHUNK, item.probeTo));
    }

    // await waits for the copies of a chunk if they have started.
    __device__ __forceinline__ void await(u32 which, u32 chunk) {
        if (chunk < item.probeTo) arrived(which);
    }

    // arrived waits for the rows of the last call of copy.
    __device__ __forceinline__ void arrived(u32 which) {
        if (JOIN_BULK) {
            arrival(which).wait(phases >> which);
            phases ^= 1u << which;
        } else {
            async_wait();
            __syncthreads();
        }
    }

    __device__ __forceinline__ Chains<K> chains() const { return {(const K*)memory, (u16*)(memory + a.next), (u32*)(memory + a.head)}; }

    __device__ __forceinline__ void build() {
        Chains<K> t = chains();
        const u32 from = table - align(table), to = last - align(table);
#pragma unroll 4
        for (u32 r = from + threadIdx.x; r < to; r += THREADS)
            if (bit(a.buildValid, align(table) + r)) t.next[r] = (u16)atomicExch(&t.head[join_bucket(a, t.key[r])], r);
        __syncthreads();
        unique = true;
        if (MARK || a.unique) return;
        bool twice = false;
#pragma unroll 4
        for (u32 r = from + threadIdx.x; r < to; r += THREADS)
            if (bit(a.buildValid, align(table) + r)) twice |= t.find(t.key[r], t.next[r]) != JOIN_END;
        unique = !__syncthreads_or(twice);
    }

    // Found is what a thread has found for its rows of a chunk.
    struct Found {
        u32 build[ROWS]; // the first match of each row, or JOIN_END
        u32 pairs;       // of the warp
        bool many;       // some row has many matches
    };

    __device__ __forceinline__ static u32 row_of(int i) { return warp_id() * (32 * ROWS) + 32 * i + lane_id(); } // (warp, i, lane) is the order of rows

    // find looks up the rows of a chunk whose keys are in a slot.
    __device__ __forceinline__ Found find(u32 which, u32 chunk) const {
        const Chains<K> t = chains();
        const K* key = (const K*)keys(which);
        const bool whole = chunk >= probe && chunk + CHUNK <= item.probeTo && !a.probeValid;
        Found f;
        K k[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const u32 row = chunk + row_of(i);
            k[i] = key[row_of(i)];
            f.build[i] = JOIN_END;
            if (whole || row >= probe && row < item.probeTo && bit(a.probeValid, row)) f.build[i] = t.head[join_bucket(a, k[i])];
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) f.build[i] = t.find(k[i], f.build[i]);
        f.many = false;
        f.pairs = 0;
        if (unique || MARK) return f;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (f.build[i] == JOIN_END) continue;
            u32 n = 1;
            for (u32 m = t.find(k[i], t.next[f.build[i]]); m != JOIN_END && n <= JOIN_MANY; m = t.find(k[i], t.next[m])) n++;
            f.many |= n > JOIN_MANY;
            f.pairs += n;
        }
        f.pairs = warp_sum(f.pairs);
        return f;
    }

    // Places holds the position of each of the thread's pairs among the pairs of the warp, JOIN_END without a pair.
    struct Places {
        u32 at[ROWS];
    };

    // place_pairs computes the positions of the warp's pairs and tells the other warps their number.
    __device__ __forceinline__ Places place_pairs(const Found& f, u32* sums) const {
        Places p;
        u32 n = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const bool in = f.build[i] != JOIN_END;
            const u32 found = __ballot_sync(ALL, in);
            p.at[i] = in ? n + __popc(found & lanes_below()) : JOIN_END;
            n += __popc(found);
        }
        if (lane_id() == 0) sums[warp_id()] = (unique ? n : f.pairs) << ROW_BITS | n;
        return p;
    }

    // list_pairs lists the pairs in the order of the rows, after those of the preceding warps. It returns their number.
    // total is that number and the later matches.
    __device__ __forceinline__ u32 list_pairs(const Places& p, const Found& f, const u32 (&probe)[ROWS], const u32* sums, u32& total) const {
        const u32 w = lane_id() < WARPS ? sums[lane_id()] : 0, mine = w & ((1u << ROW_BITS) - 1), through = warp_inclusive(mine);
        const u32 n = __shfl_sync(ALL, through, 31), before = __shfl_sync(ALL, through - mine, warp_id());
        total = unique ? n : warp_sum(w >> ROW_BITS);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (p.at[i] != JOIN_END) list[before + p.at[i]] = f.build[i] << 16 | probe[i];
        return n;
    }

    // next_pairs lists the next matches of the rows of n pairs that are listed.
    __device__ __forceinline__ u32 next_pairs(u32 n, u32* sums) const {
        const Chains<K> t = chains();
        Found f;
        u32 probe[ROWS], unused;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const u32 pair = row_of(i) < n ? list[row_of(i)] : JOIN_END << 16, build = pair >> 16;
            probe[i] = pair & 0xffff;
            f.build[i] = build == JOIN_END ? JOIN_END : t.find(t.key[build], t.next[build]);
        }
        f.pairs = 0;
        __syncthreads();
        const Places p = place_pairs(f, sums);
        __syncthreads();
        n = list_pairs(p, f, probe, sums, unused);
        __syncthreads();
        return n;
    }

    // write_listed writes the columns of n listed pairs. If few rows have a match, most warps have nothing to write.
    // Both keys of a pair are equal, so it reads those of the table, which are in shared memory.
    __device__ __forceinline__ void write_listed(const Sides& sides, u32 n, u64 to) const {
        if (threadIdx.x >= n) return;
        Pairs<ROWS> p;
        K k[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            p.to[i] = threadIdx.x + i * THREADS;
            p.in[i] = p.to[i] < n;
            const u32 pair = p.in[i] ? list[p.to[i]] : 0;
            p.build[i] = pair >> 16;
            p.probe[i] = pair & 0xffff;
            k[i] = chains().key[p.build[i]];
        }
        write_pairs(a, sides, p, k, to);
    }

    // mark sets the bits of the rows of a chunk that have a match.
    __device__ __forceinline__ void mark(const Found& f, u32 chunk) const {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const u32 found = __ballot_sync(ALL, f.build[i] != JOIN_END);
            if (lane_id() == 0 && found) atomicOr(&a.matched[(chunk + row_of(i)) / 32], found);
        }
    }

    // join_table joins the table with the probe rows from `probe` on, chunk by chunk. While it reserves room for the
    // pairs of a chunk, it looks up the rows of the next one. The pairs are kept in a list, and not in registers, until
    // they are written. If a row has many matches, the remaining rows become an item for join_runs. It returns whether
    // there was room; without room, `probe` is the first remaining row.
    __device__ __forceinline__ bool join_table() {
        u32 chunk = align(probe), which = 0;
        bool columns = false; // the table's payload columns have arrived
        copy_table();
        copy_keys(0, chunk);
        if (!MARK) copy_payload(0, chunk);
        copy_keys(1, chunk + CHUNK);
        for (u32 b = threadIdx.x; b < 1u << a.bits; b += THREADS) chains().head[b] = JOIN_END;
        __syncthreads();
        arrived(TABLE);
        build();
        await(KEYS, chunk);
        Found f = find(0, chunk);
        for (; chunk < item.probeTo; chunk += CHUNK, which ^= 1) {
            const u32 next = chunk + CHUNK;
            if (MARK) {
                mark(f, chunk);
                __syncthreads();
                copy_keys(which, next + CHUNK);
                await(KEYS + (which ^ 1), next);
                if (next < item.probeTo) f = find(which ^ 1, next);
                continue;
            }
            const Places places = place_pairs(f, sums + which * WARPS);
            bool many = false;
            if (unique)
                __syncthreads();
            else
                many = __syncthreads_or(f.many);
            if (many) {
                if (!columns) arrived(COLUMNS); // no copy may outlast the table
                arrived(PAYLOAD + which);
                await(KEYS + (which ^ 1), next);
                probe = max(probe, chunk);
                return put_off();
            }
            // All threads have finished with the chunk before this one, and with the keys of this one.
            copy_payload(which ^ 1, next);
            copy_keys(which, next + CHUNK);
            u32 rows[ROWS], total;
#pragma unroll
            for (int i = 0; i < ROWS; i++) rows[i] = row_of(i);
            u32 n = list_pairs(places, f, rows, sums + which * WARPS, total);
            u64 to = 0;
            if (threadIdx.x == 0 && total) to = atomicAdd(&a.state->pairs, (u64)total);
            await(KEYS + (which ^ 1), next);
            if (next < item.probeTo) f = find(which ^ 1, next);
            if (threadIdx.x == 0) *base = fits(a, to, total);
            if (!columns) arrived(COLUMNS);
            columns = true;
            arrived(PAYLOAD + which);
            __syncthreads();
            to = *base;
            if (to == ~0ull) {
                await(PAYLOAD + (which ^ 1), next);
                await(KEYS + which, next + CHUNK);
                probe = max(probe, chunk);
                return false;
            }
            const Sides sides = {memory, payload(which), align(table), chunk};
            for (;;) {
                write_listed(sides, n, to);
                total -= n;
                if (total == 0) break;
                to += n;
                n = next_pairs(n, sums + which * WARPS);
            }
        }
        return true;
    }

    // put_off makes the remaining probe rows an item for join_runs. It returns whether there was room.
    __device__ __forceinline__ bool put_off() {
        if (threadIdx.x == 0) {
            const u32 at = atomicAdd(&a.state->late, 1u);
            *base = at < a.most;
            if (at < a.most) {
                a.late[at] = {table, last, probe, item.probeTo};
            } else {
                atomicSub(&a.state->late, 1u);
                a.state->stopped = 1;
            }
        }
        __syncthreads();
        return *base;
    }

    // run joins items until none is left or there is no room. It returns where the block stopped.
    __device__ __forceinline__ JoinPlace run(JoinPlace place, u32* taken) {
        const u32 items = a.state->items;
        for (bool resumed = place.item != NONE;; resumed = false) {
            // The next item is taken early.
            if (threadIdx.x == 0) {
                if (place.item == NONE) {
                    place.item = place.next == NONE ? atomicAdd(&a.state->taken, 1u) : place.next;
                    place.next = NONE;
                }
                if (place.next == NONE) place.next = atomicAdd(&a.state->taken, 1u);
                *taken = place.item;
            }
            __syncthreads();
            place.item = *taken;
            if (place.item >= items) return place;
            item = a.items[place.item];
            table = resumed ? place.table : item.buildFrom;
            probe = resumed ? place.probe : item.probeFrom;
            for (; table < item.buildTo; table = last, probe = item.probeFrom) {
                last = min(table + a.capacity, item.buildTo);
                const bool room = join_table();
                bulk_fence();
                __syncthreads();
                if (!room) return {place.item, place.next, table, probe};
            }
            place.item = NONE;
        }
    }
};

template <class K, u32 THREADS, int ROWS, bool MARK>
DEVICE void join(const JoinArgs& a, u8* shared) {
    __shared__ u32 sums[2 * THREADS / 32];
    __shared__ u64 base, barriers[6];
    __shared__ u32 taken;
    Joiner<K, THREADS, ROWS, MARK> j(a, shared, sums, &base, barriers);
    const JoinPlace place = j.run(a.places[blockIdx.x], &taken);
    if (threadIdx.x == 0) a.places[blockIdx.x] = place;
}

// Runs is a hash table for keys with many rows. The rows of a key are contiguous.
template <class K>
struct Runs {
    const K* key; // by row
    u32* slot;  // open addressing: the row that represents its key, or JOIN_END
    u32* count; // number of rows with the key, two rows a word
    u32* end;   // end of these rows, two rows a word
    u16* rows;  // rows, by key
    u32 mask;

    __device__ __forceinline__ u32 get(const u32* halves, u32 row) const { return halves[row / 2] >> 16 * (row % 2) & 0xffff; }
    __device__ __forceinline__ u32 add(u32* halves, u32 row) const { return atomicAdd(&halves[row / 2], 1u << 16 * (row % 2)) >> 16 * (row % 2) & 0xffff; }

    // find returns the row that represents a key, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 s) const {
        for (;; s = (s + 1) & mask) {
            u32 row = slot[s];
            if (row == JOIN_END || key[row] == k) return row;
        }
    }

    // insert is find, and lets the row represent its key if no row does.
    __device__ __forceinline__ u32 insert(K k, u32 s, u32 row) const {
        for (;; s = (s + 1) & mask) {
            u32 other = atomicCAS(&slot[s], (u32)JOIN_END, row);
            if (other == JOIN_END) return row;
            if (key[other] == k) return other;
        }
    }

    // build makes the runs of n rows of a side, from a row on. Every thread takes part.
    __device__ __forceinline__ void build(const JoinArgs& a, u32 first, u32 n, u32* sums) const {
        for (u32 b = threadIdx.x; b <= mask; b += blockDim.x) slot[b] = JOIN_END;
        for (u32 w = threadIdx.x; w < (n + 1) / 2; w += blockDim.x) count[w] = end[w] = 0;
        __syncthreads();
        for (u32 r = threadIdx.x; r < n; r += blockDim.x)
            if (bit(a.buildValid, first + r)) add(count, insert(key[r], join_bucket(a, key[r]), r));
        __syncthreads();
        u32 before = 0;
        for (u32 r0 = 0; r0 < n; r0 += blockDim.x) {
            const u32 r = r0 + threadIdx.x, rows = r < n ? get(count, r) : 0;
            u32 total;
            const u32 at = before + block_exclusive(rows, sums, total);
            if (rows) atomicAdd(&end[r / 2], at << 16 * (r % 2));
            before += total;
        }
        __syncthreads();
        for (u32 r = threadIdx.x; r < n; r += blockDim.x)
            if (bit(a.buildValid, first + r)) rows[add(end, find(key[r], join_bucket(a, key[r])))] = (u16)r;
        __syncthreads();
    }
};

// join_runs joins late items. A chunk has one probe row for each thread, and the threads share its pairs evenly,
// whatever their keys. Shared memory has, at the offsets of JoinArgs:
//
//   next   counts and ends
//   head   slots
//   slots  rows
//   slot   of each probe row of the chunk, the pairs before it, and where its build rows begin
template <class K>
DEVICE void join_runs(const JoinArgs& a, u8* shared) {
    __shared__ u32 sums[33];
    __shared__ u64 base;
    __shared__ u32 taken;
    u32* count = (u32*)(shared + a.next);
    Runs<K> t = {nullptr, (u32*)(shared + a.head), count, count + (a.capacity + 1) / 2, (u16*)(shared + a.slots), (1u << a.bits) - 1};
    u32* pairs = (u32*)(shared + a.slot);
    u16* begins = (u16*)(pairs + blockDim.x + 1);
    JoinPlace place = a.places[blockIdx.x];
    for (bool resumed = place.item != NONE;; resumed = false) {
        if (threadIdx.x == 0) taken = resumed ? place.item : atomicAdd(&a.state->lateTaken, 1u);
        __syncthreads();
        place.item = taken;
        if (place.item >= a.state->late) break;
        const JoinItem item = a.late[place.item];
        t.key = (const K*)a.build + item.buildFrom;
        t.build(a, item.buildFrom, item.buildTo - item.buildFrom, sums);
        for (u32 chunk = resumed ? place.probe : item.probeFrom; chunk < item.probeTo; chunk += blockDim.x) {
            const u32 row = chunk + threadIdx.x;
            u32 n = 0;
            if (row < item.probeTo && bit(a.probeValid, row)) {
                const K k = ((const K*)a.probe)[row];
                const u32 at = t.find(k, join_bucket(a, k));
                if (at != JOIN_END) {
                    n = t.get(t.count, at);
                    begins[threadIdx.x] = (u16)(t.get(t.end, at) - n);
                }
            }
            u32 total;
            pairs[threadIdx.x] = block_exclusive(n, sums, total);
            if (threadIdx.x == 0) pairs[blockDim.x] = total;
            __syncthreads();
            for (u32 r = 0; pairs[r] < total;) {
                const u32 begin = pairs[r];
                u32 stop = r + 1; // end of the rows whose pairs make a batch, at least one row
                for (u32 past = blockDim.x + 1; past - stop > 1;) {
                    const u32 mid = (stop + past) / 2;
                    (pairs[mid] - begin <= JOIN_BATCH ? stop : past) = mid;
                }
                const u32 batch = pairs[stop] - begin;
                if (threadIdx.x == 0) base = fits(a, atomicAdd(&a.state->pairs, (u64)batch), batch);
                __syncthreads();
                const u64 to = base;
                if (to == ~0ull) {
                    if (threadIdx.x == 0) a.places[blockIdx.x] = {place.item, NONE, item.buildFrom, chunk + r};
                    return;
                }
                const Sides sides = {shared, nullptr, item.buildFrom, chunk};
                for (u32 done = 0; done < batch; done += 2 * blockDim.x) {
                    Pairs<2> p;
                    K k[2];
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        p.to[i] = done + i * blockDim.x + threadIdx.x;
                        p.in[i] = p.to[i] < batch;
                        u32 at = r; // the last row whose pairs begin at or before this one
                        for (u32 past = stop; past - at > 1;) {
                            const u32 mid = (at + past) / 2;
                            (pairs[mid] <= begin + p.to[i] ? at : past) = mid;
                        }
                        p.probe[i] = at;
                        p.build[i] = p.in[i] ? t.rows[begins[at] + begin + p.to[i] - pairs[at]] : 0;
                        k[i] = t.key[p.build[i]];
                    }
                    write_pairs(a, sides, p, k, to);
                }
                __syncthreads();
                r = stop;
            }
            __syncthreads();
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) a.places[blockIdx.x] = {place.item, NONE, 0, 0};
}

struct JoinPlanArgs {
    const u32* build; // offsets of the partitions
    const u32* probe;
    JoinItem* items;
    JoinState* state;
    u32 partitions;
    u32 capacity; // build rows of a table
    u32 slice;    // probe rows of an item
    u32 most;     // most items
    i64 buildRows, probeRows;
};

// join_plan makes the work items, in one block. A partition is split by its build rows or by its probe rows, whichever
// gives more items.
KERNEL_BOUNDS(join_plan, JoinPlanArgs, 1024, 1) {
    __shared__ u32 warps[33];
    u32 before = 0;
    for (u32 p0 = 0; p0 < a.partitions; p0 += blockDim.x) {
        const u32 p = p0 + threadIdx.x;
        JoinItem all = {0, 0, 0, 0};
        u32 tables = 0, slices = 0, total;
        if (p < a.partitions) {
            all = {a.build[p], a.build[p + 1], a.probe[p], a.probe[p + 1]};
            if (all.buildFrom > all.buildTo || all.buildTo > a.buildRows || all.probeFrom > all.probeTo || all.probeTo > a.probeRows) {
                a.state->wrong = 1;
                all = {0, 0, 0, 0};
            }
            tables = (all.buildTo - all.buildFrom + a.capacity - 1) / a.capacity;
            slices = (all.probeTo - all.probeFrom + a.slice - 1) / a.slice;
        }
        const u32 n = tables && slices ? max(tables, slices) : 0, at = before + block_exclusive(n, warps, total);
        for (u32 i = 0; i < n && at + i < a.most; i++) {
            JoinItem item = all;
            if (tables > slices) {
                item.buildFrom += i * a.capacity;
                item.buildTo = min(item.buildFrom + a.capacity, all.buildTo);
            } else {
                item.probeFrom += i * a.slice;
                item.probeTo = min(item.probeFrom + a.slice, all.probeTo);
            }
            a.items[at + i] = item;
        }
        before += total;
    }
    if (threadIdx.x == 0) a.state->items = min(before, a.most);
}

// join_KIND_kK has keys of K bytes. The threads and the rows of a thread were measured. joinRows in Go repeats them.
#define JOIN(name, K, mark, threads, rows) \
    KERNEL_BOUNDS(name, JoinArgs, threads, 1) { \
        SHARED(u8, shared); \
        join<K, threads, rows, mark>(a, shared); \
    }
JOIN(join_pairs_k4, u32, false, 768, 3)
JOIN(join_pairs_k8, u64, false, 768, 2)
JOIN(join_mark_k4, u32, true, 768, 3)
JOIN(join_mark_k8, u64, true, 768, 2)
#define JOIN_RUNS(k, K) \
    KERNEL_BOUNDS(join_runs_##k, JoinArgs, 768, 1) { \
        SHARED(u8, shared); \
        join_runs<K>(a, shared); \
    }
JOIN_RUNS(k4, u32)
JOIN_RUNS(k8, u64)
