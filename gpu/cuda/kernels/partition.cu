// Stable multi-column radix partition by reduce-then-scan (Wu et al., SIGMOD 2025, §4). partition_count counts the
// digits of each block's chunk of rows. partition_offsets computes output positions from the counts. partition moves
// the rows. Each block has the same contiguous chunk in all of them, so the result is stable and no block waits for
// another.
//
// Two passes read the keys once and count both digits. partition_count_pairs counts the rows of a chunk that have each
// pair of digits. After the first pass the rows of a chunk that have the same first digit are contiguous: they are a
// segment. partition_second assigns whole segments to the blocks of the second pass, and adds up their counts.
//
// A loose pass counts nothing and keeps no order. partition_sample counts the digits of a sample of the rows.
// partition_room reserves room for each digit: the number of rows that the sample predicts, and a reserve. A block
// takes room for the rows of a tile once it has them. At the end, partition_rests moves the rows that the blocks still
// carry behind the other rows of their digits. If a digit has more rows than room, the rows are partitioned again, in
// order. The first of two loose passes is by the high bits. The rows of each of its digits are a segment, which blocks
// of the second pass partition by the low bits. partition_blocks assigns blocks to each segment in proportion to its
// rows.
//
// Bytes, rows of w bytes with a key of k bytes: k read, then w read and w written in each pass. A loose pass does not
// read k.
//
// The partition is fast because it writes only whole, aligned sectors. Rows are written in granules of 8 rows, which
// are aligned in the output. Rows of a digit beyond its last whole granule are carried in shared memory to the block's
// next tile.
#include "sample.cuh"

constexpr u32 NOWHERE = ~0u; // granule without a position yet

template <bool FIRST, class A, class B> struct Pick { typedef A type; };
template <class A, class B> struct Pick<false, A, B> { typedef B type; };

// Digit is bits [shift, shift + log2(mask + 1)) of a key's product with an odd number, some of them inverted. The
// number 1 gives the bits of the key itself. Any other number makes a hash of the key (multiply-shift hashing).
struct Digit {
    u32 shift, mask, flip;
    u64 mul;

    template <class K>
    __device__ __forceinline__ u32 operator()(K key) const {
        return ((u32)(key * (K)mul >> shift) & mask) ^ flip;
    }
};

struct PartitionColumn {
    u64 src;    // 0: the row numbers, with width 4
    u64 dst;
    u64 rest;   // loose pass: rows still carried at the end, of digit d in block b 8 from (b * digits + d) * 8
    i32 width;  // 1, 2, 4 or 8 bytes
    i32 stride; // in widths: 16-byte values are two columns with stride 2
};

constexpr int PARTITION_COLUMNS = 16;

// LooseRows is the state that blocks share in a loose pass.
struct LooseRows {
    const u32* starts; // first row of each digit's room, a multiple of 8, and the end of the last
    u32* taken;        // granules of each digit's room that blocks have taken
    u32* rests;        // rows that block b still carries of its digit d at the end, at [b * digits + d]
    u32* full;         // 1: a digit has more rows than room
    const u32* segments; // of a second pass: first row of each segment, a multiple of 8; digits from segment << bits
    const u32* ends;     // end of the rows of each segment
    const u32* before;   // full of the first pass; if it is 1, the segments are incomplete
    u32* blocks;         // first block of each segment, and the end of the last
    u32 count;           // number of segments; in a first pass, of blocks
    u32 chunk;           // most rows of a block of a segment
};

struct PartitionArgs {
    u64 key;
    const u32* base;   // first output row of digit d in block b at [(d * gridDim.x + b) * counters]
    const u32* bounds; // first row of each block, and the end of the last; null: chunks of equal size
    PartitionColumn column[PARTITION_COLUMNS];
    u32 rows;
    u32 chunk; // rows of a block
    i32 columns;
    u32 bits; // of the digit, 1 to 9
    u32 shift;
    u32 flip;   // bits of the digit to invert
    u32 widest; // bytes of the widest column
    u64 mul;    // odd; the digit is taken from the key's product with mul
    u32 counters; // blocks that count a chunk: one has too few loads in flight for the memory
    u32 unused;
    LooseRows loose;
};

// Bulk copies (Hopper and later) write the granules of a digit by one instruction. They do not use the path to shared
// memory that the kernel waits for.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool PARTITION_BULK = true;
#else
constexpr bool PARTITION_BULK = false;
#endif

// bulk_copy starts a copy from shared memory. dst, src and bytes are multiples of 16.
DEVICE void bulk_copy(void* dst, const void* src, u32 bytes) {
#if !defined(__CUDA_ARCH__)
    for (u32 i = 0; i < bytes / 16; i++) ((uint4*)dst)[i] = ((const uint4*)src)[i];
#elif __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"((u32)__cvta_generic_to_shared(src)), "r"(bytes) : "memory");
#endif
}

// bulk_start ends a group of copies.
DEVICE void bulk_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

// bulk_ready makes a thread's stores to shared memory visible to copies that start after the next barrier. It also
// waits until the thread's own copies have read their sources.
DEVICE void bulk_ready() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// bulk_finish waits until a thread's copies have finished.
DEVICE void bulk_finish() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// PartitionShared is the shared memory of a block. partitionShared in Go counts its bytes. Arrays are by digit unless
// stated otherwise.
template <int THREADS, int ITEMS, int STAGES, bool BULK>
struct PartitionShared {
    static constexpr int WARPS = THREADS / 32;
    u32* top;    // granules laid out in this tile; then the digit that many rows have, or NOWHERE
    u32* out;    // output granule of the carried rows
    u32* carry;  // rows carried, including those of other blocks before head
    u32* head;   // rows of the first granule that belong to other blocks
    u32* first;  // first stage granule << 3 | rows carried into it
    u32* last;   // stage granule with the rows to carry next, or NOWHERE
    u32* to;     // bulk copies: the first output granule | rows to skip << 28
    u32* whole;  // bulk copies: number of whole granules
    u32* target; // other copies, by stage granule: the output granule | rows to skip << 28, or NOWHERE
    u16* count;  // WARPS × (digits + 8): rows of the warp so far, then the slot of its first row
    u8* stage;   // STAGES buffers of slots × widest bytes; while rows are ranked, the next one holds rank_rows' masks
    u8* carried; // by column: digits × 8 rows
    u32 buffer;  // bytes of one buffer of the stage

