// The join of partitioned sides (PHJ of Wu et al., SIGMOD 2025, §4), matching and
// materialising at once. A block takes work items: it copies the build rows of a
// partition into shared memory, makes a hash table of them, probes it with the
// partition's probe rows chunk by chunk, and writes the columns of the pairs. No ids go
// through device memory unless they are asked for.
//
// Bytes: the columns of both sides read once, those of the pairs written once.
//
// Work items are planned on the device. Pairs are counted before they are written: a
// block reserves room for those of a chunk, and when there is none left, it notes where
// it stopped, and the next launch goes on from there.
#include "common.cuh"

// Bulk copies (Hopper and later) bring rows into shared memory by one instruction of one
// thread; other GPUs take 16 bytes a thread.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 && !defined(GSTREAM_NO_BULK)
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

// Arrival is a barrier of shared memory that bulk copies arrive at.
struct Arrival {
    u64* barrier;

    // init is called by one thread, before a barrier of the block.
    __device__ __forceinline__ void init() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }

    // expect says how many bytes the copies of a phase have. One thread calls it.
    __device__ __forceinline__ void expect(u32 bytes) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#endif
    }

    // copy starts a copy; 16 bytes is the unit of all three.
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

// bulk_fence orders a thread's stores to shared memory before copies that start after
// the next barrier.
DEVICE void bulk_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// async_copy starts the copy of 16 bytes, async_wait waits for all copies of the thread.
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

// JoinItem is a work item: rows of one partition of both sides. Either its build rows
// are those of one table, or its probe rows those of one slice.
struct JoinItem {
    u32 buildFrom, buildTo, probeFrom, probeTo;
};

struct JoinState {
    u64 pairs;   // for which room was asked
    u64 written; // before the first for which there was none
    u32 items;
    u32 taken;   // items that blocks have taken
    u32 stopped; // 1 when room was missing
    u32 wrong;   // 1 when offsets descend or leave the rows
};

// JoinPlace is where a block stopped, in an item or between two.
struct JoinPlace {
    u32 item;  // NONE: between two
    u32 next;  // the item after it, which the block has taken
    u32 table; // first build row of the table
    u32 last;  // where the build rows of the table, or of the rest of its block, end
    u32 probe; // first probe row
    u32 again; // many: first probe row for the rest of the table's block
    u32 many;  // 1: the table is one of runs
    u32 unused;
};

// JoinLoad is a column whose rows are copied into shared memory.
struct JoinLoad {
    u64 src;
    u64 rows;
    u32 width; // bytes: 1, 2, 4 or 8
    u32 at;    // offset in the table, or in a slot of probe rows
    i32 build;
    u32 unused;
};

// JoinOutput is a column of the pairs.
struct JoinOutput {
    u64 src; // 0: row numbers, width 4
    u64 dst;
    u32 width;  // bytes: 1, 2, 4 or 8
    u32 stride; // in widths: values of 16 bytes are two columns of stride 2
    i32 at;     // where its rows are in shared memory; -1: they are not
    i32 build;
};

constexpr int JOIN_LOADS = 16, JOIN_OUTPUTS = 32;

struct JoinArgs {
    u64 build; // keys
    u64 probe;
    const u32* buildValid; // null: no nulls
    const u32* probeValid;
    const JoinItem* items;
    JoinState* state;
    JoinPlace* places; // by block
    u32* matched;      // bitmap of the probe rows with a match
    u64 limit;         // of pairs
    u64 mul;           // odd; makes buckets of keys
    JoinLoad load[JOIN_LOADS];
    JoinOutput output[JOIN_OUTPUTS];
    u32 loads, outputs;
    u32 capacity; // build rows of a table
    u32 bits;     // of the number of buckets
    u32 unique;   // 1: the build keys are distinct
    // Offsets in shared memory. Columns of the table are at 0, its keys first.
    u32 next, head, slots, slot;
};

constexpr u32 NONE = ~0u;
constexpr u32 JOIN_END = 0xffff;
constexpr u32 JOIN_ALIGN = 32;      // copies begin at a multiple of so many rows
constexpr u32 JOIN_MANY = 32;       // matches of a row for which chains are fast
constexpr u32 JOIN_BATCH = 1 << 16; // pairs that a block reserves at a time when there are many

template <class K>
DEVICE u32 join_bucket(const JoinArgs& a, K key, u32 bits) {
    return sizeof(K) == 4 ? (u32)key * (u32)a.mul >> (32 - bits) : (u32)((u64)key * a.mul >> (64 - bits));
}

