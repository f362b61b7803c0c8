// Joins of tuples that are spread over several GPUs (Thostrup et al., SIGMOD 2023). Tuples have a key and a value of 8
// bytes. Kernels whose names end in a number have tuples of so many bytes: a key and a value of 4, or a key of 8 and
// several values.
//
//   exchange_send       first pass, by the bits that select the GPU among others: it stores tuples into regions, which
//                       may be memory of other GPUs, and needs no counts before
//   exchange_partition  second pass: a block partitions a run, and writes lines of 128 bytes
//   exchange_join       a block joins a partition by a hash table in shared memory, and counts the pairs or writes them
//   exchange_group      a block groups a partition by a hash table in shared memory, and adds up its values
//   exchange_places     numbers the tuples of runs
//   exchange_columns    copies tuples of runs to columns of keys and of values
//   exchange_sums       adds up the tuples of runs, and counts those in a wrong run
//
// Bytes of a tuple: exchange_send reads and writes 16, exchange_partition reads 32 and writes 16, exchange_join reads 16.
#include "exchange.cuh"

// first_digit returns the first digit of a way: digit d belongs to way d * ways >> bits.
DEVICE u32 first_digit(u32 way, u32 ways, u32 bits) { return ((way << bits) + ways - 1) / ways; }

constexpr int MOST_VALUES = 7; // of a tuple

struct ExchangeSource {
    const u64* key;
    const u64* values[MOST_VALUES];
    u32 rows, unused;
};

// make_tuple makes a tuple of a row.
DEVICE void make_tuple(const ExchangeSource& s, u64 row, Tuple& t) { t = Tuple{s.key[row], s.values[0][row]}; }
DEVICE void make_tuple(const ExchangeSource& s, u64 row, u64& t) {
    t = ((const u32*)s.key)[row] | (u64)((const u32*)s.values[0])[row] << 32;
}
template <int N> DEVICE void make_tuple(const ExchangeSource& s, u64 row, WideTuple<N>& t) {
    t.word[0] = s.key[row];
#pragma unroll
    for (int i = 1; i < N; i++) t.word[i] = s.values[i - 1][row];
}

// ExchangeRegion is room for tuples. Whole lines fill it from its beginning, up to limit; single tuples from its end.
struct ExchangeRegion {
    Tuple* to;
    u32 limit, room;
};

constexpr u32 EXCHANGE_SOURCES = 16, EXCHANGE_REGIONS = 128, EXCHANGE_GPUS = 16;
constexpr u32 HEAVY_KEYS = 256, HEAVY_SLOTS = 1024;

// ExchangeHeavy is keys whose tuples are not sent. Those of the build side are added up on each GPU; those of the probe
// side are joined with the sums of all GPUs, where they are.
struct ExchangeHeavy {
    const u64* keys;
    u64* own;                       // build side: by key, the number of tuples and the sum of their values
    const u64* all[EXCHANGE_GPUS]; // probe side: own of each GPU
    u64* result;                    // probe side: pairs, and the sum of the values of both sides
    u32 n;                          // keys
    u32 gpus;                       // 0 for the build side
};

// Heavy finds heavy keys.
struct Heavy {
    u64 key[HEAVY_KEYS], count[HEAVY_KEYS], sum[HEAVY_KEYS];
    u32 slot[HEAVY_SLOTS]; // a key plus 1, or 0

    static __device__ __forceinline__ u32 first(u64 key, u64 mul) { return (u32)(key * mul >> 32) % HEAVY_SLOTS; }

    // fill makes the table. All threads of the block call it.
    __device__ __forceinline__ void fill(const ExchangeHeavy& h, u64 mul) {
        const u32 me = threadIdx.x;
        for (u32 s = me; s < HEAVY_SLOTS; s += EXCHANGE_THREADS) slot[s] = 0;
        __syncthreads();
        if (me < h.n) {
            key[me] = h.keys[me];
            u64 n = 0, total = 0;
            for (u32 g = 0; g < h.gpus; g++) n += h.all[g][2 * me], total += h.all[g][2 * me + 1];
            count[me] = n, sum[me] = total;
            u32 s = first(key[me], mul);
            while (atomicCAS(&slot[s], 0u, me + 1)) s = (s + 1) % HEAVY_SLOTS;
        }
        __syncthreads();
    }

