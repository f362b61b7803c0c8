// What the compressors of pieces have in common: finding matches, and the checksum of what they write.
#pragma once
#include "checksum.cuh"
#include "encode.cuh"

constexpr int HASH_LOG = 12, PIECE_WARPS = 4;

DEVICE u32 load_checked(const u8* in, u32 i, u32 n) { return i + 4 <= n ? load32(in + i) : 0; }

// copy_bytes copies bytes with the lanes of a warp.
DEVICE void copy_bytes(u8* to, const u8* from, u32 n) {
    for (u32 i = lane_id(); i < n; i += 32) to[i] = from[i];
}

// Prices are about the bits that output takes, times 256.
struct Prices {
    u32 literal, match;
    u32 repeat;    // of a match at the distance of the last one
    bool offsets;  // a match takes the bits of its offset, too
};

// longer returns how many of the eight bytes after four equal ones are equal.
DEVICE u32 longer(const u8* base, u32 pos, u32 back, u32 n) {
    u32 length = 0;
    for (u32 i = pos + 4; i + 4 <= n && length < 8; i += 4) {
        u32 x = load32(base + i) ^ load32(base + i - back);
        if (x) return length + (__ffs(x) - 1) / 8;
        length += 4;
    }
    return length;
}

// choose returns whether the best match at a position pays off, and a match at none of the next positions does so
// more. All lanes call it for positions in a row. far and near say that four bytes match at distances `back` and `last`.
// back becomes the better one.
DEVICE bool choose(const Prices& c, const u8* base, u32 pos, u32 n, bool far, bool near, u32& back, u32 last) {
    i32 gain = 0;
    if (far) {
        u32 price = c.match + (c.offsets ? 256 * (31 - __clz(back)) : 0);
        gain = (i32)((4 + longer(base, pos, back, n)) * c.literal - price);
    }
    if (near) {
        i32 other = (i32)((4 + longer(base, pos, last, n)) * c.literal - c.repeat);
        if (!far || other >= gain) {
            gain = other;
            back = last;
        }
    }
    bool best = gain > 0;
    for (u32 k = 1; k <= 4; k++) {
        i32 later = __shfl_down_sync(ALL, gain, k) - (i32)(k * c.literal);
        if (lane_id() + k < 32 && later > gain) best = false;
    }
    return best;
}

// find_matches finds four and more bytes of n ≤ PIECE that appear earlier, in these bytes or in `history` bytes before
// them. It calls f(from, start, offset, length) for each match, whose bytes are also offset bytes before: bytes
// [from, start) come before it, and are in no match. It returns where the last match ends. Matches start before
// `starts`, at least three bytes before the end, and end by `ends`. All lanes of a warp take part. Each lane looks for
// the four bytes at one of the next 32 positions in the table of earlier positions, or at the distance of the last
// match, which at first is the width of a value. Matches grow in both directions. With CHOOSE, prices say which ones to
// take; otherwise the first ones are taken.
template <bool CHOOSE, class F>
DEVICE u32 find_matches(const Prices& prices, const u8* in, u32 n, u32 history, u32 starts, u32 ends, u16* table,
                        u32 last, F&& f) {
    const u8* base = in - history;
    u32 lane = lane_id(), at = 0, literal = history;
    n += history;
    starts += history;
    ends += history;
    for (u32 i = lane; i < 1 << HASH_LOG; i += 32) table[i] = 0;
    __syncwarp();
    while (at < starts) {
        u32 pos = at + lane, back = 0;
        bool inside = pos < starts, ok = false;
        u32 v = load_checked(base, pos, n), h = v * 0x9E3779B1u >> (32 - HASH_LOG);
        if (inside) back = (u16)(pos - table[h]);
        __syncwarp();
        // The last of several positions stays in the table, so that the output does not depend on the order of stores.
        u32 peers = __match_any_sync(ALL, inside ? h : ALL);
        if (inside && peers >> lane == 1) table[h] = (u16)pos;
        __syncwarp();
        if (at + 32 <= history) {
            at += 32;
            continue;
        }
        bool far = false, near = false;
        if (inside && pos >= literal) {
            far = back - 1 < pos && load32(base + pos - back) == v;
            near = last && last <= pos && load32(base + pos - last) == v;
        }
        if (CHOOSE) {
            ok = choose(prices, base, pos, n, far, near, back, last);
        } else {
            ok = far || near;
            if (near) { // unless the table has a longer one
                u32 fifth = pos + 4 < n ? base[pos + 4] : 256;
                if (!far || base[pos - back + 4] != fifth || base[pos - last + 4] == fifth) back = last;
            }
        }
        u32 found = __ballot_sync(ALL, ok);
        while (found) {
            u32 k = __ffs(found) - 1, start = at + k, length = 4;
            last = __shfl_sync(ALL, back, k);
            // Loads in both directions are under way together.
            const u8 *after = base + start + lane, *before = base + start - lane;
            u32 free = min(start - literal, start - last);
            u8 x = start + 4 + lane < ends ? after[4] : 0, y = start + 4 + lane < ends ? (after - last)[4] : 1;
            u8 left = lane < free ? before[-1] : 0, other = lane < free ? (before - last)[-1] : 1;
            u32 same = __ballot_sync(ALL, x == y);
            length += same == ALL ? 32 : __ffs(~same) - 1;
            while (same == ALL) {
                u32 i = start + length + lane;
                same = __ballot_sync(ALL, i < ends && base[i] == base[i - last]);
                length += same == ALL ? 32 : __ffs(~same) - 1;
            }
            same = __ballot_sync(ALL, left == other);
            u32 more = same == ALL ? 32 : __ffs(~same) - 1;
            f(literal - history, start - more - history, last, length + more);
            literal = start + length;
            found = literal - at >= 32 ? 0 : found & ALL << (literal - at);
        }
        at = max(at + 32, literal);
    }
    return literal - history;
}

// next_piece returns the next piece, at least a.count if there is none. All lanes of a warp call it. Pieces take
// different times, so that warps take one after the other instead of a share each.
DEVICE i32 next_piece(const EncodeArgs& a) {
    u32 i = 0;
    if (lane_id() == 0) i = atomicAdd(a.next, 1u);
    return __shfl_sync(ALL, i, 0);
}

// most_starts is the number of positions at which four bytes of n begin.
DEVICE u32 most_starts(u32 n) { return n < 4 ? 0 : n - 3; }

DEVICE void load_checksums(Checksums& t, const u32* from) {
    u32* to = (u32*)&t;
    for (u32 i = threadIdx.x; i < sizeof(Checksums) / 4; i += blockDim.x) to[i] = from[i];
    __syncthreads();
}
