// Group-by in tables in shared memory. A block aggregates the rows of a partition in a hash table of its own (PGB of Wu
// et al., SIGMOD 2025, §4.3; HGB, §4.2, has a single partition). Partitions of many rows are cut into slices, whose
// tables are merged in a table in device memory. If a slice has more groups than fit in its table, it folds the rows of
// the other groups in the table in device memory.
//
// Bytes, rows of w bytes: w read, and the groups written. In a table each row reads a key and does an atomic for each
// aggregate. Atomics are on words of 32 bits. A sum has one or two words, and one word or half a word for the carries.
#include "eval_int128.cuh"
#include "order.cuh"

constexpr u32 NOWHERE = ~0u; // no slot

// Fold is how values are folded. A minimum compares bits, some of which are flipped.
enum Fold : i32 { FOLD_COUNT, FOLD_SUM_I32, FOLD_SUM_U32, FOLD_SUM_I64, FOLD_SUM_U64, FOLD_MIN_32, FOLD_MIN_64 };

// Values are of 4 bytes; or of 4 and 8 bytes; or of any width, loaded as words, with nulls. A value of 16 bytes takes
// two columns: the lower half without a sign, and the upper half.
enum Values { NARROW, WIDE, ANY };

// Loads in addition to those of keys.cuh: a half of 16 bytes, and a half of a float as a number of 128 bits in units of
// 2^(flip - 1075).
enum { LOAD_HALF = LOAD_TEXT + 1, LOAD_F32_LOW, LOAD_F32_HIGH, LOAD_F64_LOW, LOAD_F64_HIGH };

constexpr int AGGREGATE_COLUMNS = 16;

struct AggregateColumn {
    u64 src;
    u64 out;   // 0: the next column holds the upper half
    u64 flip;
    u64 valid;    // ANY: a bitmap; 0: no nulls
    u64 outValid; // ANY: a bitmap of zeros; 0: no nulls
    i32 fold;
    u32 word; // its first 32-bit word of a slot in shared memory
    u32 far;  // its first 64-bit word of a slot in device memory
    i32 load; // ANY
    u32 seen; // ANY: the column that counts its values
    u32 upper; // ANY, 1: the column before it holds the lower half
    u32 carry; // of a sum: the word that contains its carries
    i32 part;  // the part of that word, see Part
};

struct AggregateState {
    u64 groups;
    u32 items, tables; // slices, and the partitions that they belong to
    u32 taken;         // partitions that blocks have started
    u32 full;          // 1: a table had no room
    u32 failed;        // 1: a sum exceeds 128 bits
    u32 largest;       // rows of the largest partition that is cut into slices
};

// AggregateItem is a slice of a partition.
struct AggregateItem {
    u32 from, to;
    u32 table; // its table in device memory
    u32 pad;
};

struct AggregateArgs {
    u64 key;
    u64 outKey;
    const u32* offsets; // where partitions begin; null: one partition of all rows
    const u32* ends;    // where they end
    AggregateState* state;
    AggregateItem* items;
    u64 farKeys;  // keys of all tables in device memory, farSlots + 1 for each table
    u64* farWords; // for each table: words of 64 bits, farSlots + 1 of each
    AggregateColumn column[AGGREGATE_COLUMNS];
    u16* ids;       // by row: the slots of their keys in the dictionary of the block
    u64 dictionary; // by block: the keys of its groups, by rank
    u64 low;   // dense: the key of slot 0
    u64 mul;   // odd
    u64 most;  // most groups that the output has room for
    u32 rows, partitions, slice;
    u32 columns, words, farWordCount;
    u32 slots, copies; // slots of a table in shared memory; copies of its words, by thread:
    u32 farSlots;      // a power of two
    u32 keySlots;      // of a dictionary
    u32 mostItems;
};

// A slot without a key contains all ones. The key of all ones has the slot after the others, which contains 0 if the
// key occurred. In shared memory there is one more slot, for rows that find no room, so that all rows of a warp are
// folded in the same way.
template <class K>
constexpr K EMPTY = (K)~(K)0;

// hash_key returns the upper half of a product (multiply-shift hashing). Its upper bits are well mixed.
DEVICE u32 hash_key(u32 key, u64 mul) { return key * (u32)mul; }
DEVICE u32 hash_key(u64 key, u64 mul) { return (u32)(key * mul >> 32); }

// LOOKS is the number of slots that all rows of a tile look at together: look(0), look(1) … after the slot of the hash.
// Runs of taken slots get shorter than with linear probing.
constexpr u32 LOOKS = 4;
DEVICE constexpr u32 look(u32 n) { return n * (n + 1) / 2; }

// probe returns the slot of a key. It inserts the key if the key is not in the table. It looks at the LOOKS slots from
// `at` on, and then at one slot after the other. After `tries` looks it returns NOWHERE. It starts with look n, at
// `at`. There are more than look(LOOKS - 1) slots.
template <class K>
DEVICE u32 probe(K* keys, K key, u32 at, u32 slots, u32 tries, u32 n = 1) {
    for (; n <= tries; n++) {
        K k = *(volatile K*)&keys[at];
        if (k == EMPTY<K>) k = atomicCAS(&keys[at], EMPTY<K>, key);
        if (k == key || k == EMPTY<K>) return at;
        at += n < LOOKS ? n : 1;
        if (at >= slots) at -= slots;
    }
    return NOWHERE;
}

// probe_on is probe for a key that was not in the LOOKS slots from `at` on. It looks at them together once more, and
// starts after them if all have other keys.
template <class K>
DEVICE u32 probe_on(K* keys, K key, u32 at, u32 slots, u32 tries) {
    bool others = true;
#pragma unroll
    for (u32 n = 0; n < LOOKS; n++) {
        const K k = *(volatile K*)&keys[at + look(n)];
        others &= (k != EMPTY<K>) & (k != key);
    }
    if (!others) return probe(keys, key, at, slots, tries);
    at += look(LOOKS - 1) + 1;
    return probe(keys, key, at < slots ? at : 0, slots, tries, LOOKS + 1);
}

// Slots is how a row finds its slot: by a hash, where all rows must find a slot; by a hash, where some rows may find
// none; by dense keys; by a hash in a table of keys only, a dictionary; by the slots that the rows have in a
// dictionary.
enum Slots { OF_PARTITION, OF_ALL, OF_DENSE, OF_DICTIONARY, OF_IDS };

