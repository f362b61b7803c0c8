// The parts of a radix sort other than its passes, which are in partition.cu. Sort keys become unsigned integers of the
// same order, and are narrowed to the range of their values. As many keys as fit are packed into one word a row.
// Strings become ranks, by eight bytes a round.
#include "order.cuh"

enum SortKind : i32 {
    SORT_BITS,  // bitmap
    SORT_I8, SORT_I16, SORT_I32, SORT_I64,
    SORT_U8, SORT_U16, SORT_U32, SORT_U64,
    SORT_F32, SORT_F64,
    SORT_HIGH,  // upper half of 16-byte integers
    SORT_LOW,   // lower half
    SORT_CODES, // int32 codes; ranks holds the rank of each
    SORT_NULLS, // 1 bit: null or not
};

struct SortPart {
    u64 data;
    u64 valid;  // 0: no nulls
    u64 ranks;
    u64 base;   // smallest value, or the largest when descending
    i32 kind;
    i32 bits;   // of the range
    i32 descending; // for SORT_NULLS: nulls come first
    i32 codes;  // SORT_CODES: number of codes; other codes are nulls
};

// ordered_bits maps the bits of a float to an integer of the same order. -0 equals +0, all NaNs are equal and last.
template <class F, class U>
DEVICE u64 ordered_bits(F f, U bits, U nan) {
    constexpr U sign = U(1) << (8 * sizeof(U) - 1);
    if (f == 0) bits = 0;
    if (f != f) bits = nan;
    return bits & sign ? U(~bits) : bits | sign;
}

// ordered returns the value of a row as an integer of the same order.
DEVICE u64 ordered(const SortPart& p, i64 r) {
    constexpr u64 sign = 1ull << 63;
    switch (p.kind) {
    case SORT_BITS: return bit((const u32*)p.data, r);
    case SORT_I8: return (u64)(i64)((const i8*)p.data)[r] ^ sign;
    case SORT_I16: return (u64)(i64)((const i16*)p.data)[r] ^ sign;
    case SORT_I32: return (u64)(i64)((const i32*)p.data)[r] ^ sign;
    case SORT_I64: return ((const u64*)p.data)[r] ^ sign;
    case SORT_U8: return ((const u8*)p.data)[r];
    case SORT_U16: return ((const u16*)p.data)[r];
    case SORT_U32: return ((const u32*)p.data)[r];
    case SORT_U64: return ((const u64*)p.data)[r];
    case SORT_F32: return ordered_bits(((const float*)p.data)[r], ((const u32*)p.data)[r], 0x7fc00000u);
    case SORT_F64: return ordered_bits(((const double*)p.data)[r], ((const u64*)p.data)[r], 0x7ff8000000000000ull);
    case SORT_HIGH: return ((const u64*)p.data)[2 * r + 1] ^ sign;
    case SORT_LOW: return ((const u64*)p.data)[2 * r];
    case SORT_CODES: {
        i32 code = ((const i32*)p.data)[r];
        return code >= 0 && code < p.codes ? ((const u32*)p.ranks)[code] : 0;
    }
    }
    return 0;
}

// ordered_rows is ordered for ROWS rows that are `step` apart. It loads all of them together. Values of rows beyond the
// end stay undefined.
template <int ROWS>
DEVICE void ordered_rows(const SortPart& p, i64 first, i64 step, i64 end, u64 (&v)[ROWS]) {
    constexpr u64 sign = 1ull << 63;
    const u32* ranks = (const u32*)p.ranks;
#define EACH(value) \
    _Pragma("unroll") for (int k = 0; k < ROWS; k++) { \
        const i64 r = first + k * step; \
        if (r < end) v[k] = (value); \
    } \
    return
    switch (p.kind) {
    case SORT_I32: EACH((u64)(i64)__ldcs((const i32*)p.data + r) ^ sign);
    case SORT_I64: EACH(__ldcs((const u64*)p.data + r) ^ sign);
    case SORT_U32: EACH(__ldcs((const u32*)p.data + r));
    case SORT_CODES: {
        i32 code[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) code[k] = first + k * step < end ? __ldcs((const i32*)p.data + first + k * step) : 0;
#pragma unroll
        for (int k = 0; k < ROWS; k++) v[k] = code[k] >= 0 && code[k] < p.codes ? ranks[code[k]] : 0;
        return;
    }
    default: EACH(ordered(p, r));
    }
#undef EACH
}

