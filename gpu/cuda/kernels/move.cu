// Moving rows: gather by row id, and the parts of concat and slice that are no plain copies. A gather of w bytes a row
// reads 4 + w bytes and writes w. With ids in random order it reads a sector of 32 bytes for each row instead of w.
#include "common.cuh"

struct GatherArgs {
    const void* src;
    void* dst;
    const i32* ids;
    i64 n;
    i32 outer; // ids may be -1, which gives the value zero
};

struct alignas(16) Word16 {
    u64 lo, hi;
};

template <class T>
DEVICE T gather_one(const GatherArgs& a, i32 id) {
    if (a.outer && id < 0) return T{};
    return static_cast<const T*>(a.src)[id];
}

// A thread gathers four rows, so its loads do not wait for each other.
template <class T>
DEVICE void gather(const GatherArgs& a) {
    T* dst = static_cast<T*>(a.dst);
    i64 base = global_thread() * 4;
    if (base + 4 <= a.n) {
        int4 ids = reinterpret_cast<const int4*>(a.ids)[global_thread()];
        T v0 = gather_one<T>(a, ids.x), v1 = gather_one<T>(a, ids.y), v2 = gather_one<T>(a, ids.z), v3 = gather_one<T>(a, ids.w);
        struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) Four {
            T v[4];
        };
        *reinterpret_cast<Four*>(dst + base) = Four{{v0, v1, v2, v3}};
        return;
    }
    for (i64 i = base; i < a.n; i++) dst[i] = gather_one<T>(a, a.ids[i]);
}

KERNEL(gather_w1, GatherArgs) { gather<u8>(a); }
KERNEL(gather_w2, GatherArgs) { gather<u16>(a); }
KERNEL(gather_w4, GatherArgs) { gather<u32>(a); }
KERNEL(gather_w8, GatherArgs) { gather<u64>(a); }
KERNEL(gather_w16, GatherArgs) { gather<Word16>(a); }

// gather_bits gathers bits, four rows a thread and four words a warp. A null source is all ones, and the id -1 gives 0.
// The result has whole 64-bit words.
KERNEL(gather_bits, GatherArgs) {
    const i64 word = global_thread() / 32 * 4, row = word * 32 + lane_id();
    i32 id[4];
    bool v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) id[k] = row + 32 * k < a.n ? a.ids[row + 32 * k] : -1;
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = id[k] >= 0 && bit(static_cast<const u32*>(a.src), id[k]);
    u32 mine = 0; // lane k writes word k
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const u32 bits = __ballot_sync(ALL, v[k]);
        if (lane_id() == k) mine = bits;
    }
    if (lane_id() < 4 && word + lane_id() < (a.n + 63) / 64 * 2) static_cast<u32*>(a.dst)[word + lane_id()] = mine;
}

// A column of bytes, or a part of one: rows [start, next part's start).
struct TextPart {
    const u8* bytes;
    const i32* offsets;
    const u32* valid; // null: no nulls
    const i32* codes; // of the rows, if bytes and offsets belong to a dictionary
    i64 start;
};

struct GatherTextArgs {
    const TextPart* parts;
    const i32* ids;
    u8* dst;
    i32* out;    // lengths, then offsets of the result
    u32* valid;  // of the result; null: not wanted
    i64 n;
    i32 count;   // of parts
};

// text_part returns the part that has a row.
DEVICE const TextPart& text_part(const GatherTextArgs& a, i32 id) {
    i32 lo = 0, hi = a.count;
    while (hi - lo > 1) {
        i32 mid = (lo + hi) / 2;
        if (a.parts[mid].start <= id) lo = mid;
        else hi = mid;
    }
    return a.parts[lo];
}

// gather_lengths writes lengths and validity. The grid covers whole 64-bit words.
KERNEL(gather_lengths, GatherTextArgs) {
    i64 i = global_thread();
    bool valid = false;
    if (i < a.n) {
        i32 id = a.ids[i], len = 0;
        if (id >= 0) {
            const TextPart& p = text_part(a, id);
            i64 r = id - p.start;
            valid = bit(p.valid, r);
            if (valid && p.codes) r = p.codes[r];
            if (valid) len = p.offsets[r + 1] - p.offsets[r];
        }
        a.out[i] = len;
    }
    u32 word = __ballot_sync(ALL, valid);
    if (a.valid && lane_id() == 0 && i < (a.n + 63) / 64 * 64) a.valid[i >> 5] = word;
}

// A warp copies the bytes of 32 rows, one row after the other.
KERNEL(gather_bytes, GatherTextArgs) {
    i64 i = global_thread(), row = i - lane_id();
    const u8* from = nullptr;
    i32 to = 0, len = 0;
    if (i < a.n) {
        to = a.out[i];
        len = a.out[i + 1] - to;
        if (len) {
            i32 id = a.ids[i];
            const TextPart& p = text_part(a, id);
            i64 r = id - p.start;
            from = p.bytes + p.offsets[p.codes ? p.codes[r] : r];
        }
    }
    for (int l = 0; l < 32 && row + l < a.n; l++) {
        const u8* f = reinterpret_cast<const u8*>(__shfl_sync(ALL, reinterpret_cast<u64>(from), l));
        i32 t = __shfl_sync(ALL, to, l), n = __shfl_sync(ALL, len, l);
        for (i32 k = lane_id(); k < n; k += 32) a.dst[(i64)t + k] = f[k];
    }
}