    __device__ __forceinline__ PartitionShared(u32* p, u32 digits, u32 widest) {
        const u32 slots = THREADS * ITEMS + (14 * digits + 32) / 16 * 16;
        buffer = max(slots * widest, WARPS * masks(digits) * 4);
        const u32 aligned = (digits + 3) / 4 * 4;
        top = p, p += 4;
        out = p, p += aligned;
        carry = p, p += aligned;
        head = p, p += aligned;
        first = p, p += aligned;
        last = p, p += aligned;
        to = target = p;
        whole = p + aligned;
        p += BULK ? 2 * aligned : (slots / 8 + 3) / 4 * 4;
        count = (u16*)p, p += WARPS * (digits + 8) / 2;
        stage = (u8*)p;
        carried = stage + STAGES * buffer;
    }

    // masks returns the words of a warp's masks: one for each digit, and one for rows beyond the end.
    __device__ __forceinline__ static u32 masks(u32 digits) { return digits / 4 * 4 + 4; }
};

// load loads a thread's values of a tile into registers. They are 32 rows apart. Rows beyond the end are skipped.
template <class T, int STRIDE, class V, int ITEMS>
DEVICE void load(V (&v)[ITEMS], u64 src, u32 row, u32 end, bool full) {
    const T* p = (const T*)src + (u64)row * STRIDE;
    if (full) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = p[32 * i * STRIDE];
        return;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (row + 32 * i < end) v[i] = p[32 * i * STRIDE];
}

// load_column is load for a column of W bytes, or of any width if W is 0.
template <int W, class V, int ITEMS>
DEVICE void load_column(V (&v)[ITEMS], const PartitionColumn& c, u32 row, u32 end, bool full) {
    if (W != 8 && !c.src) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = row + 32 * i;
        return;
    }
    if (W == 4) return load<u32, 1>(v, c.src, row, end, full);
    if (W == 8) return load<u64, 1>(v, c.src, row, end, full);
    switch (c.width) {
    case 1: return load<u8, 1>(v, c.src, row, end, full);
    case 2: return load<u16, 1>(v, c.src, row, end, full);
    case 4: return load<u32, 1>(v, c.src, row, end, full);
    default: return c.stride == 1 ? load<u64, 1>(v, c.src, row, end, full) : load<u64, 2>(v, c.src, row, end, full);
    }
}

// stage_rows writes the rows of a tile into their slots, after the carried rows.
template <class T, int THREADS, class V, int ITEMS>
DEVICE void stage_rows(const V (&v)[ITEMS], const u32 (&slot)[ITEMS], u8* stage_bytes, const u8* carried_bytes, const u32* first, u32 digits) {
    T* stage = (T*)stage_bytes;
    const T* carried = (const T*)carried_bytes;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) stage[slot[i]] = (T)v[i];
#pragma unroll 2
    for (u32 t = threadIdx.x; t < digits * 8; t += THREADS) {
        u32 f = first[t / 8];
        if (t % 8 < f % 8) stage[f / 8 * 8 + t % 8] = carried[t];
    }
}

// copy_unit copies 16 bytes, or 8 bytes of 1-byte values. All of them are rows of one granule.
template <class T>
constexpr u32 unit_rows = sizeof(T) == 1 ? 8 : 16 / sizeof(T);

template <class T>
DEVICE void copy_unit(T* dst, const T* src) {
    if (sizeof(T) == 1)
        *(uint2*)dst = *(const uint2*)src;
    else
        *(uint4*)dst = *(const uint4*)src;
}

// carry_rest keeps the rows of each digit beyond its last whole granule.
template <class T, int THREADS>
DEVICE void carry_rest(T* carried, const T* stage, const u32* last, u32 digits) {
    constexpr u32 ROWS = unit_rows<T>, UNITS = 8 / ROWS;
#pragma unroll 2
    for (u32 u = threadIdx.x; u < digits * UNITS; u += THREADS) {
        u32 g = last[u / UNITS];
        if (g != NOWHERE) copy_unit(carried + u * ROWS, stage + g * 8 + u % UNITS * ROWS);
    }
}

// flush writes the whole granules of the stage to the output, and carries the remaining rows.
template <class T, int THREADS, bool STRIDED>
DEVICE void flush(const u8* stage_bytes, u8* carried_bytes, const u32* target, const u32* last, u32 granules, u32 digits, u64 out, u32 stride) {
    constexpr u32 ROWS = unit_rows<T>, UNITS = 8 / ROWS; // for each granule
    const T* stage = (const T*)stage_bytes;
    const u32 at = threadIdx.x % UNITS * ROWS;
    T* dst = (T*)out;
#pragma unroll 2
    for (u32 u = threadIdx.x; u < granules * UNITS; u += THREADS) {
        u32 to = target[u / UNITS];
        if (!STRIDED && to < 1u << 28) {
            copy_unit(dst + (u64)(to * 8 + at), stage + u * ROWS);
        } else if (to != NOWHERE) {
            u64 row = (to & 0x0fffffff) * 8 + at;
            for (u32 e = 0; e < ROWS; e++)
                if (at + e >= to >> 28) dst[(row + e) * stride] = stage[u * ROWS + e];
        }
    }
    carry_rest<T, THREADS>((T*)carried_bytes, stage, last, digits);
}

// flush_bulk is flush with one bulk copy for each digit.
template <class T, int THREADS>
DEVICE void flush_bulk(const u8* stage_bytes, u8* carried_bytes, const u32* first, const u32* to, const u32* whole, const u32* last, u32 digits, u64 out) {
    const T* stage = (const T*)stage_bytes;
    T* dst = (T*)out;
    T* carried = (T*)carried_bytes;
    for (u32 d = threadIdx.x; d < digits; d += THREADS) {
        const T* src = stage + (first[d] & ~7u);
        u32 n = whole[d], head = to[d] >> 28;
        u64 row = (u64)(to[d] & 0x0fffffff) * 8;
        if (n && head) { // its first rows belong to other blocks
            for (u32 e = head; e < 8; e++) dst[row + e] = src[e];
            row += 8, src += 8, n--;
        }
        if (n) bulk_copy(dst + row, src, n * 8 * sizeof(T));
    }
    bulk_start();
    carry_rest<T, THREADS>(carried, stage, last, digits);
}

// flush_loose is flush_bulk for digit threadIdx.x only: `whole` granules from granule `place` of the stage to a row.
template <class T, int THREADS>
DEVICE void flush_loose(const u8* stage_bytes, u8* carried_bytes, u32 place, u32 whole, u64 row, const u32* last, u32 digits, u64 out) {
    const T* stage = (const T*)stage_bytes;
    if (whole) bulk_copy((T*)out + row, stage + place * 8, whole * 8 * sizeof(T));
    bulk_start();
    carry_rest<T, THREADS>((T*)carried_bytes, stage, last, digits);
}

