// Joins of tuples by a chained hash table in device memory (Thostrup et al., SIGMOD 2023, section 4.2).
//
//   exchange_insert  adds the tuples of runs to the table
//   exchange_probe   joins the tuples of runs with the table, and counts the pairs
//   exchange_marks   writes the marks of runs that travel: how many tuples there are, and a checksum of each piece
//   exchange_active  is launched once, and polls for pieces: it checks and inserts those of the build side, and then
//                    checks and joins those of the probe side
//
// Bytes of a tuple: exchange_insert reads 16 and writes 32, and exchanges 4 at a random place; exchange_probe reads 16,
// 4 at a random place, and 32 at each of the random places of its chain. A random place costs a sector of 32 bytes.
#include "exchange.cuh"

// ExchangeTable has a chain for each slot. An entry has two rows of a sector: the tuple; the next entry plus 1, or 0.
struct ExchangeTable {
    Tuple* entries;
    u32* heads; // by slot: its last entry plus 1, or 0
    u64* used;  // entries, also those without room
    u64 mul;
    u32 shift, bits; // of the slot
    u32 capacity, unused;

    __device__ __forceinline__ u32 slot(u64 key) const { return (u32)(key * mul >> shift) & (u32)((1ull << bits) - 1); }

    // insert adds the tuples of a warp, of which each lane has those with a bit in have. All lanes call it.
    __device__ __forceinline__ void insert(const Tuple* t, u32 have) const {
        const u32 until = warp_inclusive((u32)__popc(have));
        u64 first = 0;
        if (lane_id() == 31 && until) first = atomicAdd(used, (u64)until);
        first = __shfl_sync(ALL, first, 31);
        u32 before = 0;
#pragma unroll
        for (int k = 0; k < EXCHANGE_ITEMS; k++) {
            const u32 lanes = __ballot_sync(ALL, have >> k & 1);
            const u64 at = first + before + __popc(lanes & lanes_below());
            before += __popc(lanes);
            if (!(have >> k & 1) || at >= capacity) continue;
            entries[2 * at] = t[k];
            entries[2 * at + 1] = Tuple{atomicExch(&heads[slot(t[k].x)], (u32)at + 1), 0};
        }
    }

    // probe adds the pairs of tuples to those of the thread. The loads of its tuples are under way together. They pass
    // the cache of a multiprocessor by, as other blocks of exchange_active have written the table.
    __device__ __forceinline__ void probe(const Tuple* t, u32 have, u64& pairs, u64& sum) const {
        u32 at[EXCHANGE_ITEMS];
        u32 any = 0;
#pragma unroll
        for (int k = 0; k < EXCHANGE_ITEMS; k++) at[k] = have >> k & 1 ? __ldcg(&heads[slot(t[k].x)]) : 0;
#pragma unroll
        for (int k = 0; k < EXCHANGE_ITEMS; k++) any |= at[k];
        while (any) {
            Tuple row[EXCHANGE_ITEMS], link[EXCHANGE_ITEMS];
#pragma unroll
            for (int k = 0; k < EXCHANGE_ITEMS; k++)
                if (at[k]) row[k] = __ldcg(&entries[2 * (u64)(at[k] - 1)]), link[k] = __ldcg(&entries[2 * (u64)(at[k] - 1) + 1]);
            any = 0;
#pragma unroll
            for (int k = 0; k < EXCHANGE_ITEMS; k++) {
                if (!at[k]) continue;
                if (row[k].x == t[k].x) pairs++, sum += row[k].y + t[k].y;
                at[k] = (u32)link[k].x;
                any |= at[k];
            }
        }
    }
};

// add adds the pairs of a block to the result. All threads of the block call it.
DEVICE void add_pairs(u64 pairs, u64 sum, u64* result) {
    __shared__ u64 totals[33];
    pairs = block_sum(pairs, totals);
    sum = block_sum(sum, totals);
    if (threadIdx.x == 0 && pairs) {
        atomicAdd(&result[0], pairs);
        atomicAdd(&result[1], sum);
    }
}

struct ExchangeTableArgs {
    const ExchangeRun* runs;
    u64* result; // of exchange_probe: pairs, and the sum of the values of both sides
    ExchangeTable table;
    u32 blocks, unused; // of a run
};

// each_tile calls f with the tuples of a block's tiles of its run. All threads of the block call it.
template <class F>
DEVICE void each_tile(const ExchangeTableArgs& a, F f) {
    const Filled run(a.runs[blockIdx.x / a.blocks]);
    for (u64 from = (u64)(blockIdx.x % a.blocks) * EXCHANGE_TILE; from < run.rows; from += (u64)a.blocks * EXCHANGE_TILE) {
        Tuple t[EXCHANGE_ITEMS];
        u32 have = 0;
#pragma unroll
        for (int k = 0; k < EXCHANGE_ITEMS; k++) {
            const u64 i = from + k * EXCHANGE_THREADS + threadIdx.x;
            if (i < run.rows) t[k] = run[(u32)i], have |= 1u << k;
        }
        f(t, have);
    }
}

KERNEL_BOUNDS(exchange_insert, ExchangeTableArgs, EXCHANGE_THREADS, 1) {
    each_tile(a, [&](const Tuple* t, u32 have) { a.table.insert(t, have); });
}

KERNEL_BOUNDS(exchange_probe, ExchangeTableArgs, EXCHANGE_THREADS, 1) {
    u64 pairs = 0, sum = 0;
    each_tile(a, [&](const Tuple* t, u32 have) { a.table.probe(t, have, pairs, sum); });
    add_pairs(pairs, sum, a.result);
}