constexpr int ORDERED = 4; // rows that a thread handles together

struct SortRangeArgs {
    SortPart part;
    u64* range; // smallest and largest value of the rows that are not null; starts as ~0, 0
    i64 n;
};

KERNEL_BOUNDS(sort_range, SortRangeArgs, 256, 1) {
    u64 lo = ~0ull, hi = 0;
    const i64 step = grid_threads();
    for (i64 first = global_thread(); first < a.n; first += ORDERED * step) {
        u64 v[ORDERED];
        ordered_rows(a.part, first, step, a.n, v);
#pragma unroll
        for (int k = 0; k < ORDERED; k++) {
            const i64 r = first + k * step;
            if (r >= a.n || !bit((const u32*)a.part.valid, r)) continue;
            lo = min(lo, v[k]);
            hi = max(hi, v[k]);
        }
    }
    for (int d = 16; d; d >>= 1) {
        lo = min(lo, __shfl_xor_sync(ALL, lo, d));
        hi = max(hi, __shfl_xor_sync(ALL, hi, d));
    }
    if (lane_id() == 0 && lo <= hi) {
        atomicMin(&a.range[0], lo);
        atomicMax(&a.range[1], hi);
    }
}

constexpr int SORT_PARTS = 32;

struct SortPackArgs {
    SortPart part[SORT_PARTS]; // most significant first
    u32* low;        // the lowBits lowest bits of the words
    u32* high;       // the others, at most 32
    const u32* rows; // the order so far; null: the order of the input
    i64 n;
    i32 parts;
    i32 lowBits;     // 0: low is not written
};

KERNEL_BOUNDS(sort_pack, SortPackArgs, 256, 1) {
    for (i64 i = global_thread(); i < a.n; i += grid_threads()) {
        i64 r = a.rows ? a.rows[i] : i;
        u64 word = 0;
        for (i32 k = 0; k < a.parts; k++) {
            const SortPart& p = a.part[k];
            bool valid = bit((const u32*)p.valid, r);
            u64 v = 0;
            if (p.kind == SORT_NULLS)
                v = valid == (p.descending != 0);
            else if (valid)
                v = p.descending ? p.base - ordered(p, r) : ordered(p, r) - p.base;
            word = p.bits == 64 ? v : word << p.bits | v;
        }
        if (a.lowBits) a.low[i] = (u32)(word & ((1ull << a.lowBits) - 1));
        a.high[i] = (u32)(word >> a.lowBits);
    }
}

struct PackWordsArgs {
    SortPart part[SORT_PARTS]; // most significant first, ascending, nulls last
    u64 out; // words of 4 bytes, or of 8 if wide
    i64 n;
    i32 parts;
    i32 wide;
};

KERNEL_BOUNDS(pack_words, PackWordsArgs, 256, 1) {
    const i64 step = grid_threads();
    for (i64 first = global_thread(); first < a.n; first += ORDERED * step) {
        u64 word[ORDERED] = {};
        for (i32 at = 0; at < a.parts; at++) {
            const SortPart& p = a.part[at];
            u64 v[ORDERED];
            if (p.kind != SORT_NULLS) ordered_rows(p, first, step, a.n, v);
#pragma unroll
            for (int k = 0; k < ORDERED; k++) {
                const i64 r = first + k * step;
                if (r >= a.n) continue;
                const bool valid = bit((const u32*)p.valid, r);
                const u64 x = p.kind == SORT_NULLS ? !valid : valid ? v[k] - p.base : 0;
                word[k] = p.bits == 64 ? x : word[k] << p.bits | x;
            }
        }
#pragma unroll
        for (int k = 0; k < ORDERED; k++) {
            const i64 r = first + k * step;
            if (r >= a.n) continue;
            if (a.wide)
                ((u64*)a.out)[r] = word[k];
            else
                ((u32*)a.out)[r] = (u32)word[k];
        }
    }
}