// finish writes the rows that are still carried at the end of the chunk.
template <class T, int THREADS>
DEVICE void finish(const u8* carried_bytes, const u32* out, const u32* carry, const u32* head, u32 digits, u64 dst, u32 stride) {
    const T* carried = (const T*)carried_bytes;
    for (u32 t = threadIdx.x; t < digits * 8; t += THREADS) {
        u32 d = t / 8, k = t % 8;
        if (k >= head[d] && k < carry[d]) ((T*)dst)[((u64)out[d] * 8 + k) * stride] = carried[t];
    }
}

// rank_rows ranks a thread's rows of a tile among the warp's rows of the same digit. The result is digit << 16 | rank.
// Lanes with equal digits find each other by a mask in shared memory, which is 0 before and after. When HOT, the lanes
// of a digit that many rows have find each other by a vote. Rows outside [begin, end) have a digit of their own.
template <bool HOT, class K, int ITEMS>
DEVICE void rank_rows(u32 (&slot)[ITEMS], const K (&k)[ITEMS], u32* match, u16* count, Digit digit, u32 hot, u32 row, u32 begin, u32 end, bool full) {
    const u32 lane = lane_id(), bit = 1u << lane, below = bit - 1;
    u32 before = 0, ahead = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 d = digit(k[i]);
        if (!full && (row + 32 * i >= end || row + 32 * i < begin)) d = digit.mask + 1;
        const u32 voters = HOT ? __ballot_sync(ALL, d == hot) : 0;
        if (!HOT || d != hot) atomicOr(&match[d], bit);
        __syncwarp();
        const u32 peers = HOT && d == hot ? voters : match[d];
        __syncwarp();
        // The last of these lanes adds up the count. The other lanes read the result one item later, when it is ready.
        if (i > 0) slot[i - 1] += __shfl_sync(ALL, before, ahead);
        if (peers >> lane == 1) {
            match[d] = 0;
            before = count[d];
            count[d] = (u16)(before + __popc(peers));
        }
        __syncwarp();
        slot[i] = (d << 16) + __popc(peers & below);
        ahead = 31 - __clz(peers);
    }
    slot[ITEMS - 1] += __shfl_sync(ALL, before, ahead);
}

// rank_loose ranks a thread's rows of a tile among the block's rows of the same digit, in any order. The result is
// digit << 16 | rank. When HOT, the lanes of a digit that many rows have count together. Rows from `end` on have a
// digit of their own.
template <bool HOT, class K, int ITEMS>
DEVICE void rank_loose(u32 (&slot)[ITEMS], const K (&k)[ITEMS], u32* count, Digit digit, u32 hot, u32 row, u32 end, bool full) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        u32 d = digit(k[i]);
        if (!full && row + 32 * i >= end) d = digit.mask + 1;
        const u32 voters = HOT ? __ballot_sync(ALL, d == hot) : 0;
        u32 rank = 0;
        if (!HOT || d != hot)
            rank = atomicAdd(&count[d], 1u);
        else if (!(voters & lanes_below()))
            rank = atomicAdd(&count[d], __popc(voters));
        if (HOT && voters) {
            const u32 before = __shfl_sync(ALL, rank, __ffs(voters) - 1);
            if (d == hot) rank = before + __popc(voters & lanes_below());
        }
        slot[i] = (d << 16) + rank;
    }
}

