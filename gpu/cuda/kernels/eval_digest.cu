// Hash functions of strings as hexadecimal digits: MD5 (RFC 1321), SHA-1 and SHA-256 (FIPS 180-4). A thread hashes one
// string.
#include "eval_text.cuh"

__constant__ u32 MD5_SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
__constant__ u8 MD5_SHIFTS[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};
__constant__ u32 SHA256_ROOTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

DEVICE u32 rotate(u32 x, u32 by) { return x << by | x >> (32 - by); }

// padded returns byte k of a message that is padded to whole blocks of 64 bytes: a one bit, zeros, and the number of
// bits in 64 bits.
DEVICE u8 padded(Text s, i64 k, i64 blocks, bool big_endian) {
    if (k < s.n) return s.p[k];
    if (k == s.n) return 0x80;
    i64 from_end = blocks * 64 - 1 - k;
    if (from_end >= 8) return 0;
    u64 bits = (u64)s.n * 8;
    return (u8)(bits >> 8 * (big_endian ? from_end : 7 - from_end));
}

DEVICE u32 word_of(Text s, i64 at, i64 blocks, bool big_endian) {
    u32 w = 0;
    for (i32 k = 0; k < 4; k++) w |= (u32)padded(s, at + k, blocks, big_endian) << 8 * (big_endian ? 3 - k : k);
    return w;
}

