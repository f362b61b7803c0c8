// Writes what sequences of literals and copies stand for: the second half of decompression, for codecs whose copies
// may reach back to the first byte of a page. All threads of a block work on a page. They take a window of sequences
// at a time. Each byte of the window's output is traced to its source before any is written, so the threads need not
// wait for each other within a window.
#pragma once
#include "pages.cuh"

constexpr int COPY_THREADS = 128, COPIES = 256;

// Copies is a window of sequences: literals, and then a copy of earlier output. Positions count bytes of output from
// the beginning of the page.
struct Copies {
    u32 match[COPIES];    // where the copy begins, and the literals end
    u32 end[COPIES];
    u32 literal[COPIES];  // what, added to the position of a literal, is its position among the literals
    u32 back[COPIES];     // distance of the copy
};

// Literals are bytes of literals. If stride is 0, all are the first one.
struct Literals {
    const u8* at;
    u32 count;
    u32 stride;
    __device__ const u8* source(u32 position) const { return at + (stride ? position : 0); }
};

// copy_at returns the first of count sequences that ends after a position.
DEVICE u32 copy_at(const Copies& c, u32 count, u32 position) {
    u32 k = 0;
    for (u32 d = COPIES / 2; d; d >>= 1)
        if (k + d < count && c.end[k + d - 1] <= position) k += d;
    return k;
}

// copy_source returns the address of the byte at a position, which sequence k writes, among the literals or in the
// output before the window. Each round goes back in the output, so it ends.
DEVICE const u8* copy_source(const Copies& c, u32 k, u32 position, u32 from, const Literals& l, const u8* out) {
    for (;;) {
        u32 match = c.match[k];
        if (position < match) return l.source(c.literal[k] + position);
        u32 back = c.back[k], inside = position - match;
        if (inside >= back) inside %= back;
        position = match - back + inside;
        if (position < from) return out + position;
        k = copy_at(c, k + 1, position);
    }
}

// copy_window writes the output of count sequences, which begins at from. The distances of copies are positive and
// at most the position of the copy. The call of a thread has its number among the threads that copy.
DEVICE void copy_window(const Copies& c, u32 count, u32 from, const Literals& l, u8* out, u32 thread, u32 threads) {
    u32 to = c.end[count - 1];
    for (u32 i = (from & ~3u) + 4 * thread; i < to; i += 4 * threads) {
        u32 position = max(i, from), end = min(i + 4, to);
        u32 k = copy_at(c, count, position);
        if (end - position == 4 && l.stride && c.end[k] >= end) { // one piece of output with one source
            u32 match = c.match[k], back = c.back[k], inside = position - match;
            u32 literal = c.literal[k] + position;
            if (end <= match && literal + 8 <= l.count) {
                *(u32*)(out + i) = load32(l.at + literal);
                continue;
            }
            if (position >= match && inside + 4 <= back && position - back + 8 <= from) {
                *(u32*)(out + i) = load32(out + position - back);
                continue;
            }
        }
        u32 word = 0;
        for (u32 j = position; j < end; j++) {
            while (c.end[k] <= j) k++;
            word |= (u32)*copy_source(c, k, j, from, l, out) << 8 * (j - i);
        }
        if (end - position == 4) {
            *(u32*)(out + i) = word;
            continue;
        }
        for (u32 j = position; j < end; j++) out[j] = (u8)(word >> 8 * (j - i));
    }
}

// copy_literals writes all literals from position to on.
DEVICE void copy_literals(u8* out, u32 to, const Literals& l) {
    u32 end = to + l.count;
    for (u32 i = (to & ~3u) + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
        if (l.stride && i >= to && i - to + 8 <= l.count) {
            *(u32*)(out + i) = load32(l.at + i - to);
            continue;
        }
        for (u32 j = max(i, to); j < min(i + 4, end); j++) out[j] = *l.source(j - to);
    }
}