// partition moves one block's chunk. Keys have type K. Columns have W bytes each, or any width if W is 0. Rows of a
// digit keep their order unless LOOSE.
template <class K, int W, int THREADS, int ITEMS, int STAGES, bool LOOSE>
DEVICE void partition(const PartitionArgs& a, u32* memory) {
    constexpr int WARPS = THREADS / 32, TILE = THREADS * ITEMS;
    constexpr bool BULK = PARTITION_BULK && W;
    typedef typename Pick<W == 4, u32, u64>::type V;
    const u32 digits = 1u << a.bits, width = digits + 8;
    const Digit digit = {a.shift, digits - 1, a.flip, a.mul};
    PartitionShared<THREADS, ITEMS, STAGES, BULK> s(memory, digits, a.widest);
    u32 begin = a.bounds ? a.bounds[blockIdx.x] : blockIdx.x * a.chunk;
    u32 end = a.bounds ? a.bounds[blockIdx.x + 1] : min(begin + a.chunk, a.rows);
    u32 of = 0; // LOOSE: first digit of the segment
    if (LOOSE && a.loose.segments) {
        if (*a.loose.before) return;
        if (blockIdx.x >= a.loose.blocks[a.loose.count]) return;
        u32 segment = 0; // the last segment whose first block is this block or an earlier one
        for (u32 n = a.loose.count; n > 1;) {
            const u32 half = n / 2;
            if (a.loose.blocks[segment + half] <= blockIdx.x) segment += half, n -= half;
            else n = half;
        }
        const u32 from = a.loose.segments[segment], rows = a.loose.ends[segment] - from;
        const u32 first = a.loose.blocks[segment], chunk = (rows / (a.loose.blocks[segment + 1] - first) / 32 + 1) * 32;
        begin = from + min((blockIdx.x - first) * chunk, rows), end = min(begin + chunk, from + rows);
        of = segment << a.bits;
    }
    const u32 aligned = LOOSE ? begin : begin / 32 * 32, lane = lane_id();
    // Each lane of a warp has every 32nd of the warp's rows, so that loads are coalesced. (warp, item, lane) is the
    // order of the rows.
    const u32 mine = aligned + warp_id() * (32 * ITEMS) + lane;
    u16* count = s.count + warp_id() * width;
    u32 *counts = (u32*)s.count, *bases = counts + digits + 1; // LOOSE: of the block, and one for rows of no digit
    u32 room = 0, first = 0; // LOOSE: of digit threadIdx.x, in granules
    // Several threads share a digit in the layout of a tile.
    u32 split = 0;
    while ((2u << split) <= WARPS && (digits << (split + 1)) <= THREADS) split++;
    const u32 parts = 1u << split, part = threadIdx.x & (parts - 1);

    K k[ITEMS];
    load<K, 1>(k, a.key, mine, end, aligned + TILE <= end);
    for (u32 t = threadIdx.x; t < WARPS * width / 2; t += THREADS) ((u32*)s.count)[t] = 0;
    if (threadIdx.x == 0) s.top[0] = 0, s.top[1] = NOWHERE;
    __syncthreads();
    for (u32 d = threadIdx.x; d < digits; d += THREADS) {
        if (LOOSE) { // there are at most THREADS digits
            s.out[d] = blockIdx.x * digits + d;
            s.head[d] = s.carry[d] = 0;
            first = a.loose.starts[of + d] / 8, room = a.loose.starts[of + d + 1] / 8 - first;
            continue;
        }
        u32 at = d * gridDim.x + blockIdx.x, base = a.base[at * a.counters];
        s.out[d] = base / 8;
        s.head[d] = s.carry[d] = base % 8;
        // With a digit of more than a quarter of the rows, lanes would wait for each other.
        u32 next = at + 1 < digits * gridDim.x ? a.base[(at + 1) * a.counters] : a.rows;
        if (next - base > (end - begin) / 4) atomicMin(&s.top[1], d);
    }
    __syncthreads();
    u32 hot = s.top[1];

    u8* stage = s.stage;
    u8* spare = s.stage + s.buffer;
    for (u32 tile = aligned, row = mine; tile < end; tile += TILE, row += TILE) {
        const bool full = tile >= begin && end - tile >= TILE;
        V v[ITEMS];
        if (W != sizeof(K) || a.column[0].src != a.key) load_column<W>(v, a.column[0], row, end, full);

        u32 slot[ITEMS];
        u32* match = (u32*)stage + warp_id() * s.masks(digits);
        for (u32 t = lane; !LOOSE && t <= digits / 4; t += 32) ((uint4*)match)[t] = make_uint4(0, 0, 0, 0);
        __syncwarp();
        if (LOOSE && hot == NOWHERE)
            rank_loose<false>(slot, k, counts, digit, hot, row, end, full);
        else if (LOOSE)
            rank_loose<true>(slot, k, counts, digit, hot, row, end, full);
        else if (hot == NOWHERE)
            rank_rows<false>(slot, k, match, count, digit, hot, row, begin, end, full);
        else
            rank_rows<true>(slot, k, match, count, digit, hot, row, begin, end, full);
        if (W == sizeof(K) && a.column[0].src == a.key) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) v[i] = k[i];
        }
        __syncthreads();

        // Lay out the tile: whole granules for each digit, the digits in any order.
        u32 place = 0, whole = 0, taken = 0; // LOOSE: of digit threadIdx.x
        if (LOOSE && threadIdx.x < max(digits, 32u)) {
            const u32 d = threadIdx.x;
            const u32 c = d < digits ? counts[d] : 0, carried = d < digits ? s.carry[d] : 0, n = carried + c, rest = n % 8;
            whole = n / 8;
            // The position in the output arrives while the tile is staged.
            if (whole) taken = atomicAdd(&a.loose.taken[of + d], whole);
            const u32 granules = whole + (rest > 0), sums = warp_inclusive(granules);
            if (lane == 31) place = atomicAdd(s.top, sums);
            place = __shfl_sync(ALL, place, 31) + sums - granules;
            if (d < digits) {
                counts[d] = 0;
                bases[d] = place * 8 + carried;
                s.first[d] = place << 3 | carried;
                s.carry[d] = rest;
                s.last[d] = rest ? place + whole : NOWHERE;
                if (c > TILE / 4) atomicMin(&s.top[1], d); // lanes would wait for each other in the next tile
            }
            if (!BULK && taken + whole > room) atomicExch(a.loose.full, 1u);
            for (u32 g = 0; !BULK && g < granules; g++) s.target[place + g] = g < whole && taken + whole <= room ? first + taken + g : NOWHERE;
        }
        if (LOOSE && !full && warp_id() == 0) { // rows of no digit are not written
            const u32 granules = (counts[digits] + 7) / 8;
            u32 start = 0;
            if (lane == 0) start = atomicAdd(s.top, granules);
            start = __shfl_sync(ALL, start, 0);
            if (lane == 0) bases[digits] = start * 8;
            for (u32 g = lane; !BULK && g < granules; g += 32) s.target[start + g] = NOWHERE;
        }
        if (!LOOSE && threadIdx.x < digits << split) {
            const u32 d = threadIdx.x >> split;
            u16* column = s.count + part * (WARPS >> split) * width + d;
            u32 sum = 0;
            for (u32 w = 0; w < WARPS >> split; w++) sum += column[w * width];
            u32 through = sum;
            for (u32 o = 1; o < parts; o <<= 1) {
                u32 up = __shfl_up_sync(ALL, through, o);
                if (part >= o) through += up;
            }
            const u32 carried = s.carry[d], out = s.out[d], head = s.head[d];
            const u32 n = carried + __shfl_sync(ALL, through, lane | (parts - 1)), whole = n / 8, rest = n % 8;
            const u32 granules = whole + (rest > 0);
            u32 mass = part == parts - 1 ? granules : 0, sums = warp_inclusive(mass), place = 0;
            if (lane == 31) place = atomicAdd(s.top, sums);
            place = __shfl_sync(ALL, place, 31) + sums - mass;
            const u32 start = __shfl_sync(ALL, place, lane | (parts - 1));
            u32 run = start * 8 + carried + through - sum;
            for (u32 w = 0; w < WARPS >> split; w++) {
                u32 c = column[w * width];
                column[w * width] = (u16)run;
                run += c;
            }
            if (BULK && part == 0) {
                s.to[d] = out | head << 28;
                s.whole[d] = whole;
            }
            for (u32 g = part; !BULK && g < min(granules, 8 * parts); g += parts)
                s.target[start + g] = g >= whole ? NOWHERE : g ? out + g : out | head << 28;
            for (u32 many = BULK ? 0 : __ballot_sync(ALL, part == 0 && granules > 8 * parts); many; many &= many - 1) {
                const u32 l = __ffs(many) - 1, at = __shfl_sync(ALL, start, l), to = __shfl_sync(ALL, out, l);
                const u32 last = __shfl_sync(ALL, granules, l), good = __shfl_sync(ALL, whole, l);
                for (u32 g = 8 * parts + lane; g < last; g += 32) s.target[at + g] = g >= good ? NOWHERE : to + g;
            }
            __syncwarp(); // all parts have read the carried counts
            if (part == 0) {
                s.first[d] = start << 3 | carried;
                s.out[d] = out + whole;
                s.carry[d] = rest;
                s.last[d] = rest ? start + whole : NOWHERE;
                if (whole) s.head[d] = 0;
            }
        }
        if (!LOOSE && !full && warp_id() == 0) { // rows of no digit are not written
            u16* column = s.count + digits;
            u32 c = lane < WARPS ? column[lane * width] : 0, through = warp_inclusive(c);
            u32 granules = (__shfl_sync(ALL, through, 31) + 7) / 8, start = 0;
            if (lane == 0) start = atomicAdd(s.top, granules);
            start = __shfl_sync(ALL, start, 0);
            if (lane < WARPS) column[lane * width] = (u16)(start * 8 + through - c);
            for (u32 g = lane; !BULK && g < granules; g += 32) s.target[start + g] = NOWHERE;
        }
        __syncthreads();

        const u32 granules = *s.top;
        if (LOOSE) hot = s.top[1];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) slot[i] = (LOOSE ? bases[slot[i] >> 16] : count[slot[i] >> 16]) + (slot[i] & 0xffff);
        __syncwarp();
        for (u32 d = lane; !LOOSE && d < width / 2; d += 32) ((u32*)count)[d] = 0;

        u8* carried = s.carried;
        for (i32 c = 0; c < a.columns; c++) {
            const PartitionColumn& column = a.column[c];
            const u32 w = W ? W : column.width;
            switch (w) {
            case 1: stage_rows<u8, THREADS>(v, slot, stage, carried, s.first, digits); break;
            case 2: stage_rows<u16, THREADS>(v, slot, stage, carried, s.first, digits); break;
            case 4: stage_rows<u32, THREADS>(v, slot, stage, carried, s.first, digits); break;
            default: stage_rows<u64, THREADS>(v, slot, stage, carried, s.first, digits);
            }
            // The next column, or the keys of the next tile, are loaded while this column is written.
            if (c + 1 < a.columns)
                load_column<W>(v, a.column[c + 1], row, end, full);
            else if (end - tile > TILE)
                load<K, 1>(k, a.key, row + TILE, end, end - tile >= 2 * TILE);
            if (BULK) bulk_ready();
            __syncthreads();
            if (threadIdx.x == 0) *s.top = 0;
            if (LOOSE && threadIdx.x == 0) s.top[1] = NOWHERE;
            if (LOOSE && BULK) {
                if (taken + whole > room) atomicExch(a.loose.full, 1u), whole = 0;
                if (W == 4) flush_loose<u32, THREADS>(stage, carried, place, whole, (u64)(first + taken) * 8, s.last, digits, column.dst);
                if (W == 8) flush_loose<u64, THREADS>(stage, carried, place, whole, (u64)(first + taken) * 8, s.last, digits, column.dst);
            } else if (BULK && W == 4)
                flush_bulk<u32, THREADS>(stage, carried, s.first, s.to, s.whole, s.last, digits, column.dst);
            else if (BULK && W == 8)
                flush_bulk<u64, THREADS>(stage, carried, s.first, s.to, s.whole, s.last, digits, column.dst);
            if (!BULK) switch (w) {
            case 1: flush<u8, THREADS, false>(stage, carried, s.target, s.last, granules, digits, column.dst, 1); break;
            case 2: flush<u16, THREADS, false>(stage, carried, s.target, s.last, granules, digits, column.dst, 1); break;
            case 4: flush<u32, THREADS, false>(stage, carried, s.target, s.last, granules, digits, column.dst, 1); break;
            default:
                if (W || column.stride == 1)
                    flush<u64, THREADS, false>(stage, carried, s.target, s.last, granules, digits, column.dst, 1);
                else
                    flush<u64, THREADS, true>(stage, carried, s.target, s.last, granules, digits, column.dst, column.stride);
            }
            carried += digits * 8 * w;
            if (STAGES == 1) {
                if (BULK) bulk_ready();
                __syncthreads();
            } else {
                u8* t = stage;
                stage = spare;
                spare = t;
            }
        }
    }
    if (BULK) bulk_finish();
    __syncthreads();
    for (u32 d = threadIdx.x; LOOSE && d < digits; d += THREADS) a.loose.rests[blockIdx.x * digits + d] = s.carry[d];
    u8* carried = s.carried;
    for (i32 c = 0; c < a.columns; c++) {
        const PartitionColumn& column = a.column[c];
        const u32 w = W ? W : column.width;
        const u64 dst = LOOSE ? column.rest : column.dst;
        switch (w) {
        case 1: finish<u8, THREADS>(carried, s.out, s.carry, s.head, digits, dst, 1); break;
        case 2: finish<u16, THREADS>(carried, s.out, s.carry, s.head, digits, dst, 1); break;
        case 4: finish<u32, THREADS>(carried, s.out, s.carry, s.head, digits, dst, 1); break;
        default: finish<u64, THREADS>(carried, s.out, s.carry, s.head, digits, dst, LOOSE ? 1 : column.stride);
        }
        carried += digits * 8 * w;
    }
}