struct UnpackWordsArgs {
    u64 words;
    u64 out;   // for SORT_HIGH and SORT_LOW, the 16-byte values
    u64 valid; // 0: no nulls
    u64 base;
    i64 n;
    i32 wide;
    i32 kind;
    i32 shift; // position of the part in a word
    i32 bits;
    i32 nulls; // position of the bit that marks a null
    i32 pad;
};

// unordered returns the bits of the value for an integer that ordered returned.
DEVICE u64 unordered(i32 kind, u64 v) {
    constexpr u64 sign = 1ull << 63;
    switch (kind) {
    case SORT_I8:
    case SORT_I16:
    case SORT_I32:
    case SORT_I64:
    case SORT_HIGH: return v ^ sign;
    case SORT_F32: return v >> 31 & 1 ? v & 0x7fffffff : ~v;
    case SORT_F64: return v & sign ? v ^ sign : ~v;
    }
    return v;
}

// unpack_words extracts a part of the words. Bitmaps have whole words of 64 rows.
KERNEL(unpack_words, UnpackWordsArgs) {
    const i64 i = global_thread(), whole = (a.n + 63) / 64 * 64;
    const u64 word = i >= a.n ? 0 : a.wide ? ((const u64*)a.words)[i] : ((const u32*)a.words)[i];
    if (a.valid) {
        const u32 valid = __ballot_sync(ALL, i < a.n && !(word >> a.nulls & 1));
        if (lane_id() == 0 && i < whole) ((u32*)a.valid)[i >> 5] = valid;
    }
    const u64 mask = a.bits == 64 ? ~0ull : (1ull << a.bits) - 1;
    const u64 v = unordered(a.kind, a.bits ? (word >> a.shift & mask) + a.base : a.base);
    if (a.kind == SORT_BITS) {
        const u32 bits = __ballot_sync(ALL, i < a.n && v);
        if (lane_id() == 0 && i < whole) ((u32*)a.out)[i >> 5] = bits;
        return;
    }
    if (i >= a.n) return;
    switch (a.kind) {
    case SORT_I8:
    case SORT_U8: ((u8*)a.out)[i] = (u8)v; break;
    case SORT_I16:
    case SORT_U16: ((u16*)a.out)[i] = (u16)v; break;
    case SORT_I32:
    case SORT_U32:
    case SORT_F32:
    case SORT_CODES: ((u32*)a.out)[i] = (u32)v; break;
    case SORT_HIGH: ((u64*)a.out)[2 * i + 1] = v; break;
    case SORT_LOW: ((u64*)a.out)[2 * i] = v; break;
    default: ((u64*)a.out)[i] = v;
    }
}

struct SortNumberArgs {
    u32* out;
    i64 n;
};

KERNEL(sort_number, SortNumberArgs) {
    for (i64 i = global_thread(); i < a.n; i += grid_threads()) a.out[i] = (u32)i;
}

// Ranks of strings. At first all strings are one group. Each round sorts the groups of more than one string by the next
// eight bytes, and by the number of these bytes that the string has. Then the round splits each group into groups of
// strings that are equal so far. Strings that have more bytes and are not alone in their group remain for the next
// round.

constexpr u32 TEXT_CHUNK = 8;

struct TextWordsArgs {
    const i32* offsets;
    const u8* bytes;
    const i32* codes; // of the strings among the values of a dictionary; null: the strings are the values
    const u32* rows;  // the strings in the sort; null: all
    u64* words;       // next bytes, the first byte most significant, zeros past the end
    u8* lengths;      // number of these bytes, TEXT_CHUNK + 1 if there are more
    i64 n;
    i64 depth;        // bytes that earlier rounds have compared
    i32 values;       // values of the dictionary; other codes are nulls
};

