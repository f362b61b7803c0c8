// What the kernels that decode pages of Parquet files share: the layouts of pages.go, and loads of bytes.
//
// load32 and load64 read up to 8 bytes after the last byte of a page, and never use these
// bytes. All buffers of pages are that much longer.
#pragma once
#include "common.cuh"

// The layouts of pages.go.
struct Page {
    const u8* src;      // the bytes of the page after its header: levels, then the body
    u8* body;           // the body without compression
    const u8* dict;     // values of the dictionary, or addresses of its strings
    const i32* lengths; // of the strings of the dictionary
    i64 row;            // the row of the column of the first row to take
    i32 size;           // bytes at src
    i32 raw;            // bytes at body
    i32 levels;         // bytes of levels at src, or LEVELS_IN_BODY
    i32 values;         // values and nulls
    i32 skip, rows;     // take the rows [skip, skip + rows)
    i32 entries;        // values of the dictionary
    i32 base;           // what is added to codes that are kept
    i32 column;
    i32 coded;
    i32 dictionary;     // the column of its dictionary, or its own
    i32 unused;
};

struct PageColumn {
    u8* out;          // values, codes, or lengths of strings
    u64* strings;     // addresses of strings
    u32* valid;       // zero at first; null if there are no nulls
    i64 least, most;  // bounds of values
    i32 stored;       // bytes of a PLAIN value
    i32 width;        // bytes of a value of the column
    i32 form;
    i32 text;         // strings must be valid UTF-8
};

enum PageForm { FORM_VALUES, FORM_CODES, FORM_STRINGS, FORM_BITS };

// Coded says what the values of a page are: PLAIN; codes; an array that pages_convert has made, at dict, of which entry
// i is value i; or such an array with as many entries as the page has values.
enum Coded { PAGE_PLAIN, PAGE_CODED, PAGE_ARRAY, PAGE_ALL };

struct PageStatus {
    u32 bad;
    u32 nulls;
    u64 bytes;  // of strings
};

struct PagesArgs {
    const Page* pages;
    const PageColumn* columns;
    PageStatus* status;  // of each column
    i32 first;           // the page of the first block
    i32 unused;
};

constexpr i32 LEVELS_IN_BODY = -1;
constexpr u32 SLACK = 16; // bytes after a page that kernels may read
constexpr int PAGE_THREADS = 256, PAGE_WARPS = PAGE_THREADS / 32;

// load32 and load64 load from any address.
DEVICE u32 load32(const u8* p) {
    const u32* w = (const u32*)((u64)p & ~3ull);
    u32 shift = ((u64)p & 3) * 8;
    return (u32)((w[0] | (u64)w[1] << 32) >> shift);
}

DEVICE u64 load64(const u8* p) { return load32(p) | (u64)load32(p + 4) << 32; }

DEVICE void mark_bad(PageStatus& status) { atomicOr(&status.bad, 1u); }

// uvarint reads a number of at most 32 bits at p and moves p behind it. It returns false
// if the bytes before end are none.
DEVICE bool uvarint(const u8*& p, const u8* end, u32& v) {
    u64 n = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (p >= end) return false;
        u8 b = *p++;
        n |= (u64)(b & 127) << shift;
        if (!(b & 128)) {
            v = (u32)n;
            return n >> 32 == 0;
        }
    }
    return false;
}

// valid_utf8 reports whether a string is valid UTF-8.
DEVICE bool valid_utf8(const u8* s, i32 n) {
    for (i32 i = 0; i < n;) {
        u32 b = s[i];
        if (b < 0x80) {
            i++;
            continue;
        }
        i32 more = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : 1;
        if (b < 0xc2 || b > 0xf4 || i + more >= n) return false;
        u32 second = s[i + 1], least = 0x80, most = 0xbf;
        if (b == 0xe0) least = 0xa0;
        if (b == 0xed) most = 0x9f;
        if (b == 0xf0) least = 0x90;
        if (b == 0xf4) most = 0x8f;
        if (second < least || second > most) return false;
        for (i32 k = 2; k <= more; k++)
            if ((s[i + k] & 0xc0) != 0x80) return false;
        i += more + 1;
    }
    return true;
}

constexpr int CHUNK = 1024;  // values of a page that a block decodes at a time
constexpr int TILE = 8192;   // bytes in which one thread finds strings

// Strings is shared memory in which a block finds the strings of a chunk.
struct Strings {
    u32 value[CHUNK];   // position of each
    i32 length[CHUNK];
    i32 at, found;
    u32 wide;           // they may have bytes that are not ASCII
    __align__(4) u8 tile[TILE + 16];
    bool ok;
};

// take_strings finds the next n ≤ CHUNK PLAIN strings from s.at on, and writes the position of each
// in the body to s.value and its length to s.length. One thread walks from length to length in a tile of
// the body that all threads have loaded. If no byte that they load has its highest bit set, the strings are ASCII.
DEVICE bool take_strings(Strings& s, const u8* body, i32 bytes, i32 n) {
    if (threadIdx.x == 0) s.found = s.wide = 0;
    for (;;) {
        __syncthreads();
        if (s.found == n) return true;
        i32 base = s.at, size = min(bytes - base, TILE);
        if (size < 4) return false;
        const u8* from = body + base;
        u32 wide = 0;
        for (i32 i = threadIdx.x * 4; i < size; i += PAGE_THREADS * 4) {
            u32 v = load32(from + i);
            *(u32*)(s.tile + i) = v;
            wide |= v;
        }
        if (__any_sync(ALL, wide & 0x80808080) && lane_id() == 0) atomicOr(&s.wide, 1u);
        __syncthreads();
        if (threadIdx.x == 0) {
            i32 at = 0, found = s.found;
            s.ok = true;
            while (found < n && at + 4 <= size) {
                u32 length = load32(s.tile + at);
                if (length > (u32)(bytes - base - at - 4)) {
                    s.ok = false;
                    break;
                }
                s.value[found] = base + at + 4;
                s.length[found++] = length;
                at += 4 + length;
            }
            if (at > size) s.wide = 1; // not all bytes of the last string were loaded
            s.at = base + at;
            s.found = found;
        }
        __syncthreads();
        if (!s.ok) return false;
    }
}