struct PartitionSampleArgs {
    u64 key;
    u32* counts; // rows of each digit, added up: zeros at first
    u32* starts; // first row of each digit's room, a multiple of 8, and the end of the last
    u64 mul;
    u64 step; // see sampled_row
    u32 rows;
    u32 sampled; // size of the sample
    u32 most;    // rows that the output has room for, a multiple of 8
    u32 bits, shift, unused;
};

// sample_digits counts the digits of evenly spread rows.
template <class K>
DEVICE void sample_digits(const PartitionSampleArgs& a, u32* bins) {
    constexpr int AT_ONCE = 4; // loads in flight
    const u32 digits = 1u << a.bits;
    const Digit digit = {a.shift, digits - 1, 0, a.mul};
    for (u32 d = threadIdx.x; d < digits; d += blockDim.x) bins[d] = 0;
    __syncthreads();
    for (u32 from = blockIdx.x * blockDim.x + threadIdx.x; from < a.sampled; from += AT_ONCE * gridDim.x * blockDim.x) {
        K k[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const u32 r = from + i * gridDim.x * blockDim.x;
            if (r < a.sampled) k[i] = ((const K*)a.key)[sampled_row(r, a.step)];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (from + i * gridDim.x * blockDim.x < a.sampled) atomicAdd(&bins[digit(k[i])], 1u);
    }
    __syncthreads();
    for (u32 d = threadIdx.x; d < digits; d += blockDim.x)
        if (bins[d]) atomicAdd(&a.counts[d], bins[d]);
}

// give_room reserves room for each digit: the rows that the sample predicts, six standard deviations more, and the rows
// that a digit may have although the sample has none of them. It runs in one block.
DEVICE void give_room(const PartitionSampleArgs& a) {
    __shared__ u32 sums[33];
    const u32 digits = 1u << a.bits;
    u32 granules = 0;
    for (u32 from = 0; from < digits; from += blockDim.x) {
        const u32 d = from + threadIdx.x, m = d < digits ? a.counts[d] : 0;
        const u64 rows = ((u64)m + (u64)(6 * sqrtf((float)m)) + 16) * (u64)a.rows / a.sampled;
        u32 total;
        const u32 before = granules + block_exclusive(d < digits ? (u32)(min(rows, (u64)a.rows) / 8 + 1) : 0, sums, total);
        if (d < digits) a.starts[d] = min(before, a.most / 8) * 8;
        granules += total;
    }
    if (threadIdx.x == 0) a.starts[digits] = min(granules, a.most / 8) * 8;
}

// give_blocks assigns each segment blocks of at most a chunk of rows. It runs in one block.
DEVICE void give_blocks(const LooseRows& a) {
    __shared__ u32 sums[33];
    u32 blocks = 0;
    for (u32 from = 0; from < a.count; from += blockDim.x) {
        const u32 s = from + threadIdx.x, rows = s < a.count && !*a.before ? a.ends[s] - a.segments[s] : 0;
        u32 total;
        const u32 before = blocks + block_exclusive((rows + a.chunk - 1) / a.chunk, sums, total);
        if (s < a.count) a.blocks[s] = before;
        blocks += total;
    }
    if (threadIdx.x == 0) a.blocks[a.count] = blocks;
}

struct PartitionRestsArgs {
    PartitionColumn column[PARTITION_COLUMNS];
    LooseRows loose;
    u32* ends; // end of each digit's rows
    i32 columns;
    u32 bits; // of the digits of a segment
};

// move_rests moves the rows that the blocks carried of a digit behind the digit's other rows. It runs in one block for
// each digit of each segment.
DEVICE void move_rests(const PartitionRestsArgs& a) {
    __shared__ u32 sums[33];
    const u32 d = blockIdx.x, limit = a.loose.starts[d + 1], segment = d >> a.bits;
    if (a.loose.segments && *a.loose.before) return;
    const u32 first = a.loose.segments ? a.loose.blocks[segment] : 0, last = a.loose.segments ? a.loose.blocks[segment + 1] : a.loose.count;
    u32 end = a.loose.starts[d] + a.loose.taken[d] * 8;
    for (u32 from = first; from < last; from += blockDim.x) {
        const u32 b = from + threadIdx.x, place = (b << a.bits) + (d & (1u << a.bits) - 1), n = b < last ? a.loose.rests[place] : 0;
        u32 total;
        const u32 to = end + block_exclusive(n, sums, total);
        end += total;
        if (end > limit) continue; // for all threads
        const u64 rest = (u64)place * 8;
        for (i32 c = 0; c < a.columns; c++) {
            const PartitionColumn& x = a.column[c];
            for (u32 k = 0; k < n; k++) {
                const u64 row = (u64)(to + k) * x.stride;
                switch (x.width) {
                case 1: ((u8*)x.dst)[row] = ((const u8*)x.rest)[rest + k]; break;
                case 2: ((u16*)x.dst)[row] = ((const u16*)x.rest)[rest + k]; break;
                case 4: ((u32*)x.dst)[row] = ((const u32*)x.rest)[rest + k]; break;
                default: ((u64*)x.dst)[row] = ((const u64*)x.rest)[rest + k];
                }
            }
        }
    }
    if (threadIdx.x > 0) return;
    a.ends[d] = end;
    if (end > limit) atomicExch(a.loose.full, 1u);
}

struct PartitionCountArgs {
    u64 key;
    u32* counts;         // of digit d in block b at [d * gridDim.x + b]
    const u32* segments; // rows where the segments begin, and where the last ends; null: one segment of all rows
    u32* full;           // rows of digit d in segment s, added to [d * segmentCount + s]; null: not wanted
    u32* narrow;         // receives key >> narrowShift; null: not wanted
    u64* range;          // smallest and largest key ^ rangeFlip; null: not wanted
    u64 rangeFlip;
    i64 rows;
    i64 chunk;           // rows of a block
    i32 segmentCount;
    u32 bits;
    u32 shift;
    u32 flip;
    u32 narrowShift;
    u32 low;    // of pairs: number of bits of the first digit
    u64 mul;
    u32* pairs; // counts of digits d and e in block b at [(d * gridDim.x + b) << (bits - low) | e]
};

// KeyReader counts a key's digit, or pair of digits. If MORE, it also computes the other results of reading the keys
// once: a 4-byte key for the passes, or the range of the keys.
template <class K, bool MORE, bool PAIRS>
struct KeyReader {
    const PartitionCountArgs& a;
    const Digit digit;
    u32* bins; // bin of digit d at [d * 32], of a pair at pair_bin
    K lo = ~K(0), hi = 0;

    // pair_bin leaves a free bin after the bins of each second digit, so that lanes with the same first digit do not
    // meet in a bank.
    __device__ __forceinline__ static u32 pair_bin(u32 pair, u32 low) { return pair + (pair >> low); }

    __device__ __forceinline__ void read(K k, i64 row) {
        const u32 d = digit(k);
        atomicAdd(&bins[PAIRS ? pair_bin(d, a.low) : d * 32], 1u);
        if (!MORE) return;
        if (a.narrow) a.narrow[row] = (u32)(k * (K)a.mul >> a.narrowShift);
        if (a.range) {
            k ^= (K)a.rangeFlip;
            lo = min(lo, k);
            hi = max(hi, k);
        }
    }

    // read_rows reads rows [lo, hi) with all threads of the block.
    __device__ __forceinline__ void read_rows(i64 lo, i64 hi) {
        constexpr int VECTOR = 16 / sizeof(K), AT_ONCE = 2; // loads in flight
        struct alignas(16) Keys { K k[VECTOR]; };
        const K* key = (const K*)a.key;
        const Keys* vectors = (const Keys*)key;
        i64 body = min((lo + VECTOR - 1) / VECTOR * VECTOR, hi), tail = max(hi / VECTOR * VECTOR, body);
        if (lo + threadIdx.x < body) read(key[lo + threadIdx.x], lo + threadIdx.x);
        i64 v = body / VECTOR + threadIdx.x;
        for (; v + (AT_ONCE - 1) * blockDim.x < tail / VECTOR; v += AT_ONCE * blockDim.x) {
            Keys x[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) x[k] = vectors[v + k * blockDim.x];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int i = 0; i < VECTOR; i++) read(x[k].k[i], (v + k * blockDim.x) * VECTOR + i);
        }
        for (; v < tail / VECTOR; v += blockDim.x) {
            Keys x = vectors[v];
#pragma unroll
            for (int i = 0; i < VECTOR; i++) read(x.k[i], v * VECTOR + i);
        }
        if (tail + threadIdx.x < hi) read(key[tail + threadIdx.x], tail + threadIdx.x);
    }

    __device__ __forceinline__ void finish() {
        if (!a.range) return;
        for (int d = 16; d; d >>= 1) {
            lo = min(lo, __shfl_xor_sync(ALL, lo, d));
            hi = max(hi, __shfl_xor_sync(ALL, hi, d));
        }
        if (lane_id() == 0 && lo <= hi) {
            atomicMin(&a.range[0], (u64)lo);
            atomicMax(&a.range[1], (u64)hi);
        }
    }
};

