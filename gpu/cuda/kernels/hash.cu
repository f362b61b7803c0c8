// Hashes of rows over key columns. Equal rows have equal hashes, whatever the width of their storage and whether their
// strings are dictionary-coded.
#include "keys.cuh"

constexpr u64 HASH_NULL = 0xa0761d6478bd642full;

struct HashArgs {
    const void* values;
    Texts texts;         // strings
    const u64* hashes;   // of the values of a dictionary; otherwise null
    const i32* codes;    // indexes into hashes
    const u32* valid;
    u64* out;
    u64 seed;
    i64 n;
    i32 load;
    i32 first;           // 1: the first column, which sets the hash; hashes of other columns are combined with it
};

// put stores h as the hash of the row, or combines h with the hash so far. Combining is not symmetric, so that equal
// columns do not cancel each other.
DEVICE void put(const HashArgs& a, i64 i, u64 h) {
    if (!bit(a.valid, i)) h = HASH_NULL;
    a.out[i] = a.first ? h : mix(rotate_left(a.out[i], 23) ^ h, a.seed);
}

KERNEL(hash_words, HashArgs) {
    i64 i = global_thread();
    if (i < a.n) put(a, i, mix(load_word(a.values, a.load, i), a.seed));
}

KERNEL(hash_wide, HashArgs) {
    i64 i = global_thread();
    if (i >= a.n) return;
    const u64* v = static_cast<const u64*>(a.values) + 2 * i;
    u64 h = mix(v[0], a.seed);
    if ((i64)v[1] != (i64)v[0] >> 63) h = mix(h ^ v[1], a.seed);
    put(a, i, h);
}

KERNEL(hash_texts, HashArgs) {
    i64 i = global_thread();
    if (i >= a.n) return;
    u64 h = 0;
    if (bit(a.valid, i)) {
        Text t = text(a.texts, i);
        h = hash_bytes(t.bytes, t.n, a.seed);
    }
    put(a, i, h);
}

KERNEL(hash_codes, HashArgs) {
    i64 i = global_thread();
    if (i < a.n) put(a, i, bit(a.valid, i) ? a.hashes[a.codes[i]] : 0);
}