    // find returns a key, or NOWHERE.
    __device__ __forceinline__ u32 find(u64 k, u64 mul) const {
        u32 s = first(k, mul);
        for (u32 at = slot[s]; at; s = (s + 1) % HEAVY_SLOTS, at = slot[s])
            if (key[at - 1] == k) return at - 1;
        return NOWHERE;
    }
};

// ExchangeSendArgs has its lists inside: an upload between two launches costs more than they do.
struct ExchangeSendArgs {
    u32* counts; // by region: tuples from the beginning, and from the end; then those without room
    u64 mul;
    u32 shift, bits;
    u32 ways;   // regions of a source
    u32 blocks; // of a source
    u32 all;    // regions
    u32 unused;
    const u64* splitters; // if not null, a digit is the number of splitters up to the key; there are 2^bits - 1
    ExchangeHeavy heavy;
    ExchangeSource sources[EXCHANGE_SOURCES];
    ExchangeRegion regions[EXCHANGE_REGIONS]; // by source and way
};

// Blocks of a source take its tiles in turn. A tile is sorted by digit in shared memory, so that the tuples of a way are
// together. Each way reserves whole lines of its region with an atomic addition in the memory of this GPU, and carries
// the other tuples to the next tile.
template <class T> DEVICE void send(const ExchangeSendArgs& a) {
    constexpr u32 LINE = Wide<T>::LINE, TILE = Wide<T>::TILE;
    constexpr int ITEMS = Wide<T>::ITEMS;
    SHARED(T, tile); // in order of digit
    const u32 digits = 1u << a.bits, ways = a.ways, me = threadIdx.x;
    T* carry = tile + TILE;           // by way: at most LINE - 1 tuples
    u32* count = (u32*)(carry + ways * (LINE - 1)); // of the tile, by digit
    u32* start = count + digits;                   // in the tile, by digit, and their number
    u32* to = start + digits + 1;                  // in the region, by way
    u32* had = to + ways;                          // tuples in carry, by way
    u32* have = had + ways;                        // the same and those of the tile
    __shared__ u32 sums[33];
    __shared__ ExchangeRegion regions[EXCHANGE_REGIONS];
    __shared__ Heavy heavy;
    __shared__ u64 totals[33], splitter[EXCHANGE_REGIONS - 1];
    u64 pairs = 0, sum = 0;
    if (a.heavy.n) heavy.fill(a.heavy, a.mul);
    if (a.splitters && me < digits - 1) splitter[me] = a.splitters[me];
    const u32 which = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks;
    const ExchangeSource source = a.sources[which];
    if (me < ways) regions[me] = a.regions[which * ways + me];
    u32* counts = a.counts + 2 * which * ways;
    // The threads of a way: a multiple of a line, so that the first LINE of them are in one warp.
    const u32 team = EXCHANGE_THREADS / ways / LINE * LINE, way = me / team, lane = me % team;
    for (u32 p = me; p < digits; p += EXCHANGE_THREADS) count[p] = 0;
    for (u32 w = me; w < ways; w += EXCHANGE_THREADS) have[w] = 0;
    T t[ITEMS];
    auto load = [&](u64 from) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u64 row = from + i * EXCHANGE_THREADS + me;
            if (row < source.rows) make_tuple(source, row, t[i]);
        }
    };
    const u64 step = (u64)a.blocks * TILE;
    load((u64)block * TILE);
    __syncthreads();
    for (u64 from = (u64)block * TILE; from < source.rows; from += step) {
        u32 digit[ITEMS], rank[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            digit[i] = NOWHERE;
            if (from + i * EXCHANGE_THREADS + me >= source.rows) continue;
            const Tuple pair = pair_of(t[i]);
            if (a.heavy.n) {
                const u32 k = heavy.find(pair.x, a.mul);
                if (k != NOWHERE) {
                    if (a.heavy.gpus) {
                        pairs += heavy.count[k], sum += heavy.sum[k] + heavy.count[k] * pair.y;
                    } else {
                        atomicAdd(&a.heavy.own[2 * k], 1ull);
                        atomicAdd(&a.heavy.own[2 * k + 1], pair.y);
                    }
                    continue;
                }
            }
            if (a.splitters) {
                u32 d = 0;
                for (u32 half = digits / 2; half; half /= 2)
                    if (splitter[d + half - 1] <= pair.x) d += half;
                digit[i] = d;
            } else {
                digit[i] = key_digit(pair.x, a.mul, a.shift, a.bits);
            }
            rank[i] = atomicAdd(&count[digit[i]], 1u);
        }
        __syncthreads();
        const u32 mine = me < digits ? count[me] : 0;
        u32 rows;
        const u32 at = block_exclusive(mine, sums, rows);
        if (me < digits) start[me] = at, count[me] = 0;
        if (me == digits) start[me] = rows;
        __syncthreads();
        if (me < ways) {
            const u32 left = have[me] % LINE, fresh = start[first_digit(me + 1, ways, a.bits)] - start[first_digit(me, ways, a.bits)];
            const u32 whole = (left + fresh) / LINE * LINE;
            had[me] = left;
            have[me] = left + fresh;
            u32 place = whole ? atomicAdd(&counts[2 * me], whole) : 0;
            if (place + whole > regions[me].limit) {
                atomicAdd(&a.counts[2 * a.all], whole);
                place = NOWHERE;
            }
            to[me] = place;
        }
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (digit[i] != NOWHERE) tile[start[digit[i]] + rank[i]] = t[i];
        load(from + step);
        __syncthreads();
        if (way < ways) {
            const u32 old = had[way], n = have[way], whole = n / LINE * LINE, place = to[way];
            const T* fresh = tile + start[first_digit(way, ways, a.bits)];
            T* carried = carry + way * (LINE - 1);
            if (place != NOWHERE) {
                T* out = (T*)regions[way].to + place;
                for (u32 i = lane; i < whole; i += team) out[i] = i < old ? carried[i] : fresh[i - old];
            }
            // A lane reads and writes only its own place in carry.
            const u32 i = whole + lane;
            if (i < n && i >= old) carried[lane] = fresh[i - old];
        }
        __syncthreads();
    }
    if (me < ways) to[me] = atomicAdd(&counts[2 * me + 1], have[me] % LINE);
    __syncthreads();
    if (way < ways && lane < have[way] % LINE)
        ((T*)regions[way].to)[regions[way].room - 1 - to[way] - lane] = carry[way * (LINE - 1) + lane];
    if (!a.heavy.gpus) return;
    pairs = block_sum(pairs, totals);
    sum = block_sum(sum, totals);
    if (me == 0 && pairs) {
        atomicAdd(&a.heavy.result[0], pairs);
        atomicAdd(&a.heavy.result[1], sum);
    }
}