// count_digits has a bin for each digit and lane. So no two lanes of a warp meet in a bank of shared memory, whatever
// the keys.
template <class K, bool MORE>
DEVICE void count_digits(const PartitionCountArgs& a, u32* bins) {
    const u32 digits = 1u << a.bits;
    const i64 begin = blockIdx.x * a.chunk, end = min(begin + a.chunk, a.rows);
    KeyReader<K, MORE, false> reader{a, {a.shift, digits - 1, a.flip, a.mul}, bins + lane_id()};
    u32 total = 0; // rows of digit threadIdx.x
    for (u32 t = threadIdx.x; t < digits * 32; t += blockDim.x) bins[t] = 0;
    __syncthreads();
    i32 s = 0;
    for (i32 top = a.segmentCount; a.segments && top - s > 1;) { // the last segment that begins at `begin` or before
        i32 middle = (s + top) / 2;
        (a.segments[middle] <= begin ? s : top) = middle;
    }
    for (i64 hi = begin; hi < end; s++) {
        i64 lo = hi;
        hi = a.segments ? min(end, (i64)a.segments[s + 1]) : end;
        if (lo == hi) continue; // for all threads
        reader.read_rows(lo, hi);
        __syncthreads();
        if (threadIdx.x < digits) {
            u32 sum = 0;
            for (u32 l = 0; l < 32; l++) { // each thread begins at a different bank
                u32* bin = &bins[threadIdx.x * 32 + (l + threadIdx.x) % 32];
                sum += *bin;
                *bin = 0;
            }
            total += sum;
            if (a.full && sum) atomicAdd(&a.full[threadIdx.x * a.segmentCount + s], sum);
        }
        __syncthreads();
    }
    if (MORE) reader.finish();
    if (threadIdx.x < digits) a.counts[(u64)threadIdx.x * gridDim.x + blockIdx.x] = total;
}