// Rank tells which of 32 slots are used, and how many used slots precede them.
struct Rank { u32 used, before; };

// Part is the part of a word that contains the carries of a sum.
enum Part : i32 { WHOLE, LOWER_HALF, UPPER_HALF };

// Half a word of carries is moved to the table in device memory once its carries reach CARRIES. Each thread moves the
// carries that it finds before it adds to other cells, so 16 bits hold them.
constexpr i32 CARRIES = 8192;

// carries returns the carries of a sum in a word. The lower half of the word is signed.
DEVICE i32 carries(const AggregateColumn& x, u32 word) {
    const i32 low = (i32)(short)(u16)word;
    return x.part == WHOLE ? (i32)word : x.part == LOWER_HALF ? low : (i32)(word - (u32)low) >> 16;
}

// part_of returns a number of carries shifted to its part of a word.
DEVICE u32 part_of(const AggregateColumn& x, u32 carries) { return x.part == UPPER_HALF ? carries << 16 : carries; }

// HOT_CELLS is the number of additional cells of a hot slot: one for each lane, so that rows of one key do not wait for
// each other. A slot is hot (a heavy hitter) if a warp that looks has HOT_ROWS of its 32 rows in it.
constexpr u32 HOT_CELLS = 32, HOT_ROWS = 8;

// Table is a table in shared memory. Slots `slots` and `slots` + 1 are for the key of all ones and for rows without a
// slot. At most one slot is hot.
template <class K, Slots SLOTS>
struct Table {
    static constexpr bool CAN_BE_HOT = SLOTS == OF_ALL || SLOTS == OF_DENSE || SLOTS == OF_IDS;

    K* keys;    // for hashes; OF_IDS: in device memory, by rank
    u32* seen;  // OF_DENSE: a bit for each slot
    Rank* rank; // OF_DICTIONARY and OF_IDS: for each 32 slots of the dictionary
    u32* words; // by word: (slots + 2) × copies cells, and those of the hot slot
    u32* hot;   // the hot slot, or NOWHERE
    u32 slots, copies, cells; // slots is even unless OF_IDS
    K low;

    __device__ __forceinline__ Table(const AggregateArgs& a, u32* memory, u32* hot = nullptr) : hot(hot) {
        slots = a.slots, copies = a.copies, cells = (slots + 2) * copies + HOT_CELLS;
        keys = (K*)memory, seen = memory, rank = (Rank*)memory, low = (K)a.low;
        words = memory + (SLOTS == OF_DENSE ? (slots + 65) / 64 * 2 : (slots + 2) * (sizeof(K) / 4));
        if (SLOTS == OF_DICTIONARY || SLOTS == OF_IDS) {
            words = memory + (a.keySlots / 32 + 1) * 2;
            keys = (K*)words;
        }
        if (SLOTS == OF_DICTIONARY) slots = a.keySlots;
        if (SLOTS == OF_IDS) keys = (K*)a.dictionary + (u64)blockIdx.x * slots;
    }

    __device__ void clear(const AggregateArgs& a) {
        if (CAN_BE_HOT && threadIdx.x == 0) *hot = NOWHERE;
        if (SLOTS == OF_DENSE)
            for (u32 s = threadIdx.x; s < (slots + 65) / 64 * 2; s += blockDim.x) seen[s] = 0;
        else if (SLOTS != OF_IDS)
            for (u32 s = threadIdx.x; s < slots + 2; s += blockDim.x) keys[s] = EMPTY<K>;
        for (u32 c = 0; c < columns(a); c++) {
            const AggregateColumn& x = a.column[c];
            const u32 count = width(x.fold) * cells, v = x.fold >= FOLD_MIN_32 ? ~0u : 0;
            for (u32 i = threadIdx.x; i < count; i += blockDim.x) words[x.word * cells + i] = v;
            if (is_sum(x.fold))
                for (u32 i = threadIdx.x; i < cells; i += blockDim.x) words[x.carry * cells + i] = 0;
        }
    }

    // columns returns the number of aggregates. A dictionary has none.
    static __device__ __forceinline__ u32 columns(const AggregateArgs& a) { return SLOTS == OF_DICTIONARY ? 0 : a.columns; }

    // width returns the number of words of an aggregate without its carries.
    static __device__ __forceinline__ u32 width(i32 fold) {
        return fold == FOLD_SUM_I64 || fold == FOLD_SUM_U64 || fold == FOLD_MIN_64 ? 2 : 1;
    }
    static __device__ __forceinline__ bool is_sum(i32 fold) { return fold >= FOLD_SUM_I32 && fold <= FOLD_SUM_U64; }

    // saw reports whether the dense key of a slot occurred.
    __device__ __forceinline__ bool saw(u32 slot) const { return *(volatile u32*)&seen[slot >> 5] >> (slot & 31) & 1; }
    __device__ __forceinline__ bool used(u32 slot) const {
        return SLOTS == OF_IDS ? slot < slots : SLOTS == OF_DENSE ? saw(slot) : keys[slot] != EMPTY<K>;
    }
    __device__ __forceinline__ K key(u32 slot) const {
        if (SLOTS == OF_DENSE) return low + (K)slot;
        return SLOTS != OF_IDS && slot == slots ? EMPTY<K> : keys[slot];
    }

    // value returns a slot's value of an aggregate: a sum of more than 64 bits in lo and hi, other values in lo.
    __device__ void value(const AggregateColumn& x, u32 slot, u64& lo, u64& hi) const {
        lo = x.fold >= FOLD_MIN_32 ? ~0ull : 0, hi = 0;
        u32 cell = slot * copies, left = copies;
        for (bool more = CAN_BE_HOT && slot == *hot;; more = false) {
            for (; left; left--, cell++) add_cell(x, cell, lo, hi);
            if (!more) break;
            cell = cells - HOT_CELLS, left = HOT_CELLS;
        }
        if (x.fold == FOLD_SUM_I32) hi = (u64)((i64)lo >> 63);
    }

    // add_cell adds a cell's value of an aggregate.
    __device__ __forceinline__ void add_cell(const AggregateColumn& x, u32 cell, u64& lo, u64& hi) const {
        const u32 *w = words + x.word * cells + cell, more = words[x.carry * cells + cell];
        switch (x.fold) {
        case FOLD_COUNT: lo += *w; break;
        case FOLD_SUM_I32: lo += ((u64)(i64)carries(x, more) << 32) + (u64)(i64)(i32)*w; break;
        case FOLD_SUM_U32: lo += ((u64)(i64)carries(x, more) << 32) + *w; break;
        case FOLD_MIN_32: lo = min(lo, (u64)*w); break;
        case FOLD_MIN_64: lo = min(lo, ((const u64*)(words + x.word * cells))[cell]); break;
        default:
            u64 v = (u64)w[cells] << 32 | *w;
            lo += v;
            hi += (u64)(i64)carries(x, more) + (lo < v);
        }
    }
};