// Chains is a chained hash table: the rows of a bucket in any order.
template <class K>
struct Chains {
    const K* key; // by row
    u16* next;    // by row: the one before it in the bucket, or JOIN_END
    u32* head;    // by bucket: its last row, or JOIN_END

    // find returns the first row of a key from a row on, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 at) const {
        while (at != JOIN_END && key[at] != k) at = next[at];
        return at;
    }
};

// Runs is a table for keys that many rows have: the rows of a key together.
template <class K>
struct Runs {
    const K* key; // by row
    u32* slot;    // open addressing: the row that stands for its key, or JOIN_END
    u32* count;   // two rows a word: how many rows have the key
    u32* end;     // two rows a word: where they end
    u16* rows;
    u32 mask;

    __device__ __forceinline__ u32 get(const u32* halves, u32 row) const { return halves[row / 2] >> 16 * (row % 2) & 0xffff; }
    __device__ __forceinline__ u32 add(u32* halves, u32 row) const { return atomicAdd(&halves[row / 2], 1u << 16 * (row % 2)) >> 16 * (row % 2) & 0xffff; }

    // find returns the row that stands for a key, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 s) const {
        for (;; s = (s + 1) & mask) {
            u32 row = slot[s];
            if (row == JOIN_END || key[row] == k) return row;
        }
    }

    // insert is find, and makes the row stand for its key if none does.
    __device__ __forceinline__ u32 insert(K k, u32 s, u32 row) const {
        for (;; s = (s + 1) & mask) {
            u32 other = atomicCAS(&slot[s], (u32)JOIN_END, row);
            if (other == JOIN_END) return row;
            if (key[other] == k) return other;
        }
    }
};

// Pairs are a thread's pairs: rows of both sides in shared memory, and where the pair is
// written, if it is.
template <int N>
struct Pairs {
    u32 build[N], probe[N], to[N];
    bool in[N];
};