KERNEL_BOUNDS(exchange_send, ExchangeSendArgs, EXCHANGE_THREADS, 1) { send<Tuple>(a); }
KERNEL_BOUNDS(exchange_send_8, ExchangeSendArgs, EXCHANGE_THREADS, 1) { send<u64>(a); }
KERNEL_BOUNDS(exchange_send_32, ExchangeSendArgs, EXCHANGE_THREADS, 1) { send<WideTuple<4>>(a); }
KERNEL_BOUNDS(exchange_send_64, ExchangeSendArgs, EXCHANGE_THREADS, 1) { send<WideTuple<8>>(a); }

constexpr u32 EXCHANGE_PASS = 160;

struct ExchangePartitionArgs {
    Tuple* out;
    u32* starts; // by run and digit: first tuple in the output
    u32* counts; // by run and digit
    u64 mul;     // odd; keys are multiplied by it
    u32 shift, bits;
    ExchangeRun runs[EXCHANGE_PASS]; // by block; inside, as the lists of ExchangeSendArgs
};

template <class T> DEVICE void partition_run(const ExchangePartitionArgs& a) {
    constexpr u32 LINE = Wide<T>::LINE, TILE = Wide<T>::TILE;
    constexpr int ITEMS = Wide<T>::ITEMS;
    SHARED(T, tile); // in order of digit
    T* out = (T*)a.out;
    const u32 ways = 1u << a.bits, me = threadIdx.x;
    T* carry = tile + TILE;            // by digit: at most LINE - 1 tuples
    u32* count = (u32*)(carry + ways * (LINE - 1)); // of the tile, by digit
    u32* start = count + ways;                      // in the tile, by digit
    u32* next = start + ways;                       // in the output, by digit
    u32* left = next + ways;                        // tuples in carry, by digit
    __shared__ u32 sums[33];
    const FilledOf<T> run(a.runs[blockIdx.x]);
    for (u32 p = me; p < ways; p += EXCHANGE_THREADS) count[p] = left[p] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = me; i < run.rows; i += EXCHANGE_THREADS)
        atomicAdd(&count[key_digit(pair_of(run[i]).x, a.mul, a.shift, a.bits)], 1u);
    __syncthreads();
    u32 room = a.runs[blockIdx.x].to;
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
    T t[ITEMS];
    auto load = [&](u32 from) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u32 row = from + i * EXCHANGE_THREADS + me;
            if (row < run.rows) t[i] = run[row];
        }
    };
    load(0);
    __syncthreads();
    for (u32 from = 0; from < run.rows; from += TILE) {
        u32 digit[ITEMS], rank[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            digit[i] = NOWHERE;
            if (from + i * EXCHANGE_THREADS + me >= run.rows) continue;
            digit[i] = key_digit(pair_of(t[i]).x, a.mul, a.shift, a.bits);
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
        for (int i = 0; i < ITEMS; i++)
            if (digit[i] != NOWHERE) tile[start[digit[i]] + rank[i]] = t[i];
        load(from + TILE);
        __syncthreads();
        // The lanes of a line write those of a digit, and carry the other tuples to the next tile. A lane reads and writes
        // only its own place in carry.
        for (u32 p = me / LINE; p < ways; p += EXCHANGE_THREADS / LINE) {
            const u32 had = left[p], n = had + count[p], whole = n / LINE * LINE, to = next[p], lane = me % LINE;
            const T* fresh = tile + start[p];
            for (u32 i = lane; i < whole; i += LINE) out[to + i] = i < had ? carry[p * (LINE - 1) + i] : fresh[i - had];
            const u32 i = whole + lane;
            if (i < n && i >= had) carry[p * (LINE - 1) + lane] = fresh[i - had];
            __syncwarp(LINE == ::LINE ? ALL : ((1u << LINE) - 1) << lane_id() / LINE * LINE);
            if (lane == 0) {
                next[p] = to + whole;
                left[p] = n - whole;
                count[p] = 0;
            }
        }
        __syncthreads();
    }
    for (u32 p = me / LINE; p < ways; p += EXCHANGE_THREADS / LINE)
        if (me % LINE < left[p]) out[next[p] + me % LINE] = carry[p * (LINE - 1) + me % LINE];
}

