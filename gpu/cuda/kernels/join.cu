// The join of partitioned sides (PHJ of Wu et al., SIGMOD 2025, §4), matching and
// materialising at once. A block takes work items. It copies the build rows of a
// partition into shared memory, makes a hash table of them, probes it with the
// partition's probe rows, and writes the columns of the pairs. No ids go through device
// memory unless they are asked for.
//
// Bytes: the columns of both sides read once, those of the pairs written once.
//
// Work items are planned on the device. Room for pairs is reserved before they are
// written. When there is none left, a block notes where it stopped, and the next launch
// goes on from there.
#include "common.cuh"

// Bulk copies (Hopper and later) bring rows into shared memory by one instruction of one
// thread; other GPUs take 16 bytes a thread.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(GSTREAM_NO_BULK)
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

    // copy starts a copy; 16 bytes is the unit of all three. close ends those of a phase.
    // One thread calls both.
    __device__ __forceinline__ void copy(void* dst, const void* src, u32 bytes) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(dst)), "l"(src), "r"(bytes),
                     "r"(shared_address(barrier))
                     : "memory");
#endif
    }

    __device__ __forceinline__ void close() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
    }

    // wait waits for the copies of a phase.
    __device__ __forceinline__ void wait(u32 phase) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
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

// bulk_fence orders a thread's use of shared memory before copies that start after the
// next barrier.
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
    u32 unused;
};

constexpr u32 NONE = ~0u;
constexpr u32 JOIN_THREADS = 768;
constexpr u32 JOIN_TEAMS = 2; // of a block's threads, which share the probe rows of an item
constexpr u32 JOIN_TEAM = JOIN_THREADS / JOIN_TEAMS;

// JoinPlace is where a block stopped: a table of an item, and what each team has left of
// its probe rows.
struct JoinPlace {
    u32 item;  // NONE: the block has not begun
    u32 next;  // the item after it, which the block has taken; NONE: none
    u32 table; // first build row of the table
    u32 last;  // where the build rows of the table end; with runs, those of the block they are part of
    u32 many;  // 1: the table is one of runs
    u32 unused;
    u32 left[JOIN_TEAMS];  // by team: the first row left, NONE: none
    u32 again[JOIN_TEAMS]; // with runs, for the rest of the block: the first row left
};

// JoinLoad is a column whose rows are copied into shared memory.
struct JoinLoad {
    u64 src;
    u32 width; // bytes: 1, 2, 4 or 8
    u32 at;    // offset in the table, or in a slot of probe rows
    i32 build; // 1: of the build side
    u32 unused;
};

// JoinOutput is a column of the pairs.
struct JoinOutput {
    u64 src; // 0: row numbers, width 4
    u64 dst;
    u32 width;  // bytes: 1, 2, 4 or 8
    u32 stride; // in widths: values of 16 bytes are two columns of stride 2
    i32 at;     // offset of its rows in the table or in a slot; -1: they are not there
    i32 build;  // 1: of the build side
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
    u64 buildRows, probeRows; // of the columns
    JoinLoad load[JOIN_LOADS]; // the keys of both sides first
    JoinOutput output[JOIN_OUTPUTS];
    u32 loads, outputs;
    u32 capacity; // build rows of a table
    u32 bits;     // of the number of buckets
    u32 unique;   // 1: the build keys are distinct
    // Offsets in shared memory, and the bytes of a slot. The keys of the table are at 0.
    u32 next, head, slots, slot;
};

constexpr u32 JOIN_END = 0xffff;
constexpr u32 JOIN_ALIGN = 32;      // copies begin at a multiple of so many rows
constexpr u32 JOIN_MANY = 32;       // matches of a row for which chains are fast
constexpr u32 JOIN_BATCH = 1 << 15; // pairs for which room is reserved at a time when there are many