struct CopyBitsArgs {
    const u32* src; // null: all ones
    u32* dst;       // zero at the copied bits
    i64 from, to, n;
};

// copy_bits copies n bits from bit `from` of src to bit `to` of dst. A thread writes a word.
KERNEL(copy_bits, CopyBitsArgs) {
    i64 w = (a.to >> 5) + global_thread();
    i64 lo = w * 32 > a.to ? w * 32 : a.to, hi = (w + 1) * 32 < a.to + a.n ? (w + 1) * 32 : a.to + a.n;
    if (lo >= hi) return;
    i64 s = a.from + (lo - a.to);
    u32 x = ALL;
    if (a.src) {
        x = a.src[s >> 5] >> (s & 31);
        if ((s & 31) && (s & 31) + (hi - lo) > 32) x |= a.src[(s >> 5) + 1] << (32 - (s & 31));
    }
    if (hi - lo < 32) x &= (1u << (hi - lo)) - 1;
    a.dst[w] |= x << (lo & 31);
}

struct ShiftArgs {
    const i32* src;
    i32* dst;
    i64 n;
    i32 add;
    i32 relative; // subtract src[0]: offsets of a slice
};

KERNEL(shift, ShiftArgs) {
    i64 i = global_thread();
    if (i < a.n) a.dst[i] = a.src[i] + a.add - (a.relative ? a.src[0] : 0);
}

// The codes or values of a compact column, in the width that other kernels read.
struct WidenArgs {
    const void* src;
    void* dst;
    i64 n;
};

template <typename From, typename To> DEVICE void widen(const WidenArgs& a) {
    i64 i = global_thread();
    if (i < a.n) ((To*)a.dst)[i] = ((const From*)a.src)[i];
}

KERNEL(widen_1, WidenArgs) { widen<u8, i32>(a); }
KERNEL(widen_2, WidenArgs) { widen<u16, i32>(a); }
KERNEL(widen_values, WidenArgs) { widen<i32, i64>(a); }

struct EndsArgs {
    const i32* const* values; // pairs of addresses
    i32* out;
    i64 n;
};

// ends reads single values at many addresses.
KERNEL(ends, EndsArgs) {
    i64 i = global_thread();
    if (i < a.n) a.out[i] = *a.values[i];
}

struct MaskArgs {
    const i32* codes;
    const u32* valid;
    i32* ids;
    i64 n;
};

// mask_codes converts codes to row ids, -1 for null rows.
KERNEL(mask_codes, MaskArgs) {
    i64 i = global_thread();
    if (i < a.n) a.ids[i] = bit(a.valid, i) ? a.codes[i] : -1;
}

// read_bytes copies a few bytes to page-locked host memory, by one block. The copy engine for this direction may be
// busy with large copies.
struct ReadBytesArgs {
    const u8* src;
    u8* dst;
    i64 n;
};

KERNEL_BOUNDS(read_bytes, ReadBytesArgs, 256, 1) {
    for (i64 i = threadIdx.x; i < a.n; i += 256) a.dst[i] = a.src[i];
}

// copy_parts copies many byte ranges by one launch. A copy of its own for each range would take longer than its bytes.
// The ranges are in device memory, or the sources are in page-locked host memory. A block copies a chunk of a part.
constexpr i64 COPY_CHUNK = 32768;

struct CopyPart {
    const u8* src;
    u8* dst;
    u32 bytes;
    u32 first; // chunk; the chunks of all parts follow each other
};

struct CopyPartsArgs {
    CopyPart parts[170];
    i64 n;
};

// copy_words copies n words; loads of a thread do not wait for each other. A warp reads whole lines of 128 bytes: each
// part of one is a read of its own over the link.
template <class T>
DEVICE void copy_words(const u8* src, u8* dst, i64 bytes) {
    const T* from = reinterpret_cast<const T*>(src);
    T* to = reinterpret_cast<T*>(dst);
    const i64 n = bytes / static_cast<i64>(sizeof(T));
    i64 i = static_cast<i64>(threadIdx.x) - static_cast<i64>(reinterpret_cast<u64>(src) % 128 / sizeof(T));
    if (i < 0) i += 256;
    for (; i + 3 * 256 < n; i += 4 * 256) {
        T v0 = from[i], v1 = from[i + 256], v2 = from[i + 512], v3 = from[i + 768];
        to[i] = v0, to[i + 256] = v1, to[i + 512] = v2, to[i + 768] = v3;
    }
    for (; i < n; i += 256) to[i] = from[i];
}

KERNEL_BOUNDS(copy_parts, CopyPartsArgs, 256, 4) {
    const u32 chunk = blockIdx.x;
    int p = 0, end = static_cast<int>(a.n);
    while (end - p > 1) {
        const int mid = (p + end) / 2;
        if (a.parts[mid].first <= chunk) p = mid;
        else end = mid;
    }
    const i64 begin = (chunk - a.parts[p].first) * COPY_CHUNK, left = a.parts[p].bytes - begin;
    const i64 n = left < COPY_CHUNK ? left : COPY_CHUNK;
    const u8* src = a.parts[p].src + begin;
    u8* dst = a.parts[p].dst + begin;
    const u64 at = reinterpret_cast<u64>(src) | reinterpret_cast<u64>(dst) | static_cast<u64>(n);
    if (at % 16 == 0) copy_words<Word16>(src, dst, n);
    else if (at % 8 == 0) copy_words<u64>(src, dst, n);
    else if (at % 4 == 0) copy_words<u32>(src, dst, n);
    else copy_words<u8>(src, dst, n);
}