KERNEL(text_words, TextWordsArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        i64 v = a.rows ? a.rows[k] : k;
        if (a.codes) v = a.codes[v];
        u64 word = 0;
        i64 rest = 0;
        if (v >= 0 && v < a.values) {
            i64 from = a.offsets[v] + a.depth;
            rest = max(a.offsets[v + 1] - from, (i64)0);
            for (i64 i = 0; i < TEXT_CHUNK; i++) word = word << 8 | (i < rest ? a.bytes[from + i] : 0);
        }
        a.words[k] = word;
        a.lengths[k] = (u8)min(rest, (i64)TEXT_CHUNK + 1);
    }
}

struct TextSplitArgs {
    const u32* order;    // the strings of this round, sorted: positions in the arrays below
    const u32* groups;   // null: one group
    const u64* words;
    const u8* lengths;
    const u32* rows;     // null: all
    const u32* places;   // position of each string in the whole order; null: all
    u32* sorted;         // rows in the new order
    i32* heads;          // 1 where a group begins
    u32* whole;          // the order of all strings
    i32* wholeHeads;
    i64 n;
};

KERNEL(text_split, TextSplitArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        u32 t = a.order[k], row = a.rows ? a.rows[t] : t;
        i64 place = a.places ? a.places[k] : k;
        i32 head = k == 0;
        if (k > 0) {
            u32 u = a.order[k - 1];
            head = a.words[t] != a.words[u] || a.lengths[t] != a.lengths[u] || a.groups && a.groups[t] != a.groups[u];
        }
        a.sorted[k] = row;
        a.heads[k] = head;
        a.whole[place] = row;
        a.wholeHeads[place] = head;
    }
}

struct TextKeepArgs {
    const u32* order;
    const u8* lengths;
    const i32* heads;
    i32* keep; // 1 where the next round continues
    i64 n;
};

KERNEL(text_keep, TextKeepArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        bool alone = a.heads[k] && (k + 1 == a.n || a.heads[k + 1]);
        a.keep[k] = !alone && a.lengths[a.order[k]] > TEXT_CHUNK;
    }
}

struct TextCompactArgs {
    const i32* keep;   // prefix sums, n + 1
    const i32* heads;  // prefix sums, n + 1
    const u32* sorted;
    const u32* places; // null: all
    u32* rows;
    u32* nextPlaces;
    u32* groups;
    i64 n;
};

KERNEL(text_compact, TextCompactArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        i32 to = a.keep[k];
        if (a.keep[k + 1] == to) continue;
        a.rows[to] = a.sorted[k];
        a.nextPlaces[to] = a.places ? a.places[k] : (u32)k;
        a.groups[to] = (u32)a.heads[k + 1];
    }
}

struct TextCodesArgs {
    const i32* codes; // null: the strings are the values
    const u32* rows;  // null: all
    i32* out;         // the value of each string
    i64 n;
};

KERNEL(text_codes, TextCodesArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        i64 row = a.rows ? a.rows[k] : k;
        a.out[k] = a.codes ? a.codes[row] : (i32)row;
    }
}

// text_finish writes strings that a comparison sort has ordered into the whole order.
struct TextFinishArgs {
    const OrderKey* keys;
    const u32* order;  // positions in the arrays of the keys, and in rows
    const u32* rows;   // null: all
    const u32* places; // position of each string in the whole order; null: all
    u32* whole;
    i32* wholeHeads;
    i64 n;
    i32 count; // number of keys
};

KERNEL(text_finish, TextFinishArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) {
        const u32 t = a.order[k];
        const i64 place = a.places ? a.places[k] : k;
        a.whole[place] = a.rows ? a.rows[t] : t;
        a.wholeHeads[place] = k == 0 || compare_rows(a.keys, a.count, a.order[k - 1], t) != 0;
    }
}

struct TextRanksArgs {
    const u32* whole;
    const i32* heads; // prefix sums, n + 1
    u32* ranks;
    i64 n;
};

KERNEL(text_ranks, TextRanksArgs) {
    for (i64 k = global_thread(); k < a.n; k += grid_threads()) a.ranks[a.whole[k]] = (u32)(a.heads[k + 1] - 1);
}
