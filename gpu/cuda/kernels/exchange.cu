// Joins of tuples that are spread over several GPUs (Thostrup et al., SIGMOD 2023). Tuples have a key and a value of 8
// bytes. tuples.cu makes the first pass, by the bits that select the GPU among others. Its tuples arrive here in runs,
// one of each bin and sender.
//
//   exchange_partition  second pass: a block partitions a run, and writes lines of 128 bytes
//   exchange_join       a block joins a partition by a hash table in shared memory, and counts the pairs
//   exchange_sums       adds up the tuples of runs, and counts those in a wrong run
//
// Bytes of a tuple: exchange_partition reads 32 and writes 16, exchange_join reads 16.
#include "common.cuh"

constexpr u32 EXCHANGE_THREADS = 1024, EXCHANGE_WARPS = EXCHANGE_THREADS / 32;
constexpr int EXCHANGE_ITEMS = 4;
constexpr u32 EXCHANGE_TILE = EXCHANGE_THREADS * EXCHANGE_ITEMS;
constexpr u32 LINE = 8; // tuples of a line of 128 bytes
constexpr u32 NOWHERE = ~0u;

typedef ulonglong2 Tuple; // x is the key, y the value

DEVICE u32 key_digit(u64 key, u64 mul, u32 shift, u32 bits) { return (u32)(key * mul >> shift) & ((1u << bits) - 1); }

// ExchangeRun is a run of tuples. to is the first tuple of its room in the output, a multiple of LINE; in exchange_sums
// the digit of its tuples.
struct ExchangeRun {
    const Tuple* tuples;
    u32 rows, to;
};

struct ExchangePartitionArgs {
    const ExchangeRun* runs; // by block
    Tuple* out;
    u32* starts; // by run and digit: first tuple in the output
    u32* counts; // by run and digit
    u64 mul;     // odd; keys are multiplied by it
    u32 shift, bits;
};

KERNEL_BOUNDS(exchange_partition, ExchangePartitionArgs, EXCHANGE_THREADS, 1) {
    SHARED(Tuple, tile); // in order of digit
    const u32 ways = 1u << a.bits, me = threadIdx.x;
    Tuple* carry = tile + EXCHANGE_TILE;            // by digit: at most LINE - 1 tuples
    u32* count = (u32*)(carry + ways * (LINE - 1)); // of the tile, by digit
    u32* start = count + ways;                      // in the tile, by digit
    u32* next = start + ways;                       // in the output, by digit
    u32* left = next + ways;                        // tuples in carry, by digit
    __shared__ u32 sums[33];
    const ExchangeRun run = a.runs[blockIdx.x];
    for (u32 p = me; p < ways; p += EXCHANGE_THREADS) count[p] = left[p] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = me; i < run.rows; i += EXCHANGE_THREADS)
        atomicAdd(&count[key_digit(run.tuples[i].x, a.mul, a.shift, a.bits)], 1u);
    __syncthreads();
    u32 room = run.to;
    for (u32 first = 0; first < ways; first += EXCHANGE_THREADS) {
        const u32 p = first + me, mine = p < ways ? count[p] : 0;
        u32 total;
        const u32 at = room + block_exclusive((mine + LINE - 1) / LINE * LINE, sums, total);
        room += total;
        if (p < ways) {
            a.starts[blockIdx.x * ways + p] = next[p] = at;
            a.counts[blockIdx.x * ways + p] = mine;
            count[p] = 0;
        }
    }
    Tuple t[EXCHANGE_ITEMS];
    auto load = [&](u32 from) {
#pragma unroll
        for (int i = 0; i < EXCHANGE_ITEMS; i++) {
            const u32 row = from + i * EXCHANGE_THREADS + me;
            if (row < run.rows) t[i] = run.tuples[row];
        }
    };
    load(0);
    __syncthreads();
    for (u32 from = 0; from < run.rows; from += EXCHANGE_TILE) {
        u32 digit[EXCHANGE_ITEMS], rank[EXCHANGE_ITEMS];
#pragma unroll
        for (int i = 0; i < EXCHANGE_ITEMS; i++) {
            digit[i] = NOWHERE;
            if (from + i * EXCHANGE_THREADS + me >= run.rows) continue;
            digit[i] = key_digit(t[i].x, a.mul, a.shift, a.bits);
            rank[i] = atomicAdd(&count[digit[i]], 1u);
        }
        __syncthreads();
        u32 rows = 0;
        for (u32 first = 0; first < ways; first += EXCHANGE_THREADS) {
            const u32 p = first + me;
            u32 total;
            const u32 at = rows + block_exclusive(p < ways ? count[p] : 0, sums, total);
            rows += total;
            if (p < ways) start[p] = at;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EXCHANGE_ITEMS; i++)
            if (digit[i] != NOWHERE) tile[start[digit[i]] + rank[i]] = t[i];
        load(from + EXCHANGE_TILE);
        __syncthreads();
        // Eight lanes write the lines of a digit, and carry the other tuples to the next tile. A lane reads and writes
        // only its own place in carry.
        for (u32 p = me / LINE; p < ways; p += EXCHANGE_THREADS / LINE) {
            const u32 had = left[p], n = had + count[p], whole = n / LINE * LINE, to = next[p], lane = me % LINE;
            const Tuple* fresh = tile + start[p];
            for (u32 i = lane; i < whole; i += LINE) a.out[to + i] = i < had ? carry[p * (LINE - 1) + i] : fresh[i - had];
            const u32 i = whole + lane;
            if (i < n && i >= had) carry[p * (LINE - 1) + lane] = fresh[i - had];
            __syncwarp();
            if (lane == 0) {
                next[p] = to + whole;
                left[p] = n - whole;
                count[p] = 0;
            }
        }
        __syncthreads();
    }
    for (u32 p = me / LINE; p < ways; p += EXCHANGE_THREADS / LINE)
        if (me % LINE < left[p]) a.out[next[p] + me % LINE] = carry[p * (LINE - 1) + me % LINE];
}