// FarTable is a table in device memory.
template <class K>
struct FarTable {
    K* keys;
    u64* words;
    u32 slots;

    __device__ __forceinline__ FarTable(const AggregateArgs& a, u32 table) {
        slots = a.farSlots;
        keys = (K*)a.farKeys + (u64)table * (slots + 1);
        words = a.farWords + (u64)table * (slots + 1) * a.farWordCount;
    }

    // find returns the slot of a key, or NOWHERE if there is no room.
    __device__ u32 find(const AggregateArgs& a, K key) {
        if (key == EMPTY<K>) {
            *(volatile K*)&keys[slots] = 0;
            return slots;
        }
        return probe(keys, key, __umulhi(hash_key(key, a.mul), slots), slots, min(slots, 1024u));
    }

    // word returns a word of an aggregate, which is 0 at first. Sums of 8-byte values have a word for each 32 bits,
    // because atomics do not carry between words. Minima are inverted.
    __device__ __forceinline__ u64* word(const AggregateColumn& x, u32 slot, u32 w = 0) { return words + (u64)(x.far + w) * (slots + 1) + slot; }

    __device__ void fold(const AggregateColumn& x, u32 slot, u64 lo, u64 hi) {
        switch (x.fold) {
        case FOLD_MIN_32:
        case FOLD_MIN_64: atomicMax(word(x, slot), ~lo); break;
        case FOLD_SUM_I64:
        case FOLD_SUM_U64:
            atomicAdd(word(x, slot), lo & 0xffffffff);
            atomicAdd(word(x, slot, 1), lo >> 32);
            if (hi) atomicAdd(word(x, slot, 2), hi);
            break;
        default: atomicAdd(word(x, slot), lo);
        }
    }

    // carry folds n carries of a sum.
    __device__ void carry(const AggregateColumn& x, u32 slot, i32 n) {
        const bool wide = x.fold == FOLD_SUM_I64 || x.fold == FOLD_SUM_U64;
        atomicAdd(word(x, slot, wide ? 2 : 0), (u64)(i64)n << (wide ? 0 : 32));
    }

    __device__ void value(const AggregateColumn& x, u32 slot, u64& lo, u64& hi) {
        lo = *word(x, slot), hi = 0;
        if (x.fold >= FOLD_MIN_32) lo = ~lo;
        if (x.fold == FOLD_SUM_I32) hi = (u64)((i64)lo >> 63);
        if (x.fold == FOLD_SUM_I64 || x.fold == FOLD_SUM_U64) {
            u64 middle = *word(x, slot, 1), shifted = middle << 32;
            hi = *word(x, slot, 2) + (middle >> 32);
            lo += shifted;
            hi += lo < shifted;
        }
    }
};

// write_value writes the result of an aggregate.
DEVICE void write_value(const AggregateColumn& x, u64 row, u64 lo, u64 hi) {
    switch (x.fold) {
    case FOLD_COUNT: ((u64*)x.out)[row] = lo; break;
    case FOLD_MIN_32: ((u32*)x.out)[row] = (u32)(lo ^ x.flip); break;
    case FOLD_MIN_64: ((u64*)x.out)[row] = lo ^ x.flip; break;
    default: ((ulonglong2*)x.out)[row] = make_ulonglong2(lo, hi);
    }
}

// write_any writes the result of an aggregate of values of any width. The sum of 16-byte values is the sum of their
// upper halves and of the carries of the lower halves.
template <class T>
__device__ __noinline__ void write_any(const AggregateArgs& a, T& t, u32 c, u32 slot, u64 row) {
    const AggregateColumn& x = a.column[c];
    if (!x.out) return;
    u64 lo, hi;
    if (x.outValid) {
        t.value(a.column[x.seen], slot, lo, hi);
        if (lo) atomicOr((u32*)x.outValid + (row >> 5), 1u << (row & 31));
    }
    t.value(x, slot, lo, hi);
    if (x.fold == FOLD_MIN_64) {
        const u64 w = unorder(x.load, lo ^ x.flip);
        switch (x.load) {
        case LOAD_I8:
        case LOAD_U8: ((u8*)x.out)[row] = (u8)w; return;
        case LOAD_I16:
        case LOAD_U16: ((u16*)x.out)[row] = (u16)w; return;
        case LOAD_I32:
        case LOAD_U32:
        case LOAD_F32: ((u32*)x.out)[row] = (u32)w; return;
        default: ((u64*)x.out)[row] = w; return;
        }
    }
    if (!x.upper) return write_value(x, row, lo, hi);
    u64 low, carry;
    t.value(a.column[c - 1], slot, low, carry);
    const u64 sum = lo + carry;
    hi += sum < lo;
    if (x.load == LOAD_HALF) {
        if (hi != (u64)((i64)sum >> 63)) atomicExch(&a.state->failed, 1u);
        ((ulonglong2*)x.out)[row] = make_ulonglong2(low, sum);
    } else {
        ((double*)x.out)[row] = ldexp(to_double((i128)((u128)sum << 64 | low)), (int)x.flip - 1075);
    }
}

// write_groups writes the groups of slots [from, to) of a table, in any order. The block shares counter and base.
template <class K, Values V, class T>
DEVICE void write_groups(const AggregateArgs& a, T& t, u32 from, u32 to, u32* counter, u64* base) {
    const u32 rounds = (to - from + blockDim.x - 1) / blockDim.x;
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    u32 mine = 0;
    for (u32 s = from + threadIdx.x; s < to; s += blockDim.x) mine += t.keys[s] != EMPTY<K>;
    mine = warp_sum(mine);
    if (lane_id() == 0 && mine) atomicAdd(counter, mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        *base = atomicAdd(&a.state->groups, (u64)*counter);
        if (*base + *counter > a.most) *base = ~0ull; // the groups are only counted
        *counter = 0;
    }
    __syncthreads();
    if (*base == ~0ull) return;
    for (u32 r = 0; r < rounds; r++) {
        const u32 s = from + r * blockDim.x + threadIdx.x;
        const bool used = s < to && t.keys[s] != EMPTY<K>;
        const u32 some = __ballot_sync(ALL, used);
        u32 at = 0;
        if (lane_id() == 0 && some) at = atomicAdd(counter, (u32)__popc(some));
        at = __shfl_sync(ALL, at, 0) + __popc(some & lanes_below());
        if (!used) continue;
        const u64 row = *base + at;
        ((K*)a.outKey)[row] = s == t.slots ? EMPTY<K> : t.keys[s];
        for (u32 c = 0; c < a.columns; c++) {
            if (V == ANY) {
                write_any(a, t, c, s, row);
                continue;
            }
            u64 lo, hi;
            t.value(a.column[c], s, lo, hi);
            write_value(a.column[c], row, lo, hi);
        }
    }
}