template <class K>
DEVICE u32 join_bucket(const JoinArgs& a, K key) {
    return sizeof(K) == 4 ? (u32)key * (u32)a.mul >> (32 - a.bits) : (u32)((u64)key * a.mul >> (64 - a.bits));
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

// Pairs are a thread's pairs: rows of both sides, and where each pair is written.
template <int N>
struct Pairs {
    u32 build[N]; // in the table
    u32 probe[N]; // after the first
    u32 to[N];    // after the first
    bool in[N];   // there is a pair
    u64 firstBuild, firstProbe, firstTo;
    const u8* table;
    const u8* slot; // null: probe rows are not in shared memory
};

template <class T, bool STRIDED, int N>
DEVICE void write_column(const JoinOutput& o, const Pairs<N>& p) {
    const u32 stride = STRIDED ? o.stride : 1;
    const bool near = o.at >= 0 && (o.build || p.slot);
    const u64 first = o.build ? p.firstBuild : p.firstProbe;
    T v[N];
    if (near && o.build) {
        const T* src = (const T*)(p.table + o.at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[p.build[i]];
    } else if (near) {
        const T* src = (const T*)(p.slot + o.at);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[p.probe[i]];
    } else if (!o.src) {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (T)(first + (o.build ? p.build[i] : p.probe[i]));
    } else {
        const T* src = (const T*)o.src + first * stride;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (p.in[i]) v[i] = src[(o.build ? p.build[i] : p.probe[i]) * stride];
    }
    T* dst = (T*)o.dst + p.firstTo * stride;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (p.in[i]) dst[p.to[i] * stride] = v[i];
}

// Step is an item and one of its tables.
struct Step {
    u32 item;        // its number
    JoinItem rows;   // of the item
    u32 table, last; // build rows of the table; with runs, of it and of the rest of its block
};

// Taken is an item that a block has taken before its turn.
struct Taken {
    u32 number;
    JoinItem item;
};

// Team is what the threads of a team share, by slot.
struct Team {
    u32 sums[2][JOIN_TEAM / 32]; // of a warp: pairs << ROW_BITS | rows with a match
    u64 base[2];                 // where the pairs of a chunk are written
    u32 many[2];                 // 1: a row of the chunk has many matches
};

// Joiner is a block at work. Its teams share the probe rows of an item. A team joins them
// chunk by chunk: one is copied while the one before it is joined, and while a team waits
// for room the other one works.
template <class K, int ROWS, bool MARK>
struct Joiner {
    static constexpr u32 CHUNK = JOIN_TEAM * ROWS, WARPS = JOIN_TEAM / 32;
    static constexpr u32 ROW_BITS = 12; // of the rows of a chunk
    static_assert(CHUNK < 1 << ROW_BITS, "the rows of a chunk need more bits");
    const JoinArgs& a;
    u8* memory;
    u32* sums;        // 33
    u64* base;
    u64* barriers;    // of the table, and of the slots
    Taken* taken;
    JoinPlace* place; // in shared memory
    Team* teams;
    u32 phases;       // of the barriers, a bit each
    Step step;
    u32 first;        // build row at 0 in the table
    bool unique;      // no two rows of the table have one key

    __device__ __forceinline__ static u32 align(u32 row) { return row / JOIN_ALIGN * JOIN_ALIGN; }
    __device__ __forceinline__ static u32 team() { return threadIdx.x / JOIN_TEAM; }
    __device__ __forceinline__ static u32 member() { return threadIdx.x % JOIN_TEAM; }
    __device__ __forceinline__ static void team_sync() { barrier_sync(1 + team(), JOIN_TEAM); }

    // copy starts to copy rows [from, to) of the columns of a side, by thread me of some.
    // What is left of a column behind its last 16 bytes is there at once.
    __device__ __forceinline__ void copy(u32 which, u8* dst, bool build, u32 from, u32 to, u32 me, u32 threads) const {
        if (JOIN_BULK && me != 0) return;
        const Arrival arrival = {barriers + which};
        for (u32 c = 0; c < a.loads; c++) {
            const JoinLoad& load = a.load[c];
            if (load.build != build) continue;
            const u64 begin = (u64)from * load.width, all = (build ? a.buildRows : a.probeRows) * load.width;
            const u32 bytes = (u32)(min(((u64)to * load.width + 15) / 16 * 16, all) - begin), whole = bytes / 16 * 16;
            const u8* src = (const u8*)load.src + begin;
            u8* at = dst + load.at;
            if (me == 0)
                for (u32 b = whole; b < bytes; b++) at[b] = src[b];
            if (!JOIN_BULK)
                for (u32 b = 16 * me; b < whole; b += 16 * threads) async_copy(at + b, src + b);
            else if (whole)
                arrival.copy(at, src, whole);
        }
        if (JOIN_BULK) arrival.close();
    }

    __device__ __forceinline__ void wait(u32 which) {
        if (JOIN_BULK) {
            Arrival{barriers + which}.wait(phases >> which);
            phases ^= 1u << which;
        } else {
            async_wait();
        }
    }

    __device__ __forceinline__ u8* slot_of(u32 which) const { return memory + a.slots + (2 * team() + which) * a.slot; }

    // copy_chunk starts to copy a chunk of the team's probe rows into a slot.
    __device__ __forceinline__ void copy_chunk(u32 which, u32 chunk, u32 end) const {
        if (chunk < end) copy(1 + 2 * team() + which, slot_of(which), false, chunk, min(chunk + CHUNK, end), member(), JOIN_TEAM);
    }

    __device__ __forceinline__ Chains<K> chains() const { return {(const K*)memory, (u16*)(memory + a.next), (u32*)(memory + a.head)}; }

    // Runs lie where the chains and the slots were: of half the rows of a table, their rows;
    // of one probe row a thread, the pairs before, and where their rows begin.
    __device__ __forceinline__ u32 half_words() const { return (a.capacity / 2 + 1) / 2; }
    __device__ __forceinline__ Runs<K> runs() const {
        u32* count = (u32*)(memory + a.next);
        return {(const K*)memory, (u32*)(memory + a.head), count, count + half_words(), (u16*)(memory + a.slots), (1u << a.bits) - 1};
    }
    __device__ __forceinline__ u32* before() const { return (u32*)(memory + a.slots) + half_words(); }
    __device__ __forceinline__ u16* begins() const { return (u16*)(before() + JOIN_THREADS + 1); }

    // share is where the probe rows of a team begin, and those of the one before end.
    __device__ __forceinline__ u32 share(u32 t) const {
        const u32 from = step.rows.probeFrom / JOIN_ALIGN, n = (step.rows.probeTo + JOIN_ALIGN - 1) / JOIN_ALIGN - from;
        return t == JOIN_TEAMS ? step.rows.probeTo : (from + n * t / JOIN_TEAMS) * JOIN_ALIGN;
    }

    __device__ __forceinline__ bool has(u32 row) const { return row >= step.rows.probeFrom && row < step.rows.probeTo && bit(a.probeValid, row); }

    __device__ __forceinline__ void build_chains() {
        Chains<K> t = chains();
        const u32 from = step.table - first, to = step.last - first;
#pragma unroll 4
        for (u32 r = from + threadIdx.x; r < to; r += JOIN_THREADS)
            if (bit(a.buildValid, first + r)) t.next[r] = (u16)atomicExch(&t.head[join_bucket(a, t.key[r])], r);
        __syncthreads();
        unique = true;
        if (MARK || a.unique) return;
        bool twice = false;
#pragma unroll 4
        for (u32 r = from + threadIdx.x; r < to; r += JOIN_THREADS)
            if (bit(a.buildValid, first + r)) twice |= t.find(t.key[r], t.next[r]) != JOIN_END;
        unique = !__syncthreads_or(twice);
    }

    // build_runs makes runs of the first rows of the table's block. They end at the result.
    __device__ __forceinline__ u32 build_runs() {
        Runs<K> t = runs();
        const u32 from = step.table - first, to = min(step.last - first, from + a.capacity / 2);
        __syncthreads();
        for (u32 b = threadIdx.x; b < 1u << a.bits; b += JOIN_THREADS) t.slot[b] = JOIN_END;
        for (u32 w = threadIdx.x; w < 2 * half_words(); w += JOIN_THREADS) t.count[w] = 0; // and end
        __syncthreads();
        // Rows that stand for keys are numbered from the first row on.
        t.key += from;
        for (u32 r = threadIdx.x; r < to - from; r += JOIN_THREADS)
            if (bit(a.buildValid, step.table + r)) t.add(t.count, t.insert(t.key[r], join_bucket(a, t.key[r]), r));
        __syncthreads();
        u32 run = 0;
        for (u32 r0 = 0; r0 < to - from; r0 += JOIN_THREADS) {
            u32 r = r0 + threadIdx.x, total;
            u32 n = r < to - from ? t.get(t.count, r) : 0, at = run + block_exclusive(n, sums, total);
            if (n) atomicAdd(&t.end[r / 2], at << 16 * (r % 2));
            run += total;
        }
        __syncthreads();
        for (u32 r = threadIdx.x; r < to - from; r += JOIN_THREADS)
            if (bit(a.buildValid, step.table + r)) t.rows[t.add(t.end, t.find(t.key[r], join_bucket(a, t.key[r])))] = (u16)(r + from);
        __syncthreads();
        return first + to;
    }

    // reserve asks for room for pairs. It returns where they begin, or ~0. One thread
    // calls it.
    __device__ __forceinline__ u64 reserve(u32 n) const {
        const u64 at = atomicAdd(&a.state->pairs, (u64)n);
        if (at + n <= a.limit) return at;
        atomicMin(&a.state->written, at);
        a.state->stopped = 1;
        return ~0ull;
    }

    template <int N>
    __device__ __forceinline__ void write(const Pairs<N>& p) const {
        for (u32 c = 0; c < a.outputs; c++) {
            const JoinOutput& o = a.output[c];
            switch (o.width) {
            case 1: write_column<u8, false>(o, p); break;
            case 2: write_column<u16, false>(o, p); break;
            case 4: write_column<u32, false>(o, p); break;
            default:
                if (o.stride == 1)
                    write_column<u64, false>(o, p);
                else
                    write_column<u64, true>(o, p);
            }
        }
    }

    // place_pairs says where the pairs of the warp are written, and returns how many there
    // are.
    __device__ __forceinline__ u32 place_pairs(Pairs<ROWS>& p) const {
        u32 n = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            p.in[i] = p.build[i] != JOIN_END;
            const u32 found = __ballot_sync(ALL, p.in[i]);
            p.to[i] = n + __popc(found & lanes_below());
            n += __popc(found);
        }
        return n;
    }

    // join_chunk joins a chunk that is in a slot, and starts to copy the next one. It
    // returns false when there is no room, or a row has many matches; then nothing was
    // written.
    __device__ __forceinline__ bool join_chunk(u32 which, u32 chunk, u32 end) {
        Team& mates = teams[team()];
        const Chains<K> t = chains();
        const u8* slot = slot_of(which);
        const u32 mine = member() / 32 * (32 * ROWS) + lane_id(); // (warp, i, lane) is the order of rows
        K k[ROWS];
        Pairs<ROWS> p;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            p.probe[i] = mine + 32 * i;
            const u32 row = chunk + p.probe[i];
            k[i] = ((const K*)slot)[p.probe[i]];
            p.build[i] = row < end && has(row) ? t.head[join_bucket(a, k[i])] : JOIN_END;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) p.build[i] = t.find(k[i], p.build[i]);
        if (MARK) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const u32 found = __ballot_sync(ALL, p.build[i] != JOIN_END);
                if (lane_id() == 0 && found) atomicOr(&a.matched[(chunk + p.probe[i]) / 32], found);
            }
            team_sync();
            copy_chunk(which ^ 1, chunk + CHUNK, end);
            return true;
        }
        u32 rows = place_pairs(p), pairs = rows;
        if (!unique) {
            bool many = false;
            pairs = 0;
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (!p.in[i]) continue;
                u32 m = 1;
                for (u32 at = t.find(k[i], t.next[p.build[i]]); at != JOIN_END && m <= JOIN_MANY; at = t.find(k[i], t.next[at])) m++;
                many |= m > JOIN_MANY;
                pairs += m;
            }
            if (many) mates.many[which] = 1;
            pairs = warp_sum(pairs);
        }
        if (lane_id() == 0) mates.sums[which][member() / 32] = pairs << ROW_BITS | rows;
        team_sync();
        // All threads are done with the chunk before this one.
        copy_chunk(which ^ 1, chunk + CHUNK, end);
        if (!unique && mates.many[which]) {
            if (member() == 0) place->many = 1;
            return false;
        }
        p.firstBuild = first;
        p.firstProbe = chunk;
        p.table = memory;
        p.slot = slot;
        for (u32 done = 0, total = 0;;) {
            const u32 w = lane_id() < WARPS ? mates.sums[which][lane_id()] : 0, before = w & ((1u << ROW_BITS) - 1), through = warp_inclusive(before);
            const u32 n = __shfl_sync(ALL, through, 31), warp = __shfl_sync(ALL, through - before, member() / 32);
            if (done == 0) {
                total = unique ? n : warp_sum(w >> ROW_BITS);
                if (total == 0) return true;
                if (member() == 0) mates.base[which] = reserve(total);
                team_sync();
                p.firstTo = mates.base[which];
                if (p.firstTo == ~0ull) return false;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) p.to[i] += warp;
            write(p);
            done += n;
            if (done == total) return true;
            // The next match of every row.
            p.firstTo += n;
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (p.in[i]) p.build[i] = t.find(k[i], t.next[p.build[i]]);
            rows = place_pairs(p);
            team_sync();
            if (lane_id() == 0) mates.sums[which][member() / 32] = rows;
            team_sync();
        }
    }

    // join_chains joins the team's probe rows from one on, whose chunk is being copied into
    // the first slot. It returns the row at which it stopped, or NONE.
    __device__ __forceinline__ u32 join_chains(u32 left) {
        const u32 end = share(team() + 1);
        u32 which = 0;
        for (u32 chunk = left; chunk < end; chunk += CHUNK, which ^= 1) {
            wait(1 + 2 * team() + which);
            if (!JOIN_BULK) team_sync();
            if (join_chunk(which, chunk, end)) continue;
            // No copy may outlast the chunks.
            if (chunk + CHUNK < end) wait(1 + 2 * team() + (which ^ 1));
            return chunk;
        }
        return NONE;
    }

    // join_runs joins probe rows from one on and before end, one a thread. It returns the
    // row at which it stopped because there was no room, or NONE.
    __device__ __forceinline__ u32 join_runs(u32 row, u32 end) {
        Runs<K> t = runs();
        t.key += step.table - first;
        const u32 mine = row + threadIdx.x;
        u32 n = 0;
        if (mine < end && has(mine)) {
            const K k = ((const K*)a.probe)[mine];
            const u32 at = t.find(k, join_bucket(a, k));
            if (at != JOIN_END) {
                n = t.get(t.count, at);
                begins()[threadIdx.x] = (u16)(t.get(t.end, at) - n);
            }
        }
        u32 total;
        u32* pairs = before();
        const u32 at = block_exclusive(n, sums, total);
        pairs[threadIdx.x] = at;
        if (threadIdx.x == 0) pairs[JOIN_THREADS] = total;
        __syncthreads();
        for (u32 b = 0; pairs[b] < total;) {
            const u32 begin = pairs[b];
            u32 stop = b + 1; // rows whose pairs make a batch, one at least
            for (u32 past = JOIN_THREADS + 1; past - stop > 1;) {
                const u32 mid = (stop + past) / 2;
                (pairs[mid] - begin <= JOIN_BATCH ? stop : past) = mid;
            }
            const u32 batch = pairs[stop] - begin;
            if (threadIdx.x == 0) *base = reserve(batch);
            __syncthreads();
            Pairs<2> p;
            p.firstBuild = first;
            p.firstProbe = row;
            p.firstTo = *base;
            p.table = memory;
            p.slot = nullptr;
            if (p.firstTo == ~0ull) return row + b;
            for (u32 done = 0; done < batch; done += JOIN_THREADS * 2) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    p.to[i] = done + i * JOIN_THREADS + threadIdx.x;
                    p.in[i] = p.to[i] < batch;
                    u32 r = b; // the last whose pairs begin at or before this one
                    for (u32 past = stop; past - r > 1;) {
                        const u32 mid = (r + past) / 2;
                        (pairs[mid] <= begin + p.to[i] ? r : past) = mid;
                    }
                    p.probe[i] = r;
                    p.build[i] = p.in[i] ? t.rows[begins()[r] + begin + p.to[i] - pairs[r]] : 0;
                }
                write(p);
            }
            __syncthreads();
            b = stop;
        }
        __syncthreads();
        return NONE;
    }

    // join_many joins the block of the step's table with what the teams have left of the
    // probe rows, through runs. It returns whether there was room.
    __device__ __forceinline__ bool join_many() {
        for (;;) {
            const u32 last = build_runs();
            for (u32 t = 0; t < JOIN_TEAMS; t++) {
                const u32 left = place->left[t], end = share(t + 1);
                for (u32 row = left; left != NONE && row < end; row += JOIN_THREADS) {
                    const u32 stopped = join_runs(row, end);
                    if (stopped != NONE) {
                        if (threadIdx.x == 0) place->left[t] = stopped;
                        return false;
                    }
                }
                __syncthreads();
                if (threadIdx.x == 0) place->left[t] = NONE;
            }
            if (last == step.last) return true;
            step.table = last;
            __syncthreads();
            if (threadIdx.x < JOIN_TEAMS) place->left[threadIdx.x] = place->again[threadIdx.x];
            __syncthreads();
        }
    }

    // join_table joins the step's table with the probe rows of the item, from those that
    // the teams have left. It returns whether there was room.
    __device__ __forceinline__ bool join_table(bool many) {
        const u32 left = place->left[team()];
        first = align(step.table);
        copy(0, memory, true, first, step.last, threadIdx.x, JOIN_THREADS);
        if (!many && left != NONE) copy_chunk(0, left, share(team() + 1));
        for (u32 b = threadIdx.x; b < 1u << a.bits; b += JOIN_THREADS) ((u32*)(memory + a.head))[b] = JOIN_END;
        if (member() < 2) teams[team()].many[member()] = 0;
        wait(0);
        __syncthreads();
        bool stopped = false;
        if (!many) {
            build_chains();
            const u32 stop = left == NONE ? NONE : join_chains(left);
            stopped = __syncthreads_or(stop != NONE);
            if (stopped && member() == 0) place->left[team()] = place->again[team()] = stop;
            __syncthreads();
            many = place->many;
        }
        return many ? join_many() : !stopped;
    }

    // run joins items until there are no more, or no room, from the place on where the
    // block stopped.
    __device__ __forceinline__ void run() {
        const u32 items = a.state->items;
        u32 next = place->next; // of thread 0
        bool resumed = place->item != NONE;
        if (threadIdx.x == 0) {
            u32 number = place->item;
            if (!resumed) {
                number = next == NONE ? atomicAdd(&a.state->taken, 1u) : next;
                next = NONE;
            }
            taken->number = number;
            if (number < items) taken->item = a.items[number];
        }
        __syncthreads();
        for (step.item = taken->number; step.item < items;) {
            step.rows = taken->item;
            if (threadIdx.x == 0 && next == NONE) next = atomicAdd(&a.state->taken, 1u); // in time
            for (step.table = resumed ? place->table : step.rows.buildFrom; step.table < step.rows.buildTo; step.table = step.last) {
                step.last = resumed ? place->last : min(step.table + a.capacity, step.rows.buildTo);
                const bool many = resumed && place->many;
                if (!resumed) {
                    if (threadIdx.x < JOIN_TEAMS) place->left[threadIdx.x] = share(threadIdx.x);
                    if (threadIdx.x == 0) place->many = 0;
                    __syncthreads();
                }
                resumed = false;
                const bool done = join_table(many);
                bulk_fence();
                __syncthreads();
                if (!done) {
                    if (threadIdx.x == 0) {
                        place->item = step.item;
                        place->next = next;
                        place->table = step.table;
                        place->last = step.last;
                    }
                    return;
                }
            }
            if (threadIdx.x == 0) {
                taken->number = next;
                if (next < items) taken->item = a.items[next];
                next = NONE;
            }
            __syncthreads();
            step.item = taken->number;
        }
        if (threadIdx.x == 0) place->item = step.item;
    }
};