KERNEL_BOUNDS(exchange_partition, ExchangePartitionArgs, EXCHANGE_THREADS, 1) { partition_run<Tuple>(a); }
KERNEL_BOUNDS(exchange_partition_8, ExchangePartitionArgs, EXCHANGE_THREADS, 1) { partition_run<u64>(a); }
KERNEL_BOUNDS(exchange_partition_32, ExchangePartitionArgs, EXCHANGE_THREADS, 1) { partition_run<WideTuple<4>>(a); }
KERNEL_BOUNDS(exchange_partition_64, ExchangePartitionArgs, EXCHANGE_THREADS, 1) { partition_run<WideTuple<8>>(a); }

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
    // The pairs themselves, or null: columns of the keys, the values of the build side, and those of the probe side.
    u64 *keys, *buildValues, *probeValues;
    u64* next; // pairs written
    u64 room;  // pairs that the columns have room for
};

constexpr u32 EXCHANGE_RUNS = 512; // most runs of a side in a partition
constexpr int PROBE_ITEMS = 4;
constexpr u32 PROBE_UNIT = 32 * PROBE_ITEMS; // probe tuples that a warp takes at a time

// SidesOf is where the tuples of a partition are, by run.
template <class T> struct SidesOf {
    const T* from[EXCHANGE_RUNS];
    u32 at[EXCHANGE_RUNS + 1]; // tuples of the build side, or units of the probe side, of the runs before
    u32 rows[EXCHANGE_RUNS];

    // list lists the runs of a partition. All threads of the block call it.
    __device__ __forceinline__ void list(u32 perBin, u32 bits, const ExchangePart* parts, u32 runs, u32 partition, u32 unit, u32* sums) {
        const u32 r = threadIdx.x;
        u32 mine = 0;
        if (r < runs) {
            const ExchangePart part = parts[r / perBin];
            const u32 bin = partition >> bits, digit = partition & ((1u << bits) - 1);
            const u32 i = ((bin * perBin + r % perBin) << bits) + digit;
            rows[r] = part.counts[i];
            from[r] = (const T*)part.tuples + part.starts[i];
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

typedef SidesOf<Tuple> Sides;

template <class T> DEVICE void join(const ExchangeJoinArgs& a) {
    SHARED(u64, key); // of the table, by row
    u64* value = key + a.capacity;
    u32* head = (u32*)(value + a.capacity);     // by slot: its last row plus 1, or 0
    u16* next = (u16*)(head + (1u << a.slotBits)); // by row: the previous row of its slot plus 1, or 0
    __shared__ SidesOf<T> build, probe;
    __shared__ u32 sums[33];
    __shared__ u64 totals[33];
    const u32 me = threadIdx.x, builds = a.builds * a.perBin, probes = a.probes * a.perBin;
    u64 pairs = 0, sum = 0;
    for (u32 partition = blockIdx.x; partition < a.partitions; partition += gridDim.x) {
        build.list(a.perBin, a.bits, a.parts, builds, partition, 1, sums);
        probe.list(a.perBin, a.bits, a.parts + a.builds, probes, partition, PROBE_UNIT, sums);
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
                    t[k] = pair_of(build.from[r][i - build.at[r]]);
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
                    if (first + 32 * k < probe.rows[r]) t[k] = pair_of(probe.from[r][first + 32 * k]);
                u32 found = 0;
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++) {
                    if (first + 32 * k >= probe.rows[r]) continue;
                    for (u32 s = head[key_digit(t[k].x, a.mul, a.slotShift, a.slotBits)]; s; s = next[s - 1])
                        if (key[s - 1] == t[k].x) found++, sum += value[s - 1] + t[k].y;
                }
                pairs += found;
                if (!a.keys) continue;
                const u32 until = warp_inclusive(found);
                u64 at = 0;
                if (lane_id() == 31 && until) at = atomicAdd(a.next, (u64)until);
                at = __shfl_sync(~0u, at, 31) + until - found;
                if (at + found > a.room) continue; // the caller learns of it from next
#pragma unroll
                for (int k = 0; k < PROBE_ITEMS; k++) {
                    if (first + 32 * k >= probe.rows[r]) continue;
                    for (u32 s = head[key_digit(t[k].x, a.mul, a.slotShift, a.slotBits)]; s; s = next[s - 1]) {
                        if (key[s - 1] != t[k].x) continue;
                        a.keys[at] = t[k].x, a.buildValues[at] = value[s - 1], a.probeValues[at] = t[k].y;
                        at++;
                    }
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

KERNEL_BOUNDS(exchange_join, ExchangeJoinArgs, EXCHANGE_THREADS, 1) { join<Tuple>(a); }
KERNEL_BOUNDS(exchange_join_8, ExchangeJoinArgs, EXCHANGE_THREADS, 1) { join<u64>(a); }
KERNEL_BOUNDS(exchange_join_32, ExchangeJoinArgs, EXCHANGE_THREADS, 1) { join<WideTuple<4>>(a); }
KERNEL_BOUNDS(exchange_join_64, ExchangeJoinArgs, EXCHANGE_THREADS, 1) { join<WideTuple<8>>(a); }

struct ExchangeGroupArgs {
    const ExchangePart* parts;
    u64 *keys, *sums, *counts; // by group
    u64* next;                 // groups found
    u64 room;                  // groups that the columns have room for
    u64 mul;
    u32 count;      // parts
    u32 perBin;     // runs of a bin in each part
    u32 bits;       // of the digit of the runs
    u32 partitions; // bins << bits
    u32 slotBits;
    u32 unused;
};

constexpr u64 NO_KEY = ~0ull; // of an empty slot

// A partition with more groups than fit the table is done in 2^level rounds, each with the keys whose other hash begins
// with the bits of the round.
KERNEL_BOUNDS(exchange_group, ExchangeGroupArgs, EXCHANGE_THREADS, 1) {
    SHARED(u64, key); // by slot
    const u32 slots = 1u << a.slotBits, me = threadIdx.x;
    u64* sum = key + slots;
    u32* count = (u32*)(sum + slots);
    __shared__ Sides side;
    __shared__ u32 sums[33], used;
    __shared__ u64 emptySum, at;
    __shared__ u32 emptyCount; // of the group whose key is NO_KEY
    const u32 runs = a.count * a.perBin, most = slots - EXCHANGE_THREADS;
    for (u32 partition = blockIdx.x; partition < a.partitions; partition += gridDim.x) {
        side.list(a.perBin, a.bits, a.parts, runs, partition, 1, sums);
        __syncthreads();
        const u32 rows = side.at[runs];
        u32 level = 0;
        u64 round = 0;
        do {
            for (u32 s = me; s < slots; s += EXCHANGE_THREADS) key[s] = NO_KEY, sum[s] = 0, count[s] = 0;
            if (me == 0) used = emptyCount = 0, emptySum = 0;
            __syncthreads();
            // (Four rows at a time, as exchange_join reads them, take 1.4 times as long.)
            for (u32 i = me; i < rows; i += EXCHANGE_THREADS) {
                const u32 r = side.find(runs, i);
                const Tuple t = side.from[r][i - side.at[r]];
                if (level && t.x * 0xd6e8feb86659fd93ull >> (64 - level) != round) continue;
                if (t.x == NO_KEY) {
                    atomicAdd(&emptySum, t.y);
                    atomicAdd(&emptyCount, 1u);
                    continue;
                }
                for (u32 s = (u32)(t.x * a.mul >> 20) % slots;; s = (s + 1) % slots) {
                    u64 there = ((volatile u64*)key)[s];
                    if (there == NO_KEY) {
                        if (*(volatile u32*)&used >= most) break; // the round is done again
                        there = atomicCAS(&key[s], NO_KEY, t.x);
                        if (there == NO_KEY) {
                            atomicAdd(&used, 1u);
                            there = t.x;
                        }
                    }
                    if (there != t.x) continue;
                    atomicAdd(&sum[s], t.y);
                    atomicAdd(&count[s], 1u);
                    break;
                }
            }
            __syncthreads();
            if (used >= most) {
                level++, round *= 2;
            } else {
                u32 mine = 0, total;
                for (u32 s = me; s < slots; s += EXCHANGE_THREADS) mine += key[s] != NO_KEY;
                if (me == 0) mine += emptyCount > 0;
                u32 place = block_exclusive(mine, sums, total);
                if (me == 0 && total) at = atomicAdd(a.next, (u64)total);
                __syncthreads();
                if (at + total <= a.room) {
                    auto put = [&](u64 k, u64 v, u32 n) {
                        a.keys[at + place] = k, a.sums[at + place] = v, a.counts[at + place] = n;
                        place++;
                    };
                    for (u32 s = me; s < slots; s += EXCHANGE_THREADS)
                        if (key[s] != NO_KEY) put(key[s], sum[s], count[s]);
                    if (me == 0 && emptyCount) put(NO_KEY, emptySum, emptyCount);
                }
                for (round++; level && round % 2 == 0; round /= 2) level--;
            }
            __syncthreads();
        } while (level);
    }
}

struct ExchangePlacesArgs {
    const ExchangeRun* runs;
    u32* places; // by run: the tuples before; then their number
    u32 n, unused;
};

KERNEL_BOUNDS(exchange_places, ExchangePlacesArgs, EXCHANGE_THREADS, 1) {
    __shared__ u32 sums[33];
    u32 before = 0;
    for (u32 first = 0; first < a.n; first += EXCHANGE_THREADS) {
        const u32 r = first + threadIdx.x;
        u32 total;
        const u32 at = before + block_exclusive(r < a.n ? Filled(a.runs[r]).rows : 0, sums, total);
        if (r < a.n) a.places[r] = at;
        before += total;
    }
    if (threadIdx.x == 0) a.places[a.n] = before;
}

struct ExchangeColumnsArgs {
    const ExchangeRun* runs;
    const u32* places; // by run
    u64 *keys, *values;
    u32 blocks, unused; // of a run
};

KERNEL_BOUNDS(exchange_columns, ExchangeColumnsArgs, EXCHANGE_THREADS, 1) {
    const u32 which = blockIdx.x / a.blocks, place = a.places[which];
    const Filled run(a.runs[which]);
    for (u64 i = (u64)(blockIdx.x % a.blocks) * EXCHANGE_THREADS + threadIdx.x; i < run.rows; i += (u64)a.blocks * EXCHANGE_THREADS) {
        const Tuple t = run[(u32)i];
        a.keys[place + i] = t.x, a.values[place + i] = t.y;
    }
}

struct ExchangeSumsArgs {
    const ExchangeRun* runs; // by block
    u64* result;             // sum of the keys, of the values, and tuples of another region than that of their run
    u64 mul;
    u32 shift, bits, ways, unused;
};

KERNEL_BOUNDS(exchange_sums, ExchangeSumsArgs, EXCHANGE_THREADS, 1) {
    __shared__ u64 totals[33];
    const Filled run(a.runs[blockIdx.x]);
    const u32 region = a.runs[blockIdx.x].to;
    u64 keys = 0, values = 0, wrong = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < run.rows; i += EXCHANGE_THREADS) {
        const Tuple t = run[i];
        keys += t.x, values += t.y;
        wrong += key_digit(t.x, a.mul, a.shift, a.bits) * a.ways >> a.bits != region;
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