// count_pairs counts the pairs of both digits in a block's chunk, and the first digits.
template <class K, bool MORE>
DEVICE void count_pairs(const PartitionCountArgs& a, u32* bins) {
    typedef KeyReader<K, MORE, true> Reader;
    const u32 pairs = 1u << a.bits, high = a.bits - a.low, lows = 1u << a.low, highs = 1u << high;
    const i64 begin = blockIdx.x * a.chunk, end = min(begin + a.chunk, a.rows);
    Reader reader{a, {a.shift, pairs - 1, a.flip, a.mul}, bins};
    for (u32 t = threadIdx.x; t < pairs + highs; t += blockDim.x) bins[t] = 0;
    __syncthreads();
    if (begin < end) reader.read_rows(begin, end);
    __syncthreads();
    for (u32 t = threadIdx.x; t < pairs; t += blockDim.x) {
        const u32 d = t >> high, e = t & (highs - 1);
        a.pairs[((u64)d * gridDim.x + blockIdx.x) << high | e] = bins[Reader::pair_bin(e << a.low | d, a.low)];
    }
    for (u32 d = threadIdx.x; d < lows; d += blockDim.x) {
        u32 sum = 0;
        for (u32 e = 0; e < highs; e++) sum += bins[Reader::pair_bin(e << a.low | d, a.low)];
        a.counts[(u64)d * gridDim.x + blockIdx.x] = sum;
    }
    if (MORE) reader.finish();
}

struct PartitionSecondArgs {
    const u32* pairs; // see count_pairs
    const u32* begin; // first row of each segment, after the first pass
    u32* counts;      // of digit e in block b at [e * gridDim.x + b]
    u32* bounds;      // first row of each block, and the end of the last
    u32* full;        // rows of each pair, the second digit in the upper bits
    u32 segments, rows, chunk; // chunk: approximate number of rows of a block
    u32 low, high;    // bits of the digits
    u32 counters;     // segments of each first digit
};