template <class K, int ROWS, bool MARK>
DEVICE void join(const JoinArgs& a, u8* shared) {
    __shared__ u32 sums[33];
    __shared__ u64 base, barriers[1 + 2 * JOIN_TEAMS];
    __shared__ Taken taken;
    __shared__ JoinPlace place;
    __shared__ Team teams[JOIN_TEAMS];
    Joiner<K, ROWS, MARK> j{a, shared, sums, &base, barriers, &taken, &place, teams, 0};
    if (threadIdx.x < 1 + 2 * JOIN_TEAMS) Arrival{barriers + threadIdx.x}.init();
    if (threadIdx.x == 0) place = a.places[blockIdx.x];
    __syncthreads();
    j.run();
    __syncthreads();
    if (threadIdx.x == 0) a.places[blockIdx.x] = place;
}

struct JoinPlanArgs {
    const u32* build; // offsets of the partitions
    const u32* probe;
    JoinItem* items;
    JoinState* state;
    u32 partitions;
    u32 capacity; // build rows of a table
    u32 slice;    // probe rows of an item
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
            tables = (all.buildTo - all.buildFrom + a.capacity - 1) / a.capacity;
            slices = (all.probeTo - all.probeFrom + a.slice - 1) / a.slice;
        }
        const u32 n = tables && slices ? max(tables, slices) : 0, at = before + block_exclusive(n, warps, total);
        for (u32 i = 0; i < n; i++) {
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
    if (threadIdx.x == 0) a.state->items = before;
}

// join_KIND_kK: keys of K bytes, and rows a thread. joinRows in Go repeats them.
#define JOIN(name, K, rows, mark) \
    KERNEL_BOUNDS(name, JoinArgs, JOIN_THREADS, 1) { \
        SHARED(u8, shared); \
        join<K, rows, mark>(a, shared); \
    }
JOIN(join_pairs_k4, u32, 3, false)
JOIN(join_pairs_k8, u64, 2, false)
JOIN(join_mark_k4, u32, 3, true)
JOIN(join_mark_k8, u64, 2, true)
