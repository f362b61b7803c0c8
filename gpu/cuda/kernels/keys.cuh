// Keys of joins and group-bys: loading values as words, hashing them, comparing strings.
#pragma once
#include "common.cuh"

// Load is how a column's values are loaded as words. keys.go has the same list.
enum Load : i32 { LOAD_BIT, LOAD_I8, LOAD_I16, LOAD_I32, LOAD_I64, LOAD_U8, LOAD_U16, LOAD_U32, LOAD_U64, LOAD_F32, LOAD_F64, LOAD_WIDE };

// canonical returns the same bits for floats that are equal in SQL.
DEVICE u32 canonical(float v) { return v == 0 ? 0 : v != v ? 0x7fc00000u : __float_as_uint(v); }
DEVICE u64 canonical(double v) { return v == 0 ? 0 : v != v ? 0x7ff8000000000001ull : (u64)__double_as_longlong(v); }

template <class T>
DEVICE T at(const void* data, i64 i) {
    return static_cast<const T*>(data)[i];
}

// streamed is at for data that is read once, so that the data does not displace tables in the cache.
template <class T>
DEVICE T streamed(const void* data, i64 i) {
    return __ldcs(static_cast<const T*>(data) + i);
}

// load_word returns value i of a column of at most 8 bytes a value. Integers are sign- or zero-extended, floats have
// canonical bits.
DEVICE u64 load_word(const void* data, i32 load, i64 i) {
    switch (load) {
    case LOAD_BIT: return bit(static_cast<const u32*>(data), i);
    case LOAD_I8: return (u64)(i64)at<i8>(data, i);
    case LOAD_I16: return (u64)(i64)at<i16>(data, i);
    case LOAD_I32: return (u64)(i64)at<i32>(data, i);
    case LOAD_U8: return at<u8>(data, i);
    case LOAD_U16: return at<u16>(data, i);
    case LOAD_U32: return at<u32>(data, i);
    case LOAD_F32: return canonical(at<float>(data, i));
    case LOAD_F64: return canonical(at<double>(data, i));
    default: return at<u64>(data, i);
    }
}

// MIX and TABLE_MIX are odd numbers with evenly spread bits. MIX is for hashes that select partitions, TABLE_MIX for
// hashes that select slots of a table. Keys of one partition have similar products with MIX. If a table also used MIX,
// keys that are close to each other would get few different slots, whatever the seeds.
constexpr u64 MIX = 0x9e3779b97f4a7c15ull, TABLE_MIX = 0xd6e8feb86659fd93ull;

// mix is a 64-bit finaliser. It folds the two halves of a 128-bit product.
template <u64 BY = MIX>
DEVICE u64 mix(u64 x, u64 seed) {
    x ^= seed;
    return (x * BY) ^ __umul64hi(x, BY);
}

DEVICE u64 rotate_left(u64 x, int k) { return x << k | x >> (64 - k); }

// load8 reads up to 8 bytes at any alignment.
DEVICE u64 load8(const u8* p, i32 n) {
    u64 x = 0;
    if (n >= 8) {
        u64 address = reinterpret_cast<u64>(p);
        if ((address & 7) == 0) return *reinterpret_cast<const u64*>(p);
        if ((address & 3) == 0) {
            const u32* w = reinterpret_cast<const u32*>(p);
            return (u64)w[1] << 32 | w[0];
        }
        n = 8;
    }
    for (i32 k = 0; k < n; k++) x |= (u64)p[k] << (8 * k);
    return x;
}

// hash_bytes hashes a string eight bytes at a time.
template <u64 BY = MIX>
DEVICE u64 hash_bytes(const u8* p, i32 n, u64 seed) {
    u64 h = (u64)n * BY;
    for (; n >= 8; p += 8, n -= 8) h = mix<BY>(h ^ load8(p, 8), seed);
    return mix<BY>(h ^ load8(p, n), seed);
}

DEVICE bool equal_bytes(const u8* a, const u8* b, i32 n) {
    for (; n >= 8; a += 8, b += 8, n -= 8)
        if (load8(a, 8) != load8(b, 8)) return false;
    return load8(a, n) == load8(b, n);
}

// Texts describes the strings of a column. Row i has string i, or value codes[i] of a dictionary.
struct Texts {
    const i32* offsets;
    const u8* bytes;
    const i32* codes; // null: plain
};

struct Text {
    const u8* bytes;
    i32 n;
};

DEVICE Text text(const Texts& t, i64 i) {
    i64 k = t.codes ? t.codes[i] : i;
    i32 from = t.offsets[k];
    return {t.bytes + from, t.offsets[k + 1] - from};
}
