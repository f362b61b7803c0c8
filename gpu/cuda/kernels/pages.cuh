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

constexpr int MOST_GROUPED = 8;

// Group is the arguments of a kernel for several strides. Blocks up to ends[i] are those of stride i.
template <class A>
struct Group {
    A of[MOST_GROUPED];
    u32 ends[MOST_GROUPED];
};

// member returns the arguments for the stride of this block, and the block's number in it.
template <class A>
DEVICE const A& member(const Group<A>& group, u32& block) {
    u32 k = 0, before = 0;
    while (blockIdx.x >= group.ends[k]) before = group.ends[k++];
    block = blockIdx.x - before;
    return group.of[k];
}

struct PagesArgs {
    const Page* pages;
    const PageColumn* columns;
    PageStatus* status;  // of each column
    i32 first;           // the page of the first block
    i32 unused;
};

using PagesGroup = Group<PagesArgs>;

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
        if (i + 8 <= n && !(load64(s + i) & 0x8080808080808080)) {
            i += 8;
            continue;
        }
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
constexpr int OWN = 128;                   // bytes of a tile that a thread looks at
constexpr int TILE = OWN * PAGE_THREADS;   // bytes in which a block finds strings
constexpr int STARTS = 4096;               // of these bytes, those where a string may begin
constexpr int WORDS = OWN / 32;            // of bits, one for each of these bytes

// Strings is shared memory in which a block finds the strings of a chunk.
struct Strings {
    u32 value[CHUNK];              // position of each
    i32 length[CHUNK];
    i32 at, found;
    u32 wide;                      // they may have bytes that are not ASCII
    u32 starts[TILE / 32];         // a bit for each byte of the tile where a string may begin
    u16 before[TILE / 32];         // starts before these
    u16 next[2][STARTS];           // of each start, the start to which a walk from string to string leads
    u16 walk[CHUNK];               // the starts where strings begin, in order
    i32 strings;                   // how many these are
    i32 sums[33];
    bool ok;
};

// zero_bytes returns a bit for each byte of a word that is zero.
DEVICE u32 zero_bytes(u32 v) {
    u32 zero = ~((v & 0x7f7f7f7f) + 0x7f7f7f7f | v | 0x7f7f7f7f);
    return zero >> 7 & 1 | zero >> 14 & 2 | zero >> 21 & 4 | zero >> 28 & 8;
}

// string_starts writes a bit for each byte of the thread's part of a tile whose string may begin there: those with
// upper bytes of the length that are zero. Longer strings end behind the tile. A string begins at the byte `first`, and
// none begins before it, or so late that the length has no room. It returns the number of bits.
DEVICE i32 string_starts(Strings& s, const u8* tile, i32 first, i32 size) {
    i32 own = threadIdx.x * OWN;
    u64 zero = 0; // of the bytes from 32 × word on
    u32 wide = 0;
    i32 count = 0;
    for (int word = 0; word <= WORDS; word++) {
        i32 at = own + word * 32;
        u32 bits = 0;
        for (int half = 0; half < (word < WORDS ? 2 : 1); half++) {
            uint4 v = {0, 0, 0, 0};
            if (at + half * 16 < size) v = *(const uint4*)(tile + at + half * 16);
            bits |= (zero_bytes(v.x) | zero_bytes(v.y) << 4 | zero_bytes(v.z) << 8 | zero_bytes(v.w) << 12) << 16 * half;
            if (word < WORDS) wide |= v.x | v.y | v.z | v.w;
        }
        zero |= (u64)bits << 32;
        if (word > 0) {
            i32 from = at - 32, room = size - 3 - from; // bytes where a length fits
            u32 starts = room <= 0 ? 0 : (u32)(zero >> 2 & zero >> 3) & ALL >> max(32 - room, 0);
            if (from == 0) starts = starts >> first << first | 1u << first;
            s.starts[from / 32] = starts;
            count += __popc(starts);
        }
        zero >>= 32;
    }
    if (__any_sync(ALL, wide & 0x80808080) && lane_id() == 0) atomicOr(&s.wide, 1u);
    return count;
}