template <class T, class V, int ITEMS>
DEVICE void load_rows(V (&v)[ITEMS], u64 src, u32 row, u32 end, bool full) {
    const T* p = (const T*)src + row;
    if (full) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = (V)__ldcs(p + 32 * i);
        return;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (row + 32 * i < end) v[i] = (V)__ldcs(p + 32 * i);
}

// float_half returns a half of a float in units of 2^(base - 1075). The float's exponent is between base and base + 63,
// unless the float is 0.
DEVICE u64 float_half(double value, u64 base, bool upper) {
    const u64 w = (u64)__double_as_longlong(value);
    const u32 e = (u32)(w >> 52) & 0x7ff;
    const u64 m = (w & ((1ull << 52) - 1)) | (u64)(e != 0) << 52;
    const u32 by = m ? (max(e, 1u) - (u32)base) & 63 : 0; // of a lane without a row, anything
    u64 low = m << by, high = by ? m >> (64 - by) : 0;
    if (w >> 63) {
        low = -low;
        high = ~high + (low == 0);
    }
    return upper ? high : low;
}

// any_word returns the value of a row as a word.
__device__ __noinline__ u64 any_word(const AggregateColumn& x, i64 row) {
    const void* p = (const void*)x.src;
    switch (x.load) {
    case LOAD_HALF: return at<u64>(p, 2 * row);
    case LOAD_F32_LOW: return float_half(at<float>(p, row), x.flip, false);
    case LOAD_F32_HIGH: return float_half(at<float>(p, row), x.flip, true);
    case LOAD_F64_LOW: return float_half(at<double>(p, row), x.flip, false);
    case LOAD_F64_HIGH: return float_half(at<double>(p, row), x.flip, true);
    default: return load_word(p, x.load, row);
    }
}

// compared returns a value in the form that a minimum compares.
DEVICE u64 compared(const AggregateColumn& x, u64 w) { return x.fold == FOLD_MIN_64 ? order(x.load, w) : w; }

DEVICE bool is_wide(const AggregateColumn& x) { return x.fold == FOLD_SUM_I64 || x.fold == FOLD_SUM_U64 || x.fold == FOLD_MIN_64; }

template <Values VALUES, class V, int ITEMS>
DEVICE void load_values(V (&v)[ITEMS], const AggregateColumn& x, u32 row, u32 end, bool full) {
    if (x.fold == FOLD_COUNT) return;
    if (VALUES == ANY) {
        switch (x.load) {
        case LOAD_I32: load_rows<i32>(v, x.src, row, end, full); break;
        case LOAD_I64: load_rows<V>(v, x.src, row, end, full); break;
        case LOAD_F64_LOW:
        case LOAD_F64_HIGH:
            load_rows<V>(v, x.src, row, end, full);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) v[i] = float_half(__longlong_as_double((i64)v[i]), x.flip, x.load == LOAD_F64_HIGH);
            break;
        case LOAD_HALF:
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (row + 32 * i < end) v[i] = at<u64>((const void*)x.src, 2 * ((i64)row + 32 * i));
            break;
        default:
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (row + 32 * i < end) v[i] = any_word(x, row + 32 * i);
        }
        if (x.fold == FOLD_MIN_64)
#pragma unroll
            for (int i = 0; i < ITEMS; i++) v[i] = order(x.load, v[i]);
        return;
    }
    if (VALUES == WIDE && is_wide(x))
        load_rows<V>(v, x.src, row, end, full);
    else
        load_rows<u32>(v, x.src, row, end, full);
}

// load_some returns a bit for each row whose value is not null.
template <int ITEMS>
DEVICE u32 load_some(const AggregateColumn& x, u32 row, u32 end) {
    u32 some = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (row + 32 * i < end) some |= (u32)bit((const u32*)x.valid, row + 32 * i) << i;
    return some;
}

// add_some adds to a word of shared memory if `by` is not 0. Only the addition is conditional, not the address.
DEVICE void add_some(u32* word, i32 by) {
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .pred some; setp.ne.s32 some, %1, 0; @some red.shared.add.u32 [%0], %1; }" ::"r"((u32)__cvta_generic_to_shared(word)), "r"(by) : "memory");
#else
    if (by) atomicAdd(word, (u32)by);
#endif
}

// add_carries adds -1, 0 or 1 to the carries of sums. It returns a bit for each row whose cell has many carries.
template <int ITEMS>
DEVICE u32 add_carries(const AggregateColumn& x, u32* words, const i32 (&by)[ITEMS], const u32 (&cell)[ITEMS]) {
    u32 many = 0;
    if (x.part == WHOLE) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            add_some(&words[cell[i]], by[i]);
        return 0;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        if (!by[i]) continue;
        const u32 old = atomicAdd(&words[cell[i]], part_of(x, (u32)by[i])), half = x.part == UPPER_HALF ? old >> 16 : old;
        many |= (u32)((half + CARRIES & 0xffff) >= 2 * CARRIES) << i;
    }
    return many;
}