// first_segment returns the first segment that begins at a row or after it.
DEVICE u32 first_segment(const PartitionSecondArgs& a, u64 row) {
    u32 from = 0, to = a.segments;
    while (from < to) {
        const u32 middle = (from + to) / 2;
        if (a.begin[middle] < row)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

// sum_segments adds up the counts of each second digit in segments [from, to). All threads of the block call it, and an
// equal number of them works on each digit. Thread e returns the sum of digit e.
DEVICE u32 sum_segments(const PartitionSecondArgs& a, u32 from, u32 to, u32* sums) {
    const u32 highs = 1u << a.high, e = threadIdx.x & (highs - 1);
    u32 sum = 0;
    for (u32 s = from + (threadIdx.x >> a.high); s < to; s += blockDim.x >> a.high) sum += a.pairs[(u64)s << a.high | e];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 t = threadIdx.x + highs; threadIdx.x < highs && t < blockDim.x; t += highs) sum += sums[t];
    __syncthreads();
    return sum;
}

// second_pass computes the counts of the second pass. It runs with the blocks of the second pass.
DEVICE void second_pass(const PartitionSecondArgs& a, u32* sums) {
    const u32 highs = 1u << a.high;
    const u32 from = first_segment(a, (u64)blockIdx.x * a.chunk);
    const u32 to = blockIdx.x + 1 < gridDim.x ? first_segment(a, (u64)(blockIdx.x + 1) * a.chunk) : a.segments;
    const u32 sum = sum_segments(a, from, to, sums);
    if (threadIdx.x < highs) a.counts[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    if (threadIdx.x == 0) {
        a.bounds[blockIdx.x] = from < a.segments ? a.begin[from] : a.rows;
        if (blockIdx.x + 1 == gridDim.x) a.bounds[gridDim.x] = a.rows;
    }
    for (u32 d = blockIdx.x; a.full && d < 1u << a.low; d += gridDim.x) {
        const u32 n = sum_segments(a, d * a.counters, (d + 1) * a.counters, sums);
        if (threadIdx.x < highs) a.full[threadIdx.x << a.low | d] = n;
    }
}

struct PartitionScanArgs {
    u32* counts;  // digits × blocks, replaced by their exclusive prefix sums; room for 16 more bytes at the end
    u32* offsets; // digits + 1: where each digit begins
    i32 digits;
    i32 blocks;
};

// four_counts returns the four counts from 4 × at on, with 0 beyond the end.
DEVICE uint4 four_counts(const PartitionScanArgs& a, i32 at) {
    const i32 left = a.digits * a.blocks - 4 * at;
    if (left <= 0) return make_uint4(0, 0, 0, 0);
    const uint4 v = reinterpret_cast<const uint4*>(a.counts)[at];
    return make_uint4(v.x, left > 1 ? v.y : 0, left > 2 ? v.z : 0, left > 3 ? v.w : 0);
}

// scan_counts runs in one block. Each warp has a range of the counts. The warps wait for each other once, between the
// sums of the ranges and the prefix sums.
DEVICE void scan_counts(const PartitionScanArgs& a) {
    __shared__ u32 sums[33];
    const i32 fours = (a.digits * a.blocks + 3) / 4, warps = blockDim.x / 32, each = (fours + warps - 1) / warps;
    const i32 begin = warp_id() * each + lane_id(), end = min((i32)(warp_id() + 1) * each, fours);
    u32 sum = 0;
#pragma unroll 4
    for (i32 at = begin; at < end; at += 32) {
        const uint4 v = four_counts(a, at);
        sum += v.x + v.y + v.z + v.w;
    }
    u32 total, run = block_exclusive(sum, sums, total);
    run = __shfl_sync(ALL, run, 0);
    uint4 next = begin < end ? four_counts(a, begin) : make_uint4(0, 0, 0, 0);
    for (i32 at = begin; at - (i32)lane_id() < end; at += 32) {
        const uint4 v = next;
        next = at + 32 < end ? four_counts(a, at + 32) : make_uint4(0, 0, 0, 0);
        const u32 four = v.x + v.y + v.z + v.w, through = warp_inclusive(four), first = run + through - four;
        if (at < end) reinterpret_cast<uint4*>(a.counts)[at] = make_uint4(first, first + v.x, first + v.x + v.y, first + v.x + v.y + v.z);
        run += __shfl_sync(ALL, through, 31);
    }
    __syncthreads();
    for (i32 d = threadIdx.x; d <= a.digits; d += blockDim.x)
        a.offsets[d] = d < a.digits ? a.counts[d * a.blocks] : total;
}

struct BitsArgs {
    u64 src;
    u64 dst;
    i64 rows;
};

// bits_to_bytes converts a bitmap to one byte a row.
DEVICE void bits_to_bytes(const BitsArgs& a) {
    for (i64 r = global_thread(); r < a.rows; r += grid_threads()) ((u8*)a.dst)[r] = bit((const u32*)a.src, r);
}

// bytes_to_bits is the inverse of bits_to_bytes, for whole 64-bit words.
DEVICE void bytes_to_bits(const BitsArgs& a) {
    const i64 words = (a.rows + 63) / 64 * 2;
    for (i64 w = global_thread() / 32; w < words; w += grid_threads() / 32) {
        i64 r = w * 32 + lane_id();
        u32 bits = __ballot_sync(ALL, r < a.rows && ((const u8*)a.src)[r]);
        if (lane_id() == 0) ((u32*)a.dst)[w] = bits;
    }
}

// partition_kK_wW_sS: key of K bytes, columns of W bytes each, or of any width for 0, S stage buffers. The number of
// rows a thread was chosen by measurement; partitionShapes in Go repeats it.
constexpr int partition_w0 = 0, partition_w4 = 4, partition_w8 = 8;
#define PARTITION(k, K, w, items, stages) \
    KERNEL_BOUNDS(partition_##k##_##w##_s##stages, PartitionArgs, 512, 1) { \
        SHARED(u32, shared); \
        partition<K, partition_##w, 512, items, stages, false>(a, shared); \
    } \
    KERNEL_BOUNDS(partition_loose_##k##_##w##_s##stages, PartitionArgs, 512, 1) { \
        SHARED(u32, shared); \
        partition<K, partition_##w, 512, items, stages, true>(a, shared); \
    }
PARTITION(k4, u32, w4, 28, 2)
PARTITION(k4, u32, w4, 28, 1)
PARTITION(k4, u32, w0, 12, 1)
PARTITION(k8, u64, w4, 16, 1)
PARTITION(k8, u64, w8, 16, 1)
PARTITION(k8, u64, w0, 12, 1)
#define PARTITION_SAMPLE(k, K) \
    KERNEL_BOUNDS(partition_sample_##k, PartitionSampleArgs, 1024, 1) { \
        SHARED(u32, shared); \
        sample_digits<K>(a, shared); \
    }
PARTITION_SAMPLE(k4, u32)
PARTITION_SAMPLE(k8, u64)
KERNEL_BOUNDS(partition_room, PartitionSampleArgs, 1024, 1) { give_room(a); }
KERNEL_BOUNDS(partition_blocks, LooseRows, 1024, 1) { give_blocks(a); }
KERNEL(partition_rests, PartitionRestsArgs) { move_rests(a); }
#define PARTITION_COUNT(k, K) \
    KERNEL_BOUNDS(partition_count_##k, PartitionCountArgs, 1024, 2) { \
        SHARED(u32, shared); \
        if (a.narrow || a.range) \
            count_digits<K, true>(a, shared); \
        else \
            count_digits<K, false>(a, shared); \
    }
#define PARTITION_COUNT_PAIRS(k, K) \
    KERNEL_BOUNDS(partition_count_pairs_##k, PartitionCountArgs, 1024, 2) { \
        SHARED(u32, shared); \
        if (a.narrow || a.range) \
            count_pairs<K, true>(a, shared); \
        else \
            count_pairs<K, false>(a, shared); \
    }
PARTITION_COUNT(k4, u32)
PARTITION_COUNT(k8, u64)
PARTITION_COUNT_PAIRS(k4, u32)
PARTITION_COUNT_PAIRS(k8, u64)
KERNEL_BOUNDS(partition_second, PartitionSecondArgs, 1024, 1) {
    SHARED(u32, shared);
    second_pass(a, shared);
}
KERNEL_BOUNDS(partition_offsets, PartitionScanArgs, 1024, 1) { scan_counts(a); }
KERNEL(bits_unpack, BitsArgs) { bits_to_bytes(a); }
KERNEL(bits_pack, BitsArgs) { bytes_to_bits(a); }
