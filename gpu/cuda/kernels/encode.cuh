// Layouts of encode.go, and what the kernels of encode.cu and encode_text.cu have in common.
//
// load32 reads whole words, and so up to 3 bytes after the last byte that is used. Whoever writes bytes of a page
// clears these.
#pragma once
#include "common.cuh"

struct EncodePart {
    const u8* data;      // of strings: codes of their dictionary; null without a dictionary
    const u32* valid;    // null if no row is null
    const i32* offsets;  // of strings: those of the rows, or those of the dictionary
    const u8* chars;
    i64 from;            // the first row
    i32 row;             // the row of the chunk that it becomes
    i32 rows;
    i32 entries;         // the number of strings that offsets has
    i32 bytes;           // of chars
};

struct EncodeChunk {
    const EncodePart* parts;
    u64* keys;     // the hash table, and one more slot for EMPTY
    u32* firsts;   // the first position of each slot's value, at first ALL
    u32* codes;    // the code of each slot
    u32* marks;    // positions at which a value appears first, at first zero
    u32* before;   // of each word of marks: the values that appear before
    u32* order;    // of each code of a hash, the position at which it appears first
    u8* entries;   // the dictionary page
    const u32* places;    // of strings, see TextChunk
    const u64* segments;
    i64 scale;     // what values are multiplied by
    i32 part_count, rows;
    i32 from_width, width;  // bytes of a value in the column and in the file
    i32 form;
    i32 nullable;
    i32 delta;     // integers may be written as differences
    i32 split;     // floats are written as streams of bytes
    i32 page, pages;
    i32 dictionary;  // the page that is the dictionary; -1: the chunk may not have one
    i32 log_slots;
    i32 page_rows;
    i32 capacity;  // bytes of entries
    i32 filter;    // the number of its Bloom filter; negative: none
    i32 unused;
};

// Form is the order of values and, for integers, how they get wider. ENCODE_STRINGS are strings with a dictionary. A
// hash of eight bytes takes the place of their values; a string that differs from another of the same hash is left to
// the CPU. ENCODE_TEXTS are strings without a dictionary. ENCODE_WIDE and ENCODE_UNSIGNED_WIDE are values of 16 bytes
// in the file, the highest byte first; a hash stands for them in a dictionary, too. ENCODE_BOOLS are bits.
enum EncodeForm {
    ENCODE_SIGNED,
    ENCODE_UNSIGNED,
    ENCODE_FLOAT,
    ENCODE_STRINGS,
    ENCODE_TEXTS,
    ENCODE_WIDE,
    ENCODE_UNSIGNED_WIDE,
    ENCODE_BOOLS
};

struct ChunkState {
    u32 nulls;
    u32 bad;       // a value does not fit, or is null and may not be
    u32 distinct;
    u32 full;      // a dictionary does not pay off
};

struct EncodePage {
    u8* dense;     // values of the rows that are not null, or their hashes
    u8* wide;      // values of 16 bytes
    u8* body;
    u32* bits;     // validity of the rows
    u32* slots;    // of each value, its slot
    u32* groups;   // scratch of runs: three numbers for each eight values, and three more
    u64* strings;  // of each value that is a string: its address and its length
    u32* lengths;
    u8* bounds;    // the least and the greatest string or value of 16 bytes, each after its length
    i32 chunk;
    i32 row, rows; // rows of the chunk; no rows for a dictionary
    i32 part;      // the part of the first row
    i32 piece, pieces;
    u32 bytes;     // of ENCODE_TEXTS, with their lengths
    i32 unused;
};

struct PageResult {
    u64 least, most;  // in an order of unsigned numbers
    u32 raw, size;    // bytes of the body, before and after compression
    u32 checksum;
    u32 nulls;
    u32 unbounded;    // a value has no order
    u32 deltas;       // bytes of the differences
};

struct Piece {
    i32 page, index;
};

struct PieceResult {
    u32 size, checksum;
    u32 at;           // in the page
};

// Joint is what the neighbours of a piece have to know about it in LZ4, see encode_lz4.cu.
struct Joint {
    u32 front;      // bytes of the slot: up to the end of the last match, but for the token of the first one
    u32 front_sum;  // their checksum
    u32 lead;       // literals before the first match, or all bytes
    u32 match;      // the length of the first match in its token; ALL if there is no match
    u32 tail;       // literals after the last match
    u32 tail_sum;   // their checksum
    u32 run;        // literals of the run that begins in the piece
    u32 next;       // the length of the match after it in its token; ALL if no run begins in the piece
};

struct EncodeArgs {
    const EncodeChunk* chunks;
    ChunkState* states;
    const EncodePage* pages;
    PageResult* results;
    const Piece* pieces;
    PieceResult* ends;
    u8* packed;            // a slot for each piece; null without compression
    Joint* joints;         // of each piece, for LZ4
    u8* scratch;           // of each warp of encode_zstd
    u32* next;             // the number of pieces that warps have taken
    u8* out;
    const i64* places;     // of each page in out; negative: it is not written
    const Piece* runs;     // of TEXT_RUN rows of pages of ENCODE_TEXTS
    const u32* checksums;  // 4 × 256 numbers to find a checksum, then 32 to move it
    u64 multiplier;        // odd
    i32 count;             // of chunks, of pages with rows, or of pieces
    i32 all_pages;
    i32 slot;              // bytes of a slot in packed
    i32 unused;
};