// fold_values folds the values of rows into their cells. SURE means that every row has a cell. It returns a bit for
// each row whose cell has many carries.
template <Values VALUES, bool SURE, class V, int ITEMS>
DEVICE u32 fold_values(const AggregateColumn& x, u32* words, u32 cells, const V (&v)[ITEMS], const u32 (&cell)[ITEMS]) {
    u32 *w = words + x.word * cells, *more = words + x.carry * cells;
    u32 before[ITEMS];
    i32 by[ITEMS];
    switch (x.fold) {
    case FOLD_COUNT:
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (SURE || cell[i] != NOWHERE) atomicAdd(&w[cell[i]], 1u);
        return 0;
    case FOLD_SUM_I32: {
        // The low words are signed: the sign bit of `wraps` tells whether the sum wrapped.
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (SURE || cell[i] != NOWHERE) before[i] = atomicAdd(&w[cell[i]], (u32)v[i]);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u32 after = before[i] + (u32)v[i], wraps = (before[i] ^ after) & ((u32)v[i] ^ after);
            before[i] = SURE || cell[i] != NOWHERE ? wraps : 0;
            by[i] = (i32)before[i] < 0 ? (i32)(u32)v[i] >> 31 | 1 : 0;
            any |= before[i];
        }
        return __any_sync(ALL, (i32)any < 0) ? add_carries<ITEMS>(x, more, by, cell) : 0;
    }
    case FOLD_SUM_U32:
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            if (SURE || cell[i] != NOWHERE) before[i] = atomicAdd(&w[cell[i]], (u32)v[i]);
#pragma unroll
        for (int i = 0; i < ITEMS; i++)
            by[i] = (SURE || cell[i] != NOWHERE) && before[i] > ~(u32)v[i];
        return add_carries<ITEMS>(x, more, by, cell);
    case FOLD_MIN_32:
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u32 m = (u32)v[i] ^ (u32)x.flip;
            if ((SURE || cell[i] != NOWHERE) && m < *(volatile u32*)&w[cell[i]]) atomicMin(&w[cell[i]], m);
        }
        return 0;
    }
    if (VALUES == NARROW) return 0;
    if (x.fold == FOLD_MIN_64) {
        u64* wide = (u64*)w;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u64 m = (u64)v[i] ^ x.flip;
            if ((SURE || cell[i] != NOWHERE) && m < *(volatile u64*)&wide[cell[i]]) atomicMin(&wide[cell[i]], m);
        }
        return 0;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        if (SURE || cell[i] != NOWHERE) before[i] = atomicAdd(&w[cell[i]], (u32)v[i]);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        by[i] = 0;
        if (!SURE && cell[i] == NOWHERE) continue;
        const u32 hi = (u32)((u64)v[i] >> 32), carry = before[i] > ~(u32)v[i], middle = hi + carry;
        i32 top = (i32)(middle < carry) - (i32)(x.fold == FOLD_SUM_I64 && (i32)hi < 0);
        if (middle) top += atomicAdd(&w[cells + cell[i]], middle) > ~middle;
        by[i] = top;
    }
    return add_carries<ITEMS>(x, more, by, cell);
}

// lift returns a value in the form that a table in device memory folds.
template <class V>
DEVICE void lift(const AggregateColumn& x, V v, u64& lo, u64& hi) {
    lo = (u64)v, hi = 0;
    switch (x.fold) {
    case FOLD_COUNT: lo = 1; break;
    case FOLD_SUM_I32: lo = (u64)(i64)(i32)(u32)v; break;
    case FOLD_SUM_I64: hi = (u64)((i64)lo >> 63); break;
    case FOLD_MIN_32: lo = (u32)v ^ (u32)x.flip; break;
    case FOLD_MIN_64: lo ^= x.flip; break;
    }
}

template <bool FIRST, class A, class B> struct Pick { typedef A type; };
template <class A, class B> struct Pick<false, A, B> { typedef B type; };

// MOST_TRIES is the number of slots that a key looks at in a table that may leave the key to another table.
constexpr u32 MOST_TRIES = 64;

// far_row folds a row in a table in device memory. It returns false if the table has no room.
template <class K, Values VALUES>
__device__ __noinline__ bool far_row(const AggregateArgs& a, FarTable<K>& far, u32 row) {
    const u32 slot = far.find(a, ((const K*)a.key)[row]);
    if (slot == NOWHERE) return false;
    for (u32 c = 0; c < a.columns; c++) {
        const AggregateColumn& x = a.column[c];
        u64 lo, hi, v = 0;
        if (VALUES == ANY && !bit((const u32*)x.valid, row)) continue;
        if (VALUES == ANY && x.fold != FOLD_COUNT)
            v = compared(x, any_word(x, row));
        else if (VALUES == WIDE && is_wide(x))
            v = ((const u64*)x.src)[row];
        else if (x.fold != FOLD_COUNT)
            v = ((const u32*)x.src)[row];
        lift(x, v, lo, hi);
        far.fold(x, slot, lo, hi);
    }
    return true;
}

// move_carries moves the carries of a cell to the group of a key in a table in device memory, until few remain in the
// cell. With `drop` it discards the carries. It returns false if there is no table, or no room.
template <class K>
__device__ __noinline__ bool move_carries(const AggregateArgs& a, FarTable<K>* far, const AggregateColumn& x, u32* word, K key, bool drop) {
    u32 to = NOWHERE;
    if (!drop) {
        if (far) to = far->find(a, key);
        if (to == NOWHERE) return false;
    }
    for (;;) {
        const u32 old = *(volatile u32*)word;
        const i32 n = carries(x, old);
        if (n < CARRIES / 2 && n > -CARRIES / 2) return true;
        if (atomicCAS(word, old, old - part_of(x, (u32)n)) == old && !drop) far->carry(x, to, n);
    }
}

// A tile contains the rows that a block folds at a time. Each warp has 32 × ITEMS contiguous rows.
template <class K, Values VALUES, int ITEMS, Slots SLOTS>
struct Tiles {
    typedef typename Pick<VALUES == NARROW, u32, u64>::type V;
    typedef typename Pick<SLOTS == OF_IDS, u16, K>::type R;
    const AggregateArgs& a;
    Table<K, SLOTS>& t;
    FarTable<K>* far; // table for rows that find no room; null OF_PARTITION
    u32* left;        // number of these rows
    u32 begin, end, tile, copy;
    u32 hot; // the hot slot, or NOWHERE
    R k[ITEMS];

    __device__ __forceinline__ void load_keys(u32 row, bool full) {
        load_rows<R>(k, SLOTS == OF_IDS ? (u64)a.ids : a.key, row, end, full);
    }

    // home returns the first slot that a key looks at.
    __device__ __forceinline__ u32 home(K key) const {
        if (SLOTS == OF_DENSE) {
            const K offset = key - t.low;
            return offset < t.slots ? (u32)offset : NOWHERE;
        }
        return __umulhi(hash_key(key, a.mul), t.slots - look(LOOKS - 1));
    }