template <class T, bool STRIDED, int N>
DEVICE void write_column(const JoinOutput& o, const u8* shared, const u32 (&pick)[N], const Pairs<N>& p, u64 base, u64 row) {
    const u32 stride = STRIDED ? o.stride : 1;
    T v[N];
    if (o.at >= 0) {
        const T* src = (const T*)(shared + o.at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[pick[i]];
    } else if (o.src) {
        const T* src = (const T*)o.src + row * stride;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[pick[i] * stride];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (T)(row + pick[i]);
    }
    T* dst = (T*)o.dst + base * stride;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (p.in[i]) dst[p.to[i] * stride] = v[i];
}

// Joiner is a block at work.
template <class K, u32 THREADS, int ROWS, bool MARK>
struct Joiner {
    static constexpr u32 CHUNK = THREADS * ROWS, WARPS = THREADS / 32;
    static constexpr u32 ROW_BITS = 12; // of the rows of a chunk
    static_assert(CHUNK < 1 << ROW_BITS, "the rows of a chunk need more bits");

    const JoinArgs& a;
    u8* memory;
    u32* sums; // 33
    u64* base;
    u64* barriers; // of the slots, and of the table
    u32 phases;    // a bit each
    JoinItem item;
    JoinPlace place;
    u32 first;   // build row at 0 in the table's columns
    u32 chunk;   // probe row at 0 in a slot
    u8* slot;    // the chunk's
    bool unique; // no two rows of the table have one key

    __device__ __forceinline__ Joiner(const JoinArgs& args, u8* shared, u32* s, u64* b, u64* of) : a(args), memory(shared), sums(s), base(b), barriers(of), phases(0) {
        for (int i = 0; i < 3; i++)
            if (threadIdx.x == 0) arrival(i).init();
        __syncthreads();
    }

    __device__ __forceinline__ Arrival arrival(u32 which) const { return {barriers + which}; }

    // copy starts to copy rows [from, to) of the columns of a side, as which says: to a
    // slot, or for 2 to the table. from is aligned.
    __device__ __forceinline__ void copy(u32 which, u32 from, u32 to) {
        u8* dst = which == 2 ? memory : memory + a.slots + which * a.slot;
        if (JOIN_BULK && threadIdx.x != 0) return;
        u32 bytes = 0;
        for (u32 c = 0; c < a.loads; c++) {
            const JoinLoad& load = a.load[c];
            if (load.build != (which == 2)) continue;
            const Range r = range(load, from, to);
            bytes += r.whole;
            if (threadIdx.x == 0)
                for (u32 b = r.whole; b < r.bytes; b++) dst[load.at + b] = r.src[b];
            for (u32 b = 16 * threadIdx.x; !JOIN_BULK && b < r.whole; b += 16 * THREADS) async_copy(dst + load.at + b, r.src + b);
        }
        if (!JOIN_BULK) return;
        arrival(which).expect(bytes);
        for (u32 c = 0; c < a.loads; c++) {
            const JoinLoad& load = a.load[c];
            if (load.build != (which == 2)) continue;
            const Range r = range(load, from, to);
            if (r.whole) arrival(which).copy(dst + load.at, r.src, r.whole);
        }
    }

    struct Range {
        const u8* src;
        u32 bytes;
        u32 whole; // of them, in units of 16
    };

    // range is the bytes of rows [from, to), in whole units of 16 but at the end of the
    // column.
    __device__ __forceinline__ static Range range(const JoinLoad& load, u32 from, u32 to) {
        const u64 begin = (u64)from * load.width;
        const u32 bytes = (u32)(min(((u64)to * load.width + 15) / 16 * 16, load.rows * load.width) - begin);
        return {(const u8*)load.src + begin, bytes, bytes / 16 * 16};
    }

    // arrived waits for the rows that copy was last called for.
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

    // The arrays of runs lie where the chains and the second slot were.
    __device__ __forceinline__ u32 half() const { return a.capacity / 2; }
    __device__ __forceinline__ u32 half_words() const { return (half() + 1) / 2; }
    __device__ __forceinline__ Runs<K> runs() const {
        u32* count = (u32*)(memory + a.next);
        return {(const K*)memory, (u32*)(memory + a.head), count, count + half_words(), (u16*)(memory + a.slots + a.slot), (1u << a.bits) - 1};
    }
    __device__ __forceinline__ u32* before() const { return (u32*)(runs().rows + 2 * half_words()); }
    __device__ __forceinline__ u16* begins() const { return (u16*)(before() + CHUNK + 1); }

    // row_of is a thread's i-th row of a chunk: (warp, i, lane) is their order.
    __device__ __forceinline__ u32 row_of(int i) const { return warp_id() * (32 * ROWS) + 32 * i + lane_id(); }

    // keys reads a thread's keys of the chunk; has says which rows are the item's and
    // have a key.
    __device__ __forceinline__ void keys(K (&k)[ROWS], bool (&has)[ROWS]) const {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            u32 r = row_of(i), row = chunk + r;
            has[i] = row >= place.probe && row < item.probeTo && bit(a.probeValid, row);
            k[i] = has[i] ? ((const K*)slot)[r] : 0;
        }
    }

    __device__ __forceinline__ void build_chains() {
        Chains<K> t = chains();
        const u32 from = place.table - first, to = place.last - first;
#pragma unroll 4
        for (u32 r = from + threadIdx.x; r < to; r += THREADS)
            if (bit(a.buildValid, first + r)) t.next[r] = (u16)atomicExch(&t.head[join_bucket(a, t.key[r], a.bits)], r);
        __syncthreads();
        unique = true;
        if (MARK || a.unique) return;
        bool twice = false;
#pragma unroll 2
        for (u32 r = from + threadIdx.x; r < to; r += THREADS)
            if (bit(a.buildValid, first + r)) twice |= t.find(t.key[r], t.next[r]) != JOIN_END;
        unique = !__syncthreads_or(twice);
    }

    // build_runs makes runs of the first rows of the block. They end at the result.
    __device__ __forceinline__ u32 build_runs() {
        Runs<K> t = runs();
        const u32 from = place.table - first, to = min(place.last - first, from + half());
        __syncthreads();
        for (u32 b = threadIdx.x; b < 1u << a.bits; b += THREADS) t.slot[b] = JOIN_END;
        for (u32 w = threadIdx.x; w < 2 * half_words(); w += THREADS) t.count[w] = 0; // and end
        __syncthreads();
        // Rows that stand for keys are numbered from the first row on.
        t.key += from;
        for (u32 r = threadIdx.x; r < to - from; r += THREADS)
            if (bit(a.buildValid, place.table + r)) t.add(t.count, t.insert(t.key[r], join_bucket(a, t.key[r], a.bits), r));
        __syncthreads();
        u32 run = 0;
        for (u32 r0 = 0; r0 < to - from; r0 += THREADS) {
            u32 r = r0 + threadIdx.x, total;
            u32 n = r < to - from ? t.get(t.count, r) : 0, at = run + block_exclusive(n, sums, total);
            if (n) atomicAdd(&t.end[r / 2], at << 16 * (r % 2));
            run += total;
        }
        __syncthreads();
        for (u32 r = threadIdx.x; r < to - from; r += THREADS)
            if (bit(a.buildValid, place.table + r)) t.rows[t.add(t.end, t.find(t.key[r], join_bucket(a, t.key[r], a.bits)))] = (u16)(r + from);
        __syncthreads();
        return first + to;
    }

    // reserve asks for room for pairs, for all threads. It returns where they begin.
    __device__ __forceinline__ u64 reserve(u32 n) {
        if (threadIdx.x == 0) {
            u64 at = atomicAdd(&a.state->pairs, (u64)n);
            if (at + n > a.limit) {
                atomicMin(&a.state->written, at);
                a.state->stopped = 1;
                at = ~0ull;
            }
            *base = at;
        }
        __syncthreads();
        return *base;
    }

    // write writes the columns of pairs.
    __device__ __forceinline__ void write(const Pairs<ROWS>& p, u64 at) const {
        for (u32 c = 0; c < a.outputs; c++) {
            const JoinOutput& o = a.output[c];
            if (o.build)
                write_side(o, memory, p.build, p, at, first);
            else
                write_side(o, slot, p.probe, p, at, chunk);
        }
    }

    __device__ __forceinline__ void write_side(const JoinOutput& o, const u8* shared, const u32 (&pick)[ROWS], const Pairs<ROWS>& p, u64 at, u64 row) const {
        switch (o.width) {
        case 1: write_column<u8, false>(o, shared, pick, p, at, row); break;
        case 2: write_column<u16, false>(o, shared, pick, p, at, row); break;
        case 4: write_column<u32, false>(o, shared, pick, p, at, row); break;
        default:
            if (o.stride == 1)
                write_column<u64, false>(o, shared, pick, p, at, row);
            else
                write_column<u64, true>(o, shared, pick, p, at, row);
        }
    }

    // mark_chunk sets the bits of the chunk's rows that have a match.
    __device__ __forceinline__ void mark_chunk() {
        K k[ROWS];
        bool has[ROWS];
        keys(k, has);
        Chains<K> t = chains();
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            bool found = has[i] && t.find(k[i], t.head[join_bucket(a, k[i], a.bits)]) != JOIN_END;
            u32 rows = __ballot_sync(ALL, found);
            if (lane_id() == 0 && rows) atomicOr(&a.matched[(chunk + row_of(i)) / 32], rows);
        }
    }

    // join_chunk probes the chains with a chunk and writes its pairs. It returns 0 when
    // that is done, 1 when there was no room, and 2 when a row has many matches: then
    // nothing was written. After the first barrier it starts to copy the next chunk.
    __device__ __forceinline__ int join_chunk(u32 which) {
        K k[ROWS];
        Pairs<ROWS> p;
        keys(k, p.in);
        Chains<K> t = chains();
#pragma unroll
        for (int i = 0; i < ROWS; i++) p.build[i] = p.in[i] ? t.head[join_bucket(a, k[i], a.bits)] : JOIN_END;
        u32 pairs = 0, rows = 0; // of the warp: pairs, and rows with a match
        bool many = false;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            p.build[i] = t.find(k[i], p.build[i]);
            p.probe[i] = row_of(i);
            p.in[i] = p.build[i] != JOIN_END;
            const u32 found = __ballot_sync(ALL, p.in[i]);
            p.to[i] = rows + __popc(found & lanes_below());
            rows += __popc(found);
        }
        if (!unique) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (!p.in[i]) continue;
                u32 n = 1;
                for (u32 m = t.find(k[i], t.next[p.build[i]]); m != JOIN_END && n <= JOIN_MANY; m = t.find(k[i], t.next[m])) n++;
                many |= n > JOIN_MANY;
                pairs += n;
            }
            pairs = warp_sum(pairs);
        } else {
            pairs = rows;
        }
        if (lane_id() == 0) sums[warp_id()] = pairs << ROW_BITS | rows;
        if (unique)
            __syncthreads();
        else
            many = __syncthreads_or(many);
        copy_next(which ^ 1);
        if (!unique && many) return 2;
        u64 to = 0;
        for (u32 done = 0, total = 0;;) {
            const u32 w = lane_id() < WARPS ? sums[lane_id()] : 0, mine = w & ((1u << ROW_BITS) - 1), through = warp_inclusive(mine);
            const u32 n = __shfl_sync(ALL, through, 31), warp = __shfl_sync(ALL, through - mine, warp_id());
            if (done == 0) {
                total = unique ? n : warp_sum(w >> ROW_BITS);
                if (total == 0) {
                    __syncthreads();
                    return 0;
                }
                to = reserve(total);
                if (to == ~0ull) return 1;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) p.to[i] += warp;
            write(p, to + done);
            done += n;
            if (done == total) return 0;
            // The next match of every row.
            rows = 0;
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (p.in[i]) p.build[i] = t.find(k[i], t.next[p.build[i]]);
                p.in[i] = p.build[i] != JOIN_END;
                const u32 found = __ballot_sync(ALL, p.in[i]);
                p.to[i] = rows + __popc(found & lanes_below());
                rows += __popc(found);
            }
            __syncthreads();
            if (lane_id() == 0) sums[warp_id()] = rows;
            __syncthreads();
        }
    }

    // join_runs probes runs with a chunk. It returns whether there was room; otherwise
    // place.probe is the first row whose pairs are missing.
    __device__ __forceinline__ bool join_runs() {
        K k[ROWS];
        bool has[ROWS];
        keys(k, has);
        Runs<K> t = runs();
        t.key += place.table - first;
        u32 n[ROWS], at[ROWS], mine = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            u32 row = has[i] ? t.find(k[i], join_bucket(a, k[i], a.bits)) : JOIN_END;
            n[i] = 0;
            if (row != JOIN_END) {
                n[i] = t.get(t.count, row);
                begins()[row_of(i)] = (u16)(t.get(t.end, row) - n[i]);
            }
            u32 through = warp_inclusive(n[i]);
            at[i] = mine + through - n[i];
            mine += __shfl_sync(ALL, through, 31);
        }
        u32 total, warp = block_exclusive(lane_id() == 0 ? mine : 0, sums, total);
        warp = __shfl_sync(ALL, warp, 0);
        u32* pairs = before();