constexpr int ENCODE_THREADS = 256, ENCODE_WARPS = ENCODE_THREADS / 32;
constexpr u64 EMPTY = ~0ull;
constexpr u32 PIECE = 64 << 10;
constexpr u32 BOUND = 72; // bytes of the bound of a string that the host gets

// The rules of the CPU's encoder: a dictionary has a value in five at most, and of a sample, 32 must repeat.
constexpr u32 FEW_REPEATS = 32;

DEVICE u32 load32(const u8* p) {
    const u32* w = (const u32*)((u64)p & ~3ull);
    u32 shift = ((u64)p & 3) * 8;
    return shift ? (u32)((w[0] | (u64)w[1] << 32) >> shift) : w[0];
}

DEVICE u32 put_uvarint(u8* p, u64 v) {
    u32 n = 0;
    for (; v >= 128; v >>= 7) p[n++] = (u8)v | 128;
    p[n++] = (u8)v;
    return n;
}

DEVICE u32 uvarint_size(u64 v) { return v ? (63 - __clzll(v)) / 7 + 1 : 1; }

DEVICE u64 zigzag(i64 v) { return (u64)v << 1 ^ (u64)(v >> 63); }

DEVICE void put32(u8* p, u32 v) {
    for (int k = 0; k < 4; k++) p[k] = v >> 8 * k;
}

// clear_after clears the bytes that load32 reads after the last one.
DEVICE void clear_after(u8* end) {
    for (int k = 0; k < 3; k++) end[k] = 0;
}

DEVICE u64 plain(const u8* values, i32 width, i32 i) {
    return width == 4 ? ((const u32*)values)[i] : ((const u64*)values)[i];
}

// put_values copies values. dst has any address.
DEVICE void put_values(u8* dst, const u8* src, u32 bytes) {
    u32 head = min((u32)(-(u64)dst & 3), bytes), words = (bytes - head) / 4;
    if (threadIdx.x < head) dst[threadIdx.x] = src[threadIdx.x];
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) ((u32*)(dst + head))[i] = load32(src + head + 4 * i);
    u32 i = head + 4 * words + threadIdx.x;
    if (i < bytes) dst[i] = src[i];
}

struct Text {
    const u8* bytes;
    u32 length;
};

// text_of finds the string of a row of a part. It returns false for a row that has none in the memory of the part.
DEVICE bool text_of(const EncodePart& q, i64 row, Text& t) {
    i64 i = q.data ? ((const u32*)q.data)[row] : row;
    if (i >= q.entries) return false;
    i32 from = q.offsets[i], to = q.offsets[i + 1];
    if (from < 0 || from > to || to > q.bytes) return false;
    t = {q.chars + from, (u32)(to - from)};
    return true;
}

// row_text finds the string of a row. k is the part of an earlier row, and becomes that of the row. It returns false
// for a null; lost is set if the row has no string in memory.
DEVICE bool row_text(const EncodePart* parts, i32 count, i32& k, i32 row, Text& t, bool& lost) {
    while (k + 1 < count && parts[k + 1].row <= row) k++;
    const EncodePart& q = parts[k];
    i64 at = q.from + (row - q.row);
    if (!bit(q.valid, at)) return false;
    if (text_of(q, at, t)) return true;
    lost = true;
    return false;
}

// part_of returns the number of the part that has a row of a chunk.
DEVICE i32 part_of(const EncodePart* parts, i32 count, i32 row) {
    i32 lo = 0, hi = count - 1;
    while (lo < hi) {
        i32 middle = lo + (hi - lo + 1) / 2;
        if (parts[middle].row <= row)
            lo = middle;
        else
            hi = middle - 1;
    }
    return lo;
}

// load64 reads eight bytes of the n that follow p, and touches no others.
DEVICE u64 load64(const u8* p, u32 n) {
    if (n >= 11 || (n >= 8 && ((u64)p & 3) == 0)) return load32(p) | (u64)load32(p + 4) << 32;
    u64 word = 0;
    for (u32 k = 0; k < 8 && k < n; k++) word |= (u64)p[k] << 8 * k;
    return word;
}

DEVICE u64 string_hash(const Text& t, u64 seed) {
    u64 h = seed ^ t.length;
    for (u32 i = 0; i < t.length; i += 8) {
        h = (h ^ load64(t.bytes + i, t.length - i)) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 32;
    }
    return h == EMPTY ? 0 : h;
}

DEVICE i32 compare(const Text& x, const Text& y) {
    if (x.bytes != y.bytes)
        for (u32 i = 0; i < x.length && i < y.length; i++)
            if (x.bytes[i] != y.bytes[i]) return (i32)x.bytes[i] - (i32)y.bytes[i];
    return x.length < y.length ? -1 : x.length > y.length;
}

DEVICE bool is_wide(const EncodeChunk& c) { return c.form == ENCODE_WIDE || c.form == ENCODE_UNSIGNED_WIDE; }

// reversed reverses the order of bytes.
DEVICE u64 reversed(u64 v) {
    return (u64)__byte_perm((u32)v, 0, 0x0123) << 32 | __byte_perm((u32)(v >> 32), 0, 0x0123);
}

// levels_size returns the bytes of the definition levels of a page.
DEVICE u32 levels_size(u32 rows, u32 nulls) {
    if (nulls == 0) return 4 + uvarint_size((u64)rows << 1) + 1;
    u32 groups = (rows + 7) / 8;
    return 4 + uvarint_size((u64)groups << 1 | 1) + groups;
}