    // take folds the tile that starts at row `at`. The thread has row `row` and every 32nd row after it. FULL means
    // that no row is beyond the end. If there is no room, take returns false in all lanes.
    template <bool FULL>
    __device__ __forceinline__ bool take(u32 at, u32 row) {
        const u32 columns = t.columns(a);
        V v[ITEMS];
        u32 some = VALUES == ANY && columns ? load_some<ITEMS>(a.column[0], row, end) : 0;
        if (columns) load_values<VALUES>(v, a.column[0], row, end, FULL);
        u32 cell[ITEMS], lost = 0; // rows whose slot is not found yet, as bits
        bool miss[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            cell[i] = NOWHERE;
            if (!FULL && row + 32 * i >= end) continue;
            if (SLOTS == OF_IDS) {
                const Rank r = t.rank[k[i] >> 5];
                cell[i] = r.before + __popc(r.used & ((1u << (k[i] & 31)) - 1));
            } else if (SLOTS == OF_DENSE) {
                cell[i] = home(k[i]);
                if (cell[i] == NOWHERE || !t.saw(cell[i])) lost |= 1u << i;
            } else {
                cell[i] = home(k[i]);
                miss[i] = *(const volatile K*)&t.keys[cell[i]] != k[i];
            }
        }
        if (SLOTS == OF_PARTITION || SLOTS == OF_ALL || SLOTS == OF_DICTIONARY) {
            // Few lanes continue, so bank conflicts are rare.
#pragma unroll
            for (u32 n = 1; n < LOOKS; n++)
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    if ((FULL || row + 32 * i < end) && miss[i]) {
                        cell[i] += n;
                        miss[i] = *(const volatile K*)&t.keys[cell[i]] != k[i];
                    }
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if ((FULL || row + 32 * i < end) && (miss[i] || k[i] == EMPTY<K>)) lost |= 1u << i;
        }
        if (SLOTS != OF_IDS) {
            if (__any_sync(ALL, lost)) {
                const bool good = search(row, at, lost, cell);
                __syncwarp(); // the lanes continue together
                if (!__all_sync(ALL, good)) return false;
            }
        }
        if (SLOTS == OF_DICTIONARY) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (FULL || cell[i] != NOWHERE) a.ids[row + 32 * i] = (u16)cell[i];
        }
        if (SLOTS != OF_DICTIONARY) {
            if (t.CAN_BE_HOT && at == begin && t.copies < HOT_CELLS) hot = find_hot(cell[0]);
            if (t.CAN_BE_HOT && hot != NOWHERE) {
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    if (FULL || cell[i] != NOWHERE) cell[i] = cell[i] == hot ? t.cells - HOT_CELLS + lane_id() : cell[i] * t.copies + copy;
            } else if (SLOTS != OF_IDS) {
#pragma unroll
                for (int i = 0; i < ITEMS; i++)
                    if (FULL || cell[i] != NOWHERE) cell[i] = cell[i] * t.copies + copy;
            }
        }
        bool room = true;
        for (u32 c = 0; c < columns; c++) {
            V next[ITEMS];
            u32 nextSome = 0;
            if (VALUES == ANY && c + 1 < columns) nextSome = load_some<ITEMS>(a.column[c + 1], row, end);
            if (c + 1 < columns)
                load_values<VALUES>(next, a.column[c + 1], row, end, FULL);
            else if (FULL)
                load_keys(row + tile, end - at >= 2 * tile);
            u32 many;
            if (VALUES == ANY && a.column[c].valid) {
                u32 to[ITEMS]; // a null has no cell
#pragma unroll
                for (int i = 0; i < ITEMS; i++) to[i] = some >> i & 1 ? cell[i] : NOWHERE;
                many = fold_values<VALUES, false>(a.column[c], t.words, t.cells, v, to);
            } else {
                many = fold_values<VALUES, FULL>(a.column[c], t.words, t.cells, v, cell);
            }
            if (many) room = move(a.column[c], many, cell) && room;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) v[i] = next[i];
            some = nextSome;
        }
        if (!columns && FULL) load_keys(row + tile, end - at >= 2 * tile);
        return __all_sync(ALL, room);
    }

    // find_hot makes a slot the hot one if at least HOT_ROWS rows of the warp are in it. It returns the hot slot, the
    // same in all lanes. Rows without a slot are folded elsewhere, so they do not count.
    __device__ __forceinline__ u32 find_hot(u32 slot) {
        const u32 same = __match_any_sync(ALL, slot);
        const u32 rows = slot == NOWHERE || (SLOTS != OF_IDS && slot == t.slots + 1) ? 0 : (u32)__popc(same), most = __reduce_max_sync(ALL, rows);
        if (most >= HOT_ROWS && rows == most && !(same & lanes_below())) atomicCAS(t.hot, NOWHERE, slot);
        __syncwarp();
        return __shfl_sync(ALL, *(volatile u32*)t.hot, 0);
    }

    // move moves the carries of the cells of rows.
    __device__ __forceinline__ bool move(const AggregateColumn& x, u32 many, const u32 (&cell)[ITEMS]) {
        bool good = true;
#pragma unroll 1
        for (; many; many &= many - 1) {
            const u32 r = __ffs(many) - 1;
            u32 at = cell[0];
#pragma unroll
            for (int i = 1; i < ITEMS; i++)
                if (r == i) at = cell[i];
            const u32 slot = t.CAN_BE_HOT && at >= t.cells - HOT_CELLS ? hot : at / t.copies;
            const bool spare = SLOTS != OF_IDS && slot == t.slots + 1; // cell of rows that are folded elsewhere
            good = move_carries<K>(a, far, x, t.words + x.carry * t.cells + at, spare ? (K)0 : t.key(slot), spare) && good;
        }
        return good;
    }

    // search finds the slots of rows in `lost`. Each lane searches for its own rows, one after the other.
    __device__ __forceinline__ bool search(u32 row, u32 at, u32 lost, u32 (&cell)[ITEMS]) {
        bool good = true;
#pragma unroll 1
        for (; lost; lost &= lost - 1) {
            const u32 r = __ffs(lost) - 1;
            K key = k[0];
#pragma unroll
            for (int i = 1; i < ITEMS; i++)
                if (r == i) key = k[i];
            u32 slot;
            if (SLOTS == OF_DENSE) {
                slot = home(key);
                if (slot != NOWHERE) atomicOr(&t.seen[slot >> 5], 1u << (slot & 31));
            } else if (key == EMPTY<K>) {
                slot = t.slots;
                *(volatile K*)&t.keys[slot] = 0;
            } else {
                // probe_on made a dictionary slower.
                const u32 tries = SLOTS == OF_PARTITION ? t.slots + LOOKS : MOST_TRIES;
                slot = SLOTS == OF_DICTIONARY ? probe(t.keys, key, home(key), t.slots, tries) : probe_on(t.keys, key, home(key), t.slots, tries);
            }
            if (slot == NOWHERE) {
                slot = t.slots + 1;
                if (SLOTS == OF_PARTITION || SLOTS == OF_DICTIONARY) return false;
                const u32 sum = atomicAdd(left, 1u);
                good = far_row<K, VALUES>(a, *far, row + 32 * r) && !(sum > 4096 && sum > (at - begin + tile) / 4) && good;
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (r == i) cell[i] = slot;
        }
        return good;
    }
};