#pragma unroll
        for (int i = 0; i < ROWS; i++) pairs[row_of(i)] = warp + at[i];
        if (threadIdx.x == 0) pairs[CHUNK] = total;
        __syncthreads();
        for (u32 r = 0; pairs[r] < total;) {
            const u32 begin = pairs[r];
            u32 end = r + 1; // rows whose pairs make a batch, one at least
            for (u32 past = CHUNK + 1; past - end > 1;) {
                u32 mid = (end + past) / 2;
                (pairs[mid] - begin <= JOIN_BATCH ? end : past) = mid;
            }
            const u32 batch = pairs[end] - begin;
            const u64 to = reserve(batch);
            if (to == ~0ull) {
                place.probe = max(place.probe, chunk + r);
                return false;
            }
            for (u32 done = 0; done < batch; done += CHUNK) {
                Pairs<ROWS> p;
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    p.to[i] = done + i * THREADS + threadIdx.x;
                    p.in[i] = p.to[i] < batch;
                    u32 row = r; // the last whose pairs begin at or before this one
                    for (u32 past = end; past - row > 1;) {
                        u32 mid = (row + past) / 2;
                        (pairs[mid] <= begin + p.to[i] ? row : past) = mid;
                    }
                    p.probe[i] = row;
                    p.build[i] = p.in[i] ? t.rows[begins()[row] + begin + p.to[i] - pairs[row]] : 0;
                }
                write(p, to);
            }
            __syncthreads();
            r = end;
        }
        __syncthreads();
        return true;
    }

    // copy_next starts to copy the chunk after this one.
    __device__ __forceinline__ void copy_next(u32 which) {
        if (chunk + CHUNK < item.probeTo) copy(which, chunk + CHUNK, min(chunk + 2 * CHUNK, item.probeTo));
    }

    // join_chunks joins the probe rows from place.probe on with one table. It returns
    // whether there was room. A chunk is copied while the one before it is joined.
    __device__ __forceinline__ bool join_chunks(u32& last) {
        u32 which = 0;
        first = place.table / JOIN_ALIGN * JOIN_ALIGN;
        chunk = place.probe / JOIN_ALIGN * JOIN_ALIGN;
        copy(2, first, place.last);
        copy(0, chunk, min(chunk + CHUNK, item.probeTo));
        for (u32 b = threadIdx.x; b < 1u << a.bits; b += THREADS) chains().head[b] = JOIN_END;
        __syncthreads();
        arrived(2);
        last = place.last;
        if (place.many)
            last = build_runs();
        else
            build_chains();
        for (; chunk < item.probeTo; chunk += CHUNK) {
            slot = memory + a.slots + which * a.slot;
            arrived(which);
            if (MARK) {
                mark_chunk();
                __syncthreads();
                copy_next(which);
                continue;
            }
            int outcome = 2;
            if (!place.many) outcome = join_chunk(which);
            if (outcome == 1) {
                place.probe = max(place.probe, chunk);
                if (chunk + CHUNK < item.probeTo) arrived(which ^ 1);
                return false;
            }
            if (outcome == 0) {
                which ^= 1;
                continue;
            }
            if (!place.many) { // from this chunk on with runs, which have half the rows
                if (chunk + CHUNK < item.probeTo) arrived(which ^ 1);
                place.many = 1;
                place.probe = place.again = max(place.probe, chunk);
                last = build_runs();
                if (which == 1) { // runs take the second slot
                    which = 0;
                    slot = memory + a.slots;
                    copy(0, chunk, min(chunk + CHUNK, item.probeTo));
                    arrived(0);
                }
            }
            if (!join_runs()) return false;
            copy_next(which);
        }
        return true;
    }

    // run joins an item from place on.
    __device__ __forceinline__ bool run() {
        for (;;) {
            u32 last;
            if (!join_chunks(last)) return false;
            bulk_fence();
            __syncthreads();
            if (last < place.last) { // the rest of the block
                place.table = last;
                place.probe = place.again;
                continue;
            }
            if (last == item.buildTo) return true;
            begin(last);
        }
    }

    // begin is at the table that begins at a build row of the item.
    __device__ __forceinline__ void begin(u32 row) {
        place.table = row;
        place.last = min(row + a.capacity, item.buildTo);
        place.probe = item.probeFrom;
        place.many = 0;
    }
};