// ExchangePart is a part of a side of the join: runs that are partitioned.
struct ExchangePart {
    const Tuple* tuples;
    const u32* starts; // by run and digit
    const u32* counts;
};

struct ExchangeJoinArgs {
    const ExchangePart* parts; // those of the build side first
    u64* result;               // pairs, and the sum of the values of both sides
    u64 mul;
    u32 builds, probes; // parts
    u32 perBin;         // runs of a bin in each part
    u32 bits;           // of the digit of the runs
    u32 partitions;     // bins << bits
    u32 capacity;       // tuples of a table
    u32 slotShift, slotBits;
};

constexpr u32 EXCHANGE_RUNS = 512; // most runs of a side in a partition
constexpr int PROBE_ITEMS = 4;
constexpr u32 PROBE_UNIT = 32 * PROBE_ITEMS; // probe tuples that a warp takes at a time

// Sides is where the tuples of a partition are, by run.
struct Sides {
    const Tuple* from[EXCHANGE_RUNS];
    u32 at[EXCHANGE_RUNS + 1]; // tuples of the build side, or units of the probe side, of the runs before
    u32 rows[EXCHANGE_RUNS];

    // list lists the runs of a partition. All threads of the block call it.
    __device__ __forceinline__ void list(const ExchangeJoinArgs& a, const ExchangePart* parts, u32 runs, u32 partition, u32 unit, u32* sums) {
        const u32 r = threadIdx.x;
        u32 mine = 0;
        if (r < runs) {
            const ExchangePart part = parts[r / a.perBin];
            const u32 bin = partition >> a.bits, digit = partition & ((1u << a.bits) - 1);
            const u32 i = ((bin * a.perBin + r % a.perBin) << a.bits) + digit;
            rows[r] = part.counts[i];
            from[r] = part.tuples + part.starts[i];
            mine = (rows[r] + unit - 1) / unit;
        }
        u32 total;
        const u32 before = block_exclusive(mine, sums, total);
        if (r < runs) at[r] = before;
        if (r == 0) at[runs] = total;
    }

    // find returns the run with an item.
    __device__ __forceinline__ u32 find(u32 runs, u32 item) const {
        u32 lo = 0, hi = runs - 1;
        while (lo < hi) {
            const u32 mid = (lo + hi + 1) / 2;
            if (at[mid] <= item)
                lo = mid;
            else
                hi = mid - 1;
        }
        return lo;
    }
};

