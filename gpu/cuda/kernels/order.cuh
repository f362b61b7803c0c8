// The order of values and rows: words and bytes of one column, and rows by the columns of a sort order.
#pragma once
#include "keys.cuh"

// order maps words to unsigned integers in the order of their values. unorder is the inverse.
DEVICE u64 order(i32 load, u64 w) {
    switch (load) {
    case LOAD_BIT:
    case LOAD_U8:
    case LOAD_U16:
    case LOAD_U32:
    case LOAD_U64: return w;
    case LOAD_F32: return (u32)w ^ ((u32)((i32)w >> 31) | 1u << 31);
    case LOAD_F64: return w ^ ((u64)((i64)w >> 63) | 1ull << 63);
    default: return w ^ 1ull << 63;
    }
}

DEVICE u64 unorder(i32 load, u64 w) {
    switch (load) {
    case LOAD_BIT:
    case LOAD_U8:
    case LOAD_U16:
    case LOAD_U32:
    case LOAD_U64: return w;
    case LOAD_F32: return (u32)w ^ ((u32)((i32)~(u32)w >> 31) | 1u << 31);
    case LOAD_F64: return w ^ ((u64)((i64)~w >> 63) | 1ull << 63);
    default: return w ^ 1ull << 63;
    }
}

// compare_texts compares strings by their bytes. Strings that begin at the same address, as equal values of a
// dictionary do, are not read.
DEVICE i32 compare_texts(Text x, Text y) {
    if (x.bytes == y.bytes) return x.n - y.n;
    i32 n = x.n < y.n ? x.n : y.n;
    for (i32 k = 0; k < n; k += 8) {
        u64 a = load8(x.bytes + k, n - k), b = load8(y.bytes + k, n - k);
        if (a == b) continue;
        int at = (__ffsll((i64)(a ^ b)) - 1) & ~7; // bit offset of the first byte that differs, which is the lowest
        return (a >> at & 255) < (b >> at & 255) ? -1 : 1;
    }
    return x.n - y.n;
}

// OrderColumn is a key column of one side. OrderKey is the key of both sides. A side may be compared with itself.
struct OrderColumn {
    const void* data;
    const u32* valid;
    Texts texts;
};

struct OrderKey {
    OrderColumn left, right;
    i32 load; // LOAD_TEXT for strings
    i32 descending;
    i32 nulls_first;
    i32 null_safe; // a null matches a null
};

constexpr i32 LOAD_TEXT = LOAD_WIDE + 1;

template <class T>
DEVICE i32 compare_values(T x, T y) { return x < y ? -1 : x > y; }

// compare_key compares row i of the left side with row j of the right side by one key. Nulls are equal.
DEVICE i32 compare_key(const OrderKey& k, i64 i, i64 j) {
    bool left = bit(k.left.valid, i), right = bit(k.right.valid, j);
    if (!left || !right) return left == right ? 0 : left == (k.nulls_first != 0) ? 1 : -1;
    i32 c;
    if (k.load == LOAD_TEXT) {
        c = compare_texts(text(k.left.texts, i), text(k.right.texts, j));
    } else if (k.load == LOAD_WIDE) {
        const u64 *x = static_cast<const u64*>(k.left.data) + 2 * i, *y = static_cast<const u64*>(k.right.data) + 2 * j;
        c = x[1] != y[1] ? compare_values((i64)x[1], (i64)y[1]) : compare_values(x[0], y[0]);
    } else {
        c = compare_values(order(k.load, load_word(k.left.data, k.load, i)), order(k.load, load_word(k.right.data, k.load, j)));
    }
    return k.descending ? -c : c;
}

// compare_rows compares by several keys. The first key is the most significant.
DEVICE i32 compare_rows(const OrderKey* keys, i32 count, i64 i, i64 j) {
    i32 c = 0;
    for (i32 k = 0; k < count && c == 0; k++) c = compare_key(keys[k], i, j);
    return c;
}