// A piece of a run has EXCHANGE_TILE tuples. Its mark has their checksum, and what the run has: tuples from its
// beginning, 32 bits; tuples from its end, 31 bits; and MARKED.
constexpr u64 MARKED = 1ull << 63;

// The complement of the sum, so that memory of zeros has no mark.
DEVICE u64 checksum(u64 mine, u64* totals) { return ~block_sum(mine, totals); }

struct ExchangeMarkRun {
    const Tuple* tuples;
    const u32* counts;
    Tuple* marks; // by piece
    u32 room, unused;
};

struct ExchangeMarksArgs {
    const ExchangeMarkRun* runs;
    u32 pieces, unused; // of a run
};

KERNEL_BOUNDS(exchange_marks, ExchangeMarksArgs, EXCHANGE_THREADS, 1) {
    __shared__ u64 totals[33];
    const ExchangeMarkRun& r = a.runs[blockIdx.x / a.pieces];
    const u32 piece = blockIdx.x % a.pieces;
    const Filled run(ExchangeRun{r.tuples, r.counts, r.room, 0});
    u64 mine = 0;
#pragma unroll
    for (int k = 0; k < EXCHANGE_ITEMS; k++) {
        const u64 i = (u64)piece * EXCHANGE_TILE + k * EXCHANGE_THREADS + threadIdx.x;
        if (i < run.rows) {
            const Tuple t = run[(u32)i];
            mine += t.x + t.y;
        }
    }
    const u64 sum = checksum(mine, totals);
    if (threadIdx.x == 0) r.marks[piece] = Tuple{sum, MARKED | (u64)(run.rows - run.front) << 32 | run.front};
}

struct ExchangeMessage {
    const Tuple* tuples;
    const Tuple* marks; // by piece
};

// The words of the state of exchange_active; then follows the next piece of each block.
enum { BUILT, DONE, MISMATCHES, ACTIVE_STATE };

constexpr u32 CHECK_POLLS = 64; // what a checksum that is wrong counts for

struct ExchangeActiveArgs {
    const ExchangeMessage* messages; // those of the build side first
    u64* result;                     // pairs, and the sum of the values of both sides
    u32* state;
    ExchangeTable table;
    u32 builds, probes;           // messages
    u32 buildRoom, probeRoom;     // tuples of a message
    u32 buildPieces, probePieces; // of a message
    u32 polls, unused;            // before a block gives up
};

// Blocks take pieces in turn. A block looks for its piece some time, and if it does not come, the block ends, and begins
// with it in the next launch: so that no launch waits for ever. No block needs another one in the same launch.
KERNEL_BOUNDS(exchange_active, ExchangeActiveArgs, EXCHANGE_THREADS, 1) {
    __shared__ u64 totals[33];
    __shared__ Tuple mark;
    __shared__ bool there;
    const u32 me = threadIdx.x, build = a.builds * a.buildPieces, all = build + a.probes * a.probePieces;
    u64 pairs = 0, sum = 0;
    u32 unit = a.state[ACTIVE_STATE + blockIdx.x];
    for (; unit < all; unit += gridDim.x) {
        const bool probes = unit >= build;
        const u32 n = probes ? unit - build : unit, pieces = probes ? a.probePieces : a.buildPieces, piece = n % pieces;
        const ExchangeMessage m = a.messages[(probes ? a.builds : 0) + n / pieces];
        u32 polls = 0; // of the first thread
        Tuple t[EXCHANGE_ITEMS];
        u32 have;
        do {
            if (me == 0) {
                for (there = false; polls < a.polls; polls++) {
                    const volatile u64* at = &m.marks[piece].x;
                    const u64 rows = at[1];
                    there = rows && (!probes || ((volatile u32*)a.state)[BUILT] == build);
                    mark = Tuple{at[0], rows};
                    if (there) break;
                    __nanosleep(500);
                }
                __threadfence();
            }
            __syncthreads();
            if (!there) break;
            const Filled run(m.tuples, probes ? a.probeRoom : a.buildRoom, (u32)mark.y, (u32)(mark.y >> 32) & 0x7fffffff);
            u64 mine = 0;
            have = 0;
#pragma unroll
            for (int k = 0; k < EXCHANGE_ITEMS; k++) {
                const u64 i = (u64)piece * EXCHANGE_TILE + k * EXCHANGE_THREADS + me;
                if (i >= run.rows) continue;
                const volatile u64* at = &run.tuples[run.at((u32)i)].x; // copies may still be writing it
                t[k] = Tuple{at[0], at[1]};
                mine += t[k].x + t[k].y;
                have |= 1u << k;
            }
            if (checksum(mine, totals) == mark.x) break;
            if (me == 0) {
                atomicAdd(&a.state[MISMATCHES], 1u);
                polls += CHECK_POLLS;
                __nanosleep(4000);
            }
            __syncthreads();
        } while (true);
        if (!there) break;
        if (probes) {
            a.table.probe(t, have, pairs, sum);
        } else {
            a.table.insert(t, have);
            __threadfence();
        }
        __syncthreads();
        if (me == 0) {
            if (!probes) atomicAdd(&a.state[BUILT], 1u);
            atomicAdd(&a.state[DONE], 1u);
        }
    }
    add_pairs(pairs, sum, a.result);
    if (me == 0) a.state[ACTIVE_STATE + blockIdx.x] = unit;
}