// aggregate_rows folds rows [begin, end) into the table of the block. It folds rows without room in a table in device
// memory, if there is one. It returns false, in some warps, if there is no room, or if more than a quarter of the rows
// had no room in the first table. left counts these rows.
template <class K, Values VALUES, int ITEMS, Slots SLOTS>
DEVICE bool aggregate_rows(const AggregateArgs& a, Table<K, SLOTS>& t, u32 begin, u32 end, FarTable<K>* far, u32* left) {
    const u32 tile = blockDim.x * ITEMS;
    Tiles<K, VALUES, ITEMS, SLOTS> s = {a, t, far, left, begin, end, tile, threadIdx.x & (t.copies - 1), NOWHERE};
    u32 at = begin, row = begin + warp_id() * (32 * ITEMS) + lane_id();
    s.load_keys(row, begin + tile <= end);
    for (; end - at >= tile; at += tile, row += tile)
        if (!s.template take<true>(at, row)) return false;
    return at == end || s.template take<false>(at, row);
}

// aggregate_partitions aggregates partitions of at most `slice` rows. It cuts the other partitions into slices, and
// also those whose groups had no room.
template <class K, Values VALUES, int ITEMS>
DEVICE void aggregate_partitions(const AggregateArgs& a, u32* memory) {
    __shared__ u32 shared_partition, counter;
    __shared__ u64 base;
    Table<K, OF_PARTITION> t(a, memory);
    for (;;) {
        if (threadIdx.x == 0) shared_partition = atomicAdd(&a.state->taken, 1u);
        __syncthreads();
        const u32 p = shared_partition;
        if (p >= a.partitions) return;
        const u32 from = a.offsets[p], to = a.ends[p];
        bool late = to - from > a.slice;
        if (!late) {
            t.clear(a);
            __syncthreads();
            late = __syncthreads_or(!aggregate_rows<K, VALUES, ITEMS, OF_PARTITION>(a, t, from, to, nullptr, nullptr));
        }
        if (!late) {
            write_groups<K, VALUES>(a, t, 0, t.slots + 1, &counter, &base);
        } else {
            const u32 slices = (to - from + a.slice - 1) / a.slice;
            if (threadIdx.x == 0) {
                atomicMax(&a.state->largest, to - from);
                counter = atomicAdd(&a.state->items, slices);
                base = atomicAdd(&a.state->tables, 1u);
            }
            __syncthreads();
            for (u32 i = threadIdx.x; i < slices && counter + i < a.mostItems; i += blockDim.x) {
                const u32 begin = from + i * a.slice;
                a.items[counter + i] = {begin, min(begin + a.slice, to), (u32)base, 0};
            }
        }
        __syncthreads();
    }
}

// merge_far merges the table of a block into a table in device memory.
template <class K, Slots SLOTS>
DEVICE bool merge_far(const AggregateArgs& a, Table<K, SLOTS>& t, FarTable<K>& far) {
    for (u32 s = threadIdx.x; s <= t.slots; s += blockDim.x) {
        if (!t.used(s)) continue;
        const u32 to = far.find(a, t.key(s));
        if (to == NOWHERE) return false;
        for (u32 c = 0; c < a.columns; c++) {
            u64 lo, hi;
            t.value(a.column[c], s, lo, hi);
            far.fold(a.column[c], to, lo, hi);
        }
    }
    return true;
}

// aggregate_slices aggregates slices. Each block has a range of slices and aggregates them one after the other. The
// slices of a partition are contiguous, so a block merges its table when the next partition begins.
template <class K, Values VALUES, int ITEMS, Slots SLOTS>
DEVICE void aggregate_slices(const AggregateArgs& a, u32* memory) {
    __shared__ u32 left, hot;
    Table<K, SLOTS> t(a, memory, &hot);
    const u32 from = (u32)((u64)a.mostItems * blockIdx.x / gridDim.x), to = (u32)((u64)a.mostItems * (blockIdx.x + 1) / gridDim.x);
    bool good = true;
    u32 table = NOWHERE;
    for (u32 i = from; i < to; i++) {
        AggregateItem item = {i * a.slice, min((i + 1) * a.slice, a.rows), 0, 0};
        if (a.offsets) item = a.items[i];
        if (item.table != table) {
            if (table != NOWHERE) {
                FarTable<K> far(a, table);
                good = merge_far(a, t, far) && good;
                __syncthreads();
            }
            table = item.table;
            t.clear(a);
        }
        if (threadIdx.x == 0) left = 0;
        __syncthreads();
        FarTable<K> far(a, table);
        good = aggregate_rows<K, VALUES, ITEMS, SLOTS>(a, t, item.from, item.to, &far, &left) && good;
        if (__syncthreads_or(!good)) {
            if (threadIdx.x == 0) atomicExch(&a.state->full, 1u);
            return;
        }
    }
    if (table == NOWHERE) return;
    FarTable<K> far(a, table);
    if (!merge_far(a, t, far)) atomicExch(&a.state->full, 1u);
}