template <class K, u32 THREADS, int ROWS, bool MARK>
DEVICE void join(const JoinArgs& a, u8* shared) {
    __shared__ u32 sums[33];
    __shared__ u64 base, barriers[3];
    __shared__ u32 taken;
    Joiner<K, THREADS, ROWS, MARK> j(a, shared, sums, &base, barriers);
    const u32 items = a.state->items;
    j.place = a.places[blockIdx.x];
    u32 next = j.place.next;
    bool fresh = false;
    if (j.place.item == NONE) {
        fresh = true;
        j.place.item = next;
        next = NONE;
    }
    for (;; fresh = true) {
        // The item after this one is taken before its turn.
        if (threadIdx.x == 0) {
            if (next == NONE) next = atomicAdd(&a.state->taken, 1u);
            if (j.place.item == NONE) {
                j.place.item = next;
                next = atomicAdd(&a.state->taken, 1u);
            }
            taken = j.place.item;
        }
        __syncthreads();
        j.place.item = taken;
        if (taken >= items) break;
        j.item = a.items[taken];
        if (fresh) j.begin(j.item.buildFrom);
        if (!j.run()) break;
        j.place.item = next;
        next = NONE;
    }
    if (threadIdx.x == 0) {
        j.place.next = next;
        a.places[blockIdx.x] = j.place;
    }
}

struct JoinPlanArgs {
    const u32* build; // offsets of the partitions
    const u32* probe;
    JoinItem* items;
    JoinState* state;
    u32 partitions;
    u32 capacity; // build rows of a table
    u32 slice;    // probe rows of an item
    u32 most;     // items that there is room for
    i64 buildRows, probeRows;
};

// join_plan makes the work items, in one block. A partition is cut by its build rows or
// by its probe rows, whichever gives more items.
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

// join_KIND_kK: keys of K bytes, threads, and rows a thread as measured. joinRows in Go
// repeats them.
#define JOIN(name, K, mark, threads, rows) \
    KERNEL_BOUNDS(name, JoinArgs, threads, 1) { \
        SHARED(u8, shared); \
        join<K, threads, rows, mark>(a, shared); \
    }
JOIN(join_pairs_k4, u32, false, 768, 3)
JOIN(join_pairs_k8, u64, false, 768, 2)
JOIN(join_mark_k4, u32, true, 768, 3)
JOIN(join_mark_k8, u64, true, 768, 2)
