// CRC-32, the checksum of pages and of GZIP: the remainder of a division of polynomials. Bits of a number are
// coefficients, the highest bit that of x^0. The remainder of two sequences, one after the other, is that of the first,
// times x^8 for each byte of the second, plus that of the second.
#pragma once
#include "common.cuh"

// The layout of checksumTables.
struct Checksums {
    u32 tables[4][256];
    u32 powers[32];  // x^(2^k)
};

// times multiplies two polynomials.
DEVICE u32 times(u32 x, u32 y) {
    u32 product = 0;
    for (int k = 31; k >= 0; k--) {
        if (x >> k & 1) product ^= y;
        y = y >> 1 ^ (y & 1 ? 0xEDB88320u : 0);
    }
    return product;
}

// moved is a remainder times x^8 for each of n bytes.
DEVICE u32 moved(const Checksums& t, u32 remainder, u32 n) {
    for (u32 k = 3; n; k++, n >>= 1)
        if (n & 1) remainder = times(t.powers[k & 31], remainder);
    return remainder;
}

// next_remainder is the remainder of bytes before one more byte, and of this byte.
DEVICE u32 next_remainder(const Checksums& t, u32 r, u8 byte) { return r >> 8 ^ t.tables[0][(r ^ byte) & 255]; }

// remainder_of returns the remainder of n bytes, in every lane of a warp. Each lane takes a part of them.
DEVICE u32 remainder_of(const Checksums& t, const u8* bytes, u32 n) {
    u32 part = ((n + 31) / 32 + 3) / 4 * 4, i = min(lane_id() * part, n), end = min(i + part, n), r = 0;
    for (; i < end && (u64)(bytes + i) % 4; i++) r = next_remainder(t, r, bytes[i]);
    for (; i + 4 <= end; i += 4) {
        r ^= *(const u32*)(bytes + i);
        r = t.tables[3][r & 255] ^ t.tables[2][r >> 8 & 255] ^ t.tables[1][r >> 16 & 255] ^ t.tables[0][r >> 24];
    }
    for (; i < end; i++) r = next_remainder(t, r, bytes[i]);
    return __reduce_xor_sync(ALL, moved(t, r, n - end));
}