DEVICE void md5_block(u32 (&h)[8], const u32 (&m)[16]) {
    u32 a = h[0], b = h[1], c = h[2], d = h[3];
    for (i32 k = 0; k < 64; k++) {
        u32 f;
        i32 g;
        switch (k / 16) {
        case 0: f = (b & c) | (~b & d), g = k; break;
        case 1: f = (d & b) | (~d & c), g = (5 * k + 1) & 15; break;
        case 2: f = b ^ c ^ d, g = (3 * k + 5) & 15; break;
        default: f = c ^ (b | ~d), g = 7 * k & 15;
        }
        u32 next = b + rotate(a + f + MD5_SINES[k] + m[g], MD5_SHIFTS[k / 16 * 4 + k % 4]);
        a = d, d = c, c = b, b = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d;
}

DEVICE void sha1_block(u32 (&h)[8], u32 (&m)[16]) {
    u32 a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (i32 k = 0; k < 80; k++) {
        u32& w = m[k & 15];
        if (k >= 16) w = rotate(m[(k + 13) & 15] ^ m[(k + 8) & 15] ^ m[(k + 2) & 15] ^ w, 1);
        u32 f, r;
        switch (k / 20) {
        case 0: f = (b & c) | (~b & d), r = 0x5a827999; break;
        case 1: f = b ^ c ^ d, r = 0x6ed9eba1; break;
        case 2: f = (b & c) | (b & d) | (c & d), r = 0x8f1bbcdc; break;
        default: f = b ^ c ^ d, r = 0xca62c1d6;
        }
        u32 next = rotate(a, 5) + f + e + r + w;
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

DEVICE void sha256_block(u32 (&h)[8], u32 (&m)[16]) {
    u32 a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];
    for (i32 k = 0; k < 64; k++) {
        u32& w = m[k & 15];
        if (k >= 16) {
            u32 x = m[(k + 1) & 15], y = m[(k + 14) & 15];
            w += (rotate(x, 25) ^ rotate(x, 14) ^ x >> 3) + m[(k + 9) & 15] + (rotate(y, 15) ^ rotate(y, 13) ^ y >> 10);
        }
        u32 t1 = last + (rotate(e, 26) ^ rotate(e, 21) ^ rotate(e, 7)) + ((e & f) ^ (~e & g)) + SHA256_ROOTS[k] + w;
        u32 t2 = (rotate(a, 30) ^ rotate(a, 19) ^ rotate(a, 10)) + ((a & b) ^ (a & c) ^ (b & c));
        last = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += last;
}

// digest writes the first words of the state after all blocks as digits.
template <class F>
DEVICE void digest(const Args& a, i32 words, bool big_endian, const u32 (&start)[8], F block) {
    i64 i = global_thread();
    if (i >= a.n) return;
    bool there = bit(a.valid, i);
    if (!a.out) {
        a.at[i] = there ? words * 8 : 0;
        return;
    }
    u8* out = a.bytes + a.at[i];
    ((Text*)a.out)[i] = Text{out, there ? words * 8 : 0};
    if (!there) return;
    Text s = load_text(a.x, i);
    u32 h[8], m[16];
    for (i32 k = 0; k < 8; k++) h[k] = start[k];
    i64 blocks = (s.n + 8) / 64 + 1;
    for (i64 b = 0; b < blocks; b++) {
        for (i32 k = 0; k < 16; k++) m[k] = word_of(s, b * 64 + 4 * k, blocks, big_endian);
        block(h, m);
    }
    const char* hex = "0123456789abcdef";
    for (i32 k = 0; k < words * 4; k++) {
        u8 c = (u8)(h[k / 4] >> 8 * (big_endian ? 3 - k % 4 : k % 4));
        out[2 * k] = (u8)hex[c >> 4];
        out[2 * k + 1] = (u8)hex[c & 15];
    }
}

KERNEL(eval_md5, Args) {
    const u32 start[8] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    digest(a, 4, false, start, [](u32 (&h)[8], u32 (&m)[16]) { md5_block(h, m); });
}

KERNEL(eval_sha1, Args) {
    const u32 start[8] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    digest(a, 5, true, start, [](u32 (&h)[8], u32 (&m)[16]) { sha1_block(h, m); });
}

KERNEL(eval_sha256, Args) {
    const u32 start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    digest(a, 8, true, start, [](u32 (&h)[8], u32 (&m)[16]) { sha256_block(h, m); });
}

// The hash of DuckDB's hash(), for 64-bit values and for bytes.
constexpr u64 HASH_FACTOR = 0xd6e8feb86659fd93, HASH_NULL = 0xbf58476d1ce4e5b9;

DEVICE u64 mix(u64 x) {
    x = (x ^ x >> 32) * HASH_FACTOR;
    x = (x ^ x >> 32) * HASH_FACTOR;
    return x ^ x >> 32;
}

DEVICE u64 hash_text(Text s) {
    u64 h = 0xe17a1465 ^ (u64)s.n * 0xc6a4a7935bd1e995;
    for (i64 k = 0; k < s.n; k += 8) {
        u64 word = 0;
        for (i64 b = 0; b < 8 && k + b < s.n; b++) word |= (u64)s.p[k + b] << 8 * b;
        h = (h ^ word) * HASH_FACTOR;
    }
    return mix(h);
}

// store_hash stores a hash, combined with the hash of y if mode is 1.
template <class F>
DEVICE void store_hash(const Args& a, F f) {
    i64 i = global_thread();
    if (i >= a.n) return;
    u64 h = bit(a.x.valid, i) ? f(i) : HASH_NULL;
    if (a.mode == 1) {
        u64 before = (u64)load_int(a.y, i);
        h ^= (before ^ before >> 32) * HASH_FACTOR;
    }
    store_int(a, i, h);
}

// eval_hash_int hashes integers of p bits.
KERNEL(eval_hash_int, Args) {
    store_hash(a, [&](i64 i) {
        i128 v = load_int(a.x, i);
        if (a.p == 32) return mix((u32)v);
        return a.p == 64 ? mix((u64)v) : mix((u64)v) ^ mix((u64)(v >> 64));
    });
}

KERNEL(eval_hash_float, Args) {
    store_hash(a, [&](i64 i) {
        double v = load_float(a.x, i);
        if (v == 0) return mix(0);
        if (a.p == 32) return mix(v != v ? 0x7fc00000u : __float_as_uint((float)v));
        return mix(v != v ? 0x7ff8000000000000ull : (u64)__double_as_longlong(v));
    });
}

KERNEL(eval_hash_text, Args) {
    store_hash(a, [&](i64 i) { return hash_text(load_text(a.x, i)); });
}