// aggregate_ids aggregates one slice a block. It is for keys and aggregates that do not fit in shared memory together.
// In the first step all of the memory is a dictionary of the keys. Each row gets the slot of its key there, in 2 bytes.
// In the second step the keys are copied to device memory, by the rank of their slots. The ranks of the slots stay in
// shared memory, and the rows are folded by the ranks of their slots. Bytes: 4 more a row.
template <class K, Values VALUES, int ITEMS>
DEVICE void aggregate_ids(const AggregateArgs& a, u32* memory) {
    __shared__ u32 groups, hot;
    const u32 from = blockIdx.x * a.slice, to = min(from + a.slice, a.rows);
    Table<K, OF_DICTIONARY> d(a, memory);
    d.clear(a);
    __syncthreads();
    if (__syncthreads_or(!aggregate_rows<K, VALUES, 8, OF_DICTIONARY>(a, d, from, to, nullptr, nullptr))) {
        if (threadIdx.x == 0) atomicExch(&a.state->full, 1u);
        return;
    }
    for (u32 s = threadIdx.x; s < (d.slots / 32 + 1) * 32; s += blockDim.x) {
        const u32 used = __ballot_sync(ALL, s <= d.slots && d.used(s));
        if (lane_id() == 0) d.rank[s >> 5].used = used;
    }
    __syncthreads();
    if (warp_id() == 0) {
        u32 before = 0;
        for (u32 r = lane_id(); r < (d.slots / 32 / 32 + 1) * 32; r += 32) {
            const u32 n = r <= d.slots / 32 ? __popc(d.rank[r].used) : 0;
            u32 sum = n;
            for (int by = 1; by < 32; by *= 2) {
                const u32 other = __shfl_up_sync(ALL, sum, by);
                if (lane_id() >= by) sum += other;
            }
            if (r <= d.slots / 32) d.rank[r].before = before + sum - n;
            before += __shfl_sync(ALL, sum, 31);
        }
        if (lane_id() == 0) groups = before;
    }
    __syncthreads();
    Table<K, OF_IDS> t(a, memory, &hot);
    if (groups > t.slots) {
        if (threadIdx.x == 0) atomicExch(&a.state->full, 1u);
        return;
    }
    for (u32 s = threadIdx.x; s <= d.slots; s += blockDim.x) {
        const Rank r = d.rank[s >> 5];
        if (r.used >> (s & 31) & 1) t.keys[r.before + __popc(r.used & ((1u << (s & 31)) - 1))] = d.key(s);
    }
    __syncthreads();
    t.slots = groups;
    t.clear(a);
    __syncthreads();
    FarTable<K> far(a, 0);
    bool good = aggregate_rows<K, VALUES, ITEMS, OF_IDS>(a, t, from, to, &far, nullptr);
    __syncthreads();
    if (!merge_far(a, t, far) || !good) atomicExch(&a.state->full, 1u);
}

// aggregate_far writes the groups of the tables in device memory. Each block writes a range of slots of one table.
template <class K, Values VALUES>
DEVICE void aggregate_far(const AggregateArgs& a) {
    __shared__ u32 counter;
    __shared__ u64 base;
    const u32 each = 8 * blockDim.x, parts = a.farSlots / each + 1;
    FarTable<K> t(a, blockIdx.x / parts);
    const u32 from = blockIdx.x % parts * each;
    write_groups<K, VALUES>(a, t, from, min(from + each, a.farSlots + 1), &counter, &base);
}

// aggregate_KIND_kK_V: keys of K bytes; values w4 of 4 bytes, w0 of 4 and 8 bytes, or any. The number of rows a thread
// was chosen by measurement.
#define AGGREGATE(k, K, v, VALUES, items) \
    KERNEL_BOUNDS(aggregate_partitions_##k##_##v, AggregateArgs, 1024, 1) { \
        SHARED(u32, shared); \
        aggregate_partitions<K, VALUES, items>(a, shared); \
    } \
    KERNEL_BOUNDS(aggregate_slices_##k##_##v, AggregateArgs, 1024, 1) { \
        SHARED(u32, shared); \
        aggregate_slices<K, VALUES, items, OF_ALL>(a, shared); \
    } \
    KERNEL_BOUNDS(aggregate_dense_##k##_##v, AggregateArgs, 1024, 1) { \
        SHARED(u32, shared); \
        aggregate_slices<K, VALUES, items, OF_DENSE>(a, shared); \
    } \
    KERNEL(aggregate_far_##k##_##v, AggregateArgs) { aggregate_far<K, VALUES>(a); }
// Values of other widths or with nulls have too many words for two passes to pay off.
#define AGGREGATE_IDS(k, K, v, VALUES, items) \
    KERNEL_BOUNDS(aggregate_ids_##k##_##v, AggregateArgs, 1024, 1) { \
        SHARED(u32, shared); \
        aggregate_ids<K, VALUES, items>(a, shared); \
    }
AGGREGATE(k4, u32, w4, NARROW, 6)
AGGREGATE(k4, u32, w0, WIDE, 4)
AGGREGATE(k4, u32, any, ANY, 2)
AGGREGATE(k8, u64, w4, NARROW, 4)
AGGREGATE(k8, u64, w0, WIDE, 4)
AGGREGATE(k8, u64, any, ANY, 2)
AGGREGATE_IDS(k4, u32, w4, NARROW, 6)
AGGREGATE_IDS(k4, u32, w0, WIDE, 4)
AGGREGATE_IDS(k8, u64, w4, NARROW, 6)
AGGREGATE_IDS(k8, u64, w0, WIDE, 4)

// FloatRangeArgs has the least and the greatest exponent of the floats that are finite and not 0.
struct FloatRangeArgs {
    u64 src, valid;
    u32* range; // least, greatest; starts as ~0, 0. Infinity and NaN have the greatest exponent
    const u32 *offsets, *ends; // of partitions
    i64 n;
    i32 load;
    u32 partitions; // 0: one partition of n rows
};

KERNEL(float_range, FloatRangeArgs) {
    u32 lo = ~0u, hi = 0;
    for (u32 p = 0; p < max(a.partitions, 1u); p++) {
        const i64 end = a.partitions ? a.ends[p] : a.n;
        for (i64 r = (a.partitions ? a.offsets[p] : 0) + global_thread(); r < end; r += grid_threads()) {
            if (!bit((const u32*)a.valid, r)) continue;
            const double v = a.load == LOAD_F32 ? (double)((const float*)a.src)[r] : ((const double*)a.src)[r];
            if (v == 0) continue;
            const u32 e = max((u32)((u64)__double_as_longlong(v) >> 52) & 0x7ff, 1u);
            lo = min(lo, e);
            hi = max(hi, e);
        }
    }
    for (int d = 16; d; d >>= 1) {
        lo = min(lo, __shfl_xor_sync(ALL, lo, d));
        hi = max(hi, __shfl_xor_sync(ALL, hi, d));
    }
    if (lane_id() == 0 && hi) {
        atomicMin(&a.range[0], lo);
        atomicMax(&a.range[1], hi);
    }
}