// take_strings finds the next n ≤ CHUNK PLAIN strings from s.at on, and writes the position of each
// in the body to s.value and its length to s.length. A block does so by tiles of the body: it marks where strings may
// begin, and finds by pointer doubling where a walk from length to length does come by. If no byte of these strings has
// its highest bit set, they are ASCII.
DEVICE bool take_strings(Strings& s, const u8* body, i32 bytes, i32 n) {
    u32 me = threadIdx.x;
    if (me == 0) s.found = s.wide = 0;
    for (;;) {
        __syncthreads();
        i32 found = s.found, first = (i32)((u64)(body + s.at) & 15), base = s.at - first; // of the tile
        if (found == n) return true;
        if (bytes - s.at < 4) return false;
        const u8* tile = body + base;
        i32 size = min(bytes - base, TILE), count, own = string_starts(s, tile, first, size);
        i32 before = block_exclusive(own, s.sums, count);
        if (count > STARTS) {
            size = STARTS;
            own = string_starts(s, tile, first, size);
            before = block_exclusive(own, s.sums, count);
        }
        i32 k = before;
        for (int word = 0; word < WORDS; word++) {
            s.before[me * WORDS + word] = (u16)k;
            k += __popc(s.starts[me * WORDS + word]);
        }
        if (me == 0) s.ok = true;
        __syncthreads();
        k = before;
        for (int word = 0; word < WORDS; word++)
            for (u32 left = s.starts[me * WORDS + word]; left; left &= left - 1, k++) {
                i32 at = me * OWN + word * 32 + __ffs(left) - 1;
                u32 length = load32(tile + at), end = at + 4 + length;
                u32 there = s.starts[min(end, (u32)TILE - 1) / 32], bit = 1u << end % 32;
                // A walk ends with a string that the tile does not have in whole, or after which none may begin.
                bool goes = length < TILE && end < (u32)size && there & bit;
                s.next[0][k] = goes ? s.before[end / 32] + __popc(there & (bit - 1)) : k;
            }
        if (me == 0) s.walk[0] = 0;
        __syncthreads();
        // A round doubles the steps of the walk that are known. A walk that has come to its end stays there. Loops over
        // steps are not unrolled: that would take more registers than there are.
        int now = 0;
        i32 known = 1;
        for (bool more = true; more; now = !now) {
#pragma unroll 1
            for (i32 i = me; i < known; i += PAGE_THREADS) s.walk[known + i] = s.next[now][s.walk[i]];
            known *= 2;
            for (i32 i = me; i < count; i += PAGE_THREADS) {
                u32 start = s.next[now][i], twice = s.next[now][start];
                s.next[!now][i] = twice;
                if (i == 0) more = twice != start && known < CHUNK;
            }
            more = __syncthreads_or(more && me == 0);
        }
        // s.next[0] becomes the step to each start of the walk.
#pragma unroll 1
        for (i32 i = me; i < known; i += PAGE_THREADS) {
            u32 start = s.walk[i];
            if (i > 0 && s.walk[i - 1] == start) continue;
            s.next[0][start] = (u16)i;
            if (i + 1 == known || s.walk[i + 1] == start) s.strings = i + 1;
        }
        __syncthreads();
        i32 to = min(s.strings, n - found);
        k = before;
        for (int word = 0; word < WORDS; word++)
            for (u32 left = s.starts[me * WORDS + word]; left; left &= left - 1, k++) {
                i32 step = s.next[0][k];
                if (step >= to || s.walk[step] != k) continue;
                i32 at = base + me * OWN + word * 32 + __ffs(left) - 1;
                u32 length = load32(body + at);
                bool fits = length <= (u32)(bytes - at - 4), inside = fits && at + 4 + (i32)length <= base + size;
                if (!fits || !inside && step > 0) { // a later tile has it
                    s.ok = fits;
                    s.found = found + step;
                    s.at = at;
                    continue;
                }
                if (!inside) s.wide = 1; // not all its bytes were looked at
                s.value[found + step] = at + 4;
                s.length[found + step] = (i32)length;
                if (step + 1 == to) {
                    s.found = found + to;
                    s.at = at + 4 + (i32)length;
                }
            }
        __syncthreads();
        if (!s.ok) return false;
    }
}
