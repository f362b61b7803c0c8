// Writes what sequences of literals and copies stand for: the second half of decompression, for codecs whose copies
// may reach back to the first byte of a page. All threads of a block work on a page. They take a window of sequences at
// a time, and a tile of its output: each byte of the tile is a literal, a byte before the tile, or the same as an
// earlier byte of the tile. Pointer doubling finds the last kind, however long the chains of copies are.
#pragma once
#include "pages.cuh"

// The threads of a block, the most sequences of a window, and the bytes of a tile, unless a codec has its own.
constexpr int COPY_THREADS = 128, COPIES = 256;
constexpr u32 COPY_TILE = 4096;

// Copies is a window of sequences: literals, and then a copy of earlier output. Positions count bytes of output from
// the beginning of the page.
template <u32 MOST = COPIES>
struct Copies {
    u32 match[MOST];    // where the copy begins, and the literals end
    u32 end[MOST];
    u32 literal[MOST];  // what, added to the position of a literal, is its position among the literals
    u32 back[MOST];     // distance of the copy
};

// Literals are bytes of literals. If stride is 0, all are the first one.
struct Literals {
    const u8* at;
    u32 count;
    u32 stride;
    __device__ const u8* source(u32 position) const { return at + (stride ? position : 0); }
};

// copy_at returns the first of count sequences that ends after a position.
template <u32 MOST>
DEVICE u32 copy_at(const Copies<MOST>& c, u32 count, u32 position) {
    u32 k = 0;
    for (u32 d = MOST / 2; d; d >>= 1)
        if (k + d < count && c.end[k + d - 1] <= position) k += d;
    return k;
}

// Copied is what the bytes of a tile of output are: a byte with bit KNOWN, or the position in the tile of an earlier
// byte that is the same.
constexpr u32 KNOWN = 0x8000;

template <u32 TILE = COPY_TILE>
struct Copied {
    __align__(8) u16 now[TILE];
    __align__(8) u16 next[TILE];
};

// known4 returns four bytes of a word as they are in Copied.
DEVICE u64 known4(u32 v) {
    u64 low = (v & 0xff) | (v << 8 & 0xff0000), high = (v >> 16 & 0xff) | (v >> 8 & 0xff0000);
    return low | high << 32 | 0x8000800080008000ull;
}

// trace writes what the bytes of output in [from, to) are, of which sequence k writes the first one. The tile begins at
// begin, and its first byte of output is at base. It returns whether some bytes are not known.
template <u32 MOST>
DEVICE bool trace(const Copies<MOST>& c, u32 k, u32 from, u32 to, u32 begin, u32 base, const Literals& l,
                  const u8* out, u16* tile) {
    if (to - from == 4 && c.end[k] >= to) { // one sequence
        u32 match = c.match[k], literal = c.literal[k] + from, back = c.back[k];
        if (to <= match && l.stride && literal + 8 <= l.count) {
            *(u64*)(tile + (from - begin)) = known4(load32(l.at + literal));
            return false;
        }
        if (from >= match && to - match <= back && from - back + 8 <= base) {
            *(u64*)(tile + (from - begin)) = known4(load32(out + from - back));
            return false;
        }
    }
    bool open = false;
    for (u32 i = from; i < to; i++) {
        while (c.end[k] <= i) k++;
        u32 match = c.match[k], v;
        if (i < match) {
            v = KNOWN | *l.source(c.literal[k] + i);
        } else {
            u32 back = c.back[k], inside = i - match;
            if (inside >= back) inside %= back;
            u32 source = match - back + inside;
            bool known = source < base;
            v = known ? KNOWN | out[source] : source - begin;
            open = open || !known;
        }
        tile[i - begin] = v;
    }
    return open;
}

// copy_window writes the output of count sequences, which begins at from. The distances of copies are positive and
// at most the position of the copy. All threads of a block call it. If busy, the first warp does other work at first.
template <int THREADS = COPY_THREADS, u32 MOST, u32 TILE, class Work>
DEVICE void copy_window(const Copies<MOST>& c, u32 count, u32 from, const Literals& l, u8* out, Copied<TILE>& t,
                        bool busy, Work work) {
    u32 to = c.end[count - 1];
    for (u32 begin = from & ~3u; begin < to || busy; begin += TILE) {
        u32 base = max(begin, from), end = min(begin + TILE, to), skip = busy ? 32 : 0;
        bool open = false;
        if (threadIdx.x < skip) {
            work();
        } else {
            for (u32 i = begin + 4 * (threadIdx.x - skip); i < end; i += 4 * (THREADS - skip)) {
                u32 first = max(i, base);
                open = trace(c, copy_at(c, count, first), first, min(i + 4, end), begin, base, l, out, t.now) || open;
            }
        }
        busy = false;
        // Each round halves the distance to a byte that is known.
        u16 *now = t.now, *next = t.next;
        while (__syncthreads_or(open)) {
            open = false;
            for (u32 i = base - begin + threadIdx.x; i < end - begin; i += THREADS) {
                u32 v = now[i];
                if (!(v & KNOWN)) v = now[v];
                open = open || !(v & KNOWN);
                next[i] = v;
            }
            u16* swap = now;
            now = next;
            next = swap;
        }
        for (u32 i = begin + 4 * threadIdx.x; i < end; i += 4 * THREADS) {
            if (i >= base && i + 4 <= end) {
                u64 v = *(const u64*)(now + (i - begin));
                u32 low = (u32)v, high = (u32)(v >> 32);
                low = (low & 0xff) | (low >> 8 & 0xff00);
                high = (high & 0xff) | (high >> 8 & 0xff00);
                *(u32*)(out + i) = low | high << 16;
                continue;
            }
            for (u32 j = max(i, base); j < min(i + 4, end); j++) out[j] = (u8)now[j - begin];
        }
        __syncthreads();
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
