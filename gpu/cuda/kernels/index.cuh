// The layout of the index (see index.cu), which inserts and lookups share.
#pragma once
#include "keys.cuh"

constexpr u32 NEW = 0x80000000u;       // the reference is a row
constexpr i32 REFUSED = (i32)NEW;      // the table is too full for the row's key
constexpr int TILE_THREADS = 256, TILE_ROWS = 8, TILE = TILE_THREADS * TILE_ROWS; // rows of a block

struct IndexArgs {
    u64* slots;           // 1 << bits slots, and one for the null key
    const u64* old;       // rehash: the previous slots, 1 << old_bits and one
    const void* keys;     // of the rows: u32, or contiguous words; null for strings
    void* store;          // of the ids, in the same layout
    Texts texts;          // strings of the rows
    const i32* offsets;   // strings of the ids
    const u8* bytes;
    const u32* valid;     // bitmap of the rows that have a key
    i32* ids;             // id of the row; waiting(slot) while the slot is new; -1 without a key
    i32* counts;          // rows that are first with a new key, by tile; later the rank of the first of them
    i32* fresh;           // index_number: the rows of the new ids
    i32* claimed;         // [0] ids in use, [1] whether a row was refused
    u64 seed;
    i64 n;                // rows; ids when rehashing
    i32 bits, old_bits;
    i32 words;            // of a key
    i32 limit;            // maximum number of ids
    i32 groups;           // ids before the batch
    i32 null_key;         // 1: null is a key
};

// waiting is a placeholder for the id of a key whose slot is new. slot_of is the inverse.
DEVICE i32 waiting(u64 slot) { return -2 - (i32)slot; }
DEVICE u32 slot_of(i32 id) { return (u32)(-2 - id); }

struct Home {
    u64 slot;
    u32 tag;
};

DEVICE Home home(const IndexArgs& a, u64 hash) { return {hash >> (64 - a.bits), (u32)hash}; }

// The three kinds of keys.
struct Exact {
    DEVICE Home row(const IndexArgs& a, i64 i) {
        u32 key = streamed<u32>(a.keys, i);
        return {mix<TABLE_MIX>(key, a.seed) >> (64 - a.bits), key};
    }
    DEVICE Home stored(const IndexArgs& a, i64 id) {
        u32 key = at<u32>(a.store, id);
        return {mix<TABLE_MIX>(key, a.seed) >> (64 - a.bits), key};
    }
    DEVICE bool equal(const IndexArgs&, i64, u32) { return true; }
    DEVICE void keep(const IndexArgs& a, i64 i, i32 id) { static_cast<u32*>(a.store)[id] = at<u32>(a.keys, i); }
};

struct Words {
    DEVICE u64 hash(const IndexArgs& a, const u64* words) {
        u64 h = 0;
        for (int w = 0; w < a.words; w++) h = mix<TABLE_MIX>(h ^ words[w], a.seed);
        return h;
    }
    DEVICE const u64* key(const IndexArgs& a, i64 i) { return static_cast<const u64*>(a.keys) + i * a.words; }
    DEVICE u64* kept(const IndexArgs& a, i64 id) { return static_cast<u64*>(a.store) + id * a.words; }
    DEVICE Home row(const IndexArgs& a, i64 i) { return home(a, hash(a, key(a, i))); }
    DEVICE Home stored(const IndexArgs& a, i64 id) { return home(a, hash(a, kept(a, id))); }
    DEVICE bool equal(const IndexArgs& a, i64 i, u32 ref) {
        const u64* other = ref & NEW ? key(a, ref & ~NEW) : kept(a, ref - 1);
        const u64* mine = key(a, i);
        for (int w = 0; w < a.words; w++)
            if (mine[w] != other[w]) return false;
        return true;
    }
    DEVICE void keep(const IndexArgs& a, i64 i, i32 id) {
        for (int w = 0; w < a.words; w++) kept(a, id)[w] = key(a, i)[w];
    }
};

struct Bytes {
    DEVICE Text kept(const IndexArgs& a, i64 id) { return text({a.offsets, a.bytes, nullptr}, id); }
    DEVICE Home row(const IndexArgs& a, i64 i) {
        Text t = text(a.texts, i);
        return home(a, hash_bytes<TABLE_MIX>(t.bytes, t.n, a.seed));
    }
    DEVICE Home stored(const IndexArgs& a, i64 id) {
        Text t = kept(a, id);
        return home(a, hash_bytes<TABLE_MIX>(t.bytes, t.n, a.seed));
    }
    DEVICE bool equal(const IndexArgs& a, i64 i, u32 ref) {
        Text mine = text(a.texts, i), other = ref & NEW ? text(a.texts, ref & ~NEW) : kept(a, ref - 1);
        return mine.n == other.n && equal_bytes(mine.bytes, other.bytes, mine.n);
    }
    DEVICE void keep(const IndexArgs&, i64, i32) {} // copied once their size is known
};

// find returns the id of the key of row i, or -1.
template <class Key>
DEVICE i32 find(const IndexArgs& a, i64 i) {
    u64 mask = (1ull << a.bits) - 1;
    if (!bit(a.valid, i)) return -1;
    Home h = Key::row(a, i);
    for (u64 step = 0, p = h.slot; step <= mask; step++, p = (p + 1) & mask) {
        u64 s = a.slots[p];
        if (s == 0) return -1;
        if ((u32)(s >> 32) == h.tag && Key::equal(a, i, (u32)s)) return (i32)(u32)s - 1;
    }
    return -1;
}