KERNEL_BOUNDS(exchange_join, ExchangeJoinArgs, EXCHANGE_THREADS, 1) {
    SHARED(u64, key); // of the table, by row
    u64* value = key + a.capacity;
    u32* head = (u32*)(value + a.capacity);     // by slot: its last row plus 1, or 0
    u16* next = (u16*)(head + (1u << a.slotBits)); // by row: the previous row of its slot plus 1, or 0
    __shared__ Sides build, probe;
    __shared__ u32 sums[33];
    __shared__ u64 totals[33];
    const u32 me = threadIdx.x, builds = a.builds * a.perBin, probes = a.probes * a.perBin;
    u64 pairs = 0, sum = 0;
    for (u32 partition = blockIdx.x; partition < a.partitions; partition += gridDim.x) {
        build.list(a, a.parts, builds, partition, 1, sums);
        probe.list(a, a.parts + a.builds, probes, partition, PROBE_UNIT, sums);
        __syncthreads();
        const u32 rows = build.at[builds], units = probe.at[probes];
        for (u32 base = 0; base < rows; base += a.capacity) {
            for (u32 s = me; s < 1u << a.slotBits; s += EXCHANGE_THREADS) head[s] = 0;
            __syncthreads();
            const u32 end = min(rows, base + a.capacity);
            for (u32 i0 = base + me; i0 < end; i0 += PROBE_ITEMS * EXCHANGE_THREADS) {
                Tuple t[PROBE_ITEMS];
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++) {
                    const u32 i = i0 + k * EXCHANGE_THREADS;
                    if (i >= end) continue;
                    const u32 r = build.find(builds, i);
                    t[k] = build.from[r][i - build.at[r]];
                }
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++) {
                    const u32 i = i0 + k * EXCHANGE_THREADS;
                    if (i >= end) continue;
                    const u32 row = i - base;
                    key[row] = t[k].x;
                    value[row] = t[k].y;
                    next[row] = (u16)atomicExch(&head[key_digit(t[k].x, a.mul, a.slotShift, a.slotBits)], row + 1);
                }
            }
            __syncthreads();
            for (u32 unit = warp_id(); unit < units; unit += EXCHANGE_WARPS) {
                const u32 r = probe.find(probes, unit), first = (unit - probe.at[r]) * PROBE_UNIT + lane_id();
                Tuple t[PROBE_ITEMS];
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++)
                    if (first + 32 * k < probe.rows[r]) t[k] = probe.from[r][first + 32 * k];
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++) {
                    if (first + 32 * k >= probe.rows[r]) continue;
                    for (u32 s = head[key_digit(t[k].x, a.mul, a.slotShift, a.slotBits)]; s; s = next[s - 1])
                        if (key[s - 1] == t[k].x) pairs++, sum += value[s - 1] + t[k].y;
                }
            }
            __syncthreads();
        }
        __syncthreads();
    }
    pairs = block_sum(pairs, totals);
    sum = block_sum(sum, totals);
    if (me == 0 && pairs) {
        atomicAdd(&a.result[0], pairs);
        atomicAdd(&a.result[1], sum);
    }
}

struct ExchangeSumsArgs {
    const ExchangeRun* runs; // by block
    u64* result;             // sum of the keys, of the values, and tuples of another digit than that of their run
    u64 mul;
    u32 shift, bits;
};

KERNEL_BOUNDS(exchange_sums, ExchangeSumsArgs, EXCHANGE_THREADS, 1) {
    __shared__ u64 totals[33];
    const ExchangeRun run = a.runs[blockIdx.x];
    u64 keys = 0, values = 0, wrong = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < run.rows; i += EXCHANGE_THREADS) {
        const Tuple t = run.tuples[i];
        keys += t.x, values += t.y;
        wrong += key_digit(t.x, a.mul, a.shift, a.bits) != run.to;
    }
    keys = block_sum(keys, totals);
    values = block_sum(values, totals);
    wrong = block_sum(wrong, totals);
    if (threadIdx.x == 0) {
        atomicAdd(&a.result[0], keys);
        atomicAdd(&a.result[1], values);
        atomicAdd(&a.result[2], wrong);
    }
}
