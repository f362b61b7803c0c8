// The index is a hash table on the device that maps keys to dense ids. Ids are numbered in the order in which the keys
// first appear, whatever order threads run in.
//
// A slot has 64 bits: a tag of 32 bits and a reference of 32 bits. A key of up to 32 bits is its own tag, so equal tags
// mean equal keys. The tag of a wider key is a part of its hash. The reference says where a wider key is stored: by id
// in the store, or, while the key is new, by row in the input. So one compare-and-swap inserts a whole key, and no
// thread waits for another. A slot without a reference is empty, so no key is reserved as a marker. The slot after the
// last one belongs to the null key.
//
// A batch takes five steps:
//
//   insert   every row finds its slot; new slots refer to the smallest row that has their key
//   first    counts, by tile, the rows that their slot refers to
//   scan     prefix sums of these counts
//   number   gives these rows ids by rank
//   resolve  rows that met a new slot read its id
//
// A lookup costs one access of 8 random bytes, and one more for wider keys.
#include "index.cuh"

template <class Key>
DEVICE i32 insert(const IndexArgs& a, i64 i) {
    u64 mask = (1ull << a.bits) - 1;
    bool null = !bit(a.valid, i);
    if (null && !a.null_key) return -1;
    Home h = {mask + 1, 0};
    if (!null) h = Key::row(a, i);
    u64 mine = (u64)h.tag << 32 | NEW | (u32)i;
    for (u64 step = 0, p = h.slot; step <= mask; step++, p = (p + 1) & mask) {
        u64 s = a.slots[p];
        if (s == 0) {
            if (*static_cast<volatile i32*>(a.claimed) >= a.limit) break;
            s = atomicCAS(&a.slots[p], 0ull, mine);
            if (s == 0) {
                atomicAdd(a.claimed, 1);
                return waiting(p);
            }
        }
        u32 ref = (u32)s;
        if ((u32)(s >> 32) != h.tag || !(null || Key::equal(a, i, ref))) continue;
        if (!(ref & NEW)) return (i32)ref - 1;
        if ((u32)i < (ref & ~NEW)) atomicMin(&a.slots[p], mine);
        return waiting(p);
    }
    a.claimed[1] = 1;
    return REFUSED;
}

template <class Key>
DEVICE void index_insert(const IndexArgs& a) {
    i64 i = global_thread();
    if (i < a.n) __stcs(&a.ids[i], insert<Key>(a, i));
}

// nothing_new reports whether there are no ids to assign: all rows found an id, or the batch is repeated with a larger
// table.
DEVICE bool nothing_new(const IndexArgs& a) { return a.claimed[0] == a.groups || a.claimed[0] > a.limit || a.claimed[1]; }

// is_first reports whether row i is the first row with a new key.
DEVICE bool is_first(const IndexArgs& a, i64 i) {
    return i < a.n && a.ids[i] < -1 && (u32)a.slots[slot_of(a.ids[i])] == (NEW | (u32)i);
}

KERNEL_BOUNDS(index_first, IndexArgs, TILE_THREADS, 1) {
    __shared__ i32 warps[33];
    i32 count = 0;
    if (!nothing_new(a))
        for (int k = 0; k < TILE_ROWS; k++) count += is_first(a, (i64)blockIdx.x * TILE + k * TILE_THREADS + threadIdx.x);
    count = block_sum(count, warps);
    if (threadIdx.x == 0) a.counts[blockIdx.x] = count;
}

template <class Key>
DEVICE void index_number(const IndexArgs& a) {
    __shared__ i32 warps[33];
    if (nothing_new(a)) return;
    i32 before = a.counts[blockIdx.x], total;
    for (int k = 0; k < TILE_ROWS; k++, before += total) {
        i64 i = (i64)blockIdx.x * TILE + k * TILE_THREADS + threadIdx.x;
        bool first = is_first(a, i);
        i32 rank = before + block_exclusive<i32>(first, warps, total);
        if (!first) continue;
        i32 id = a.groups + rank;
        u64* slot = &a.slots[slot_of(a.ids[i])];
        *slot = (*slot & ~0xffffffffull) | (u32)(id + 1);
        a.ids[i] = id;
        if (a.fresh) a.fresh[rank] = (i32)i;
        Key::keep(a, i, id);
    }
}

KERNEL(index_resolve, IndexArgs) {
    if (nothing_new(a)) return;
    for (i64 i = global_thread(); i < a.n; i += grid_threads())
        if (a.ids[i] < -1) a.ids[i] = (i32)(u32)a.slots[slot_of(a.ids[i])] - 1;
}

template <class Key>
DEVICE void index_find(const IndexArgs& a) {
    i64 i = global_thread();
    if (i < a.n) a.ids[i] = find<Key>(a, i);
}

// index_rehash fills empty slots from the store. The keys are distinct, so none is compared. The null key is not in the
// store.
template <class Key>
DEVICE void index_rehash(const IndexArgs& a) {
    i64 id = global_thread();
    u64 mask = (1ull << a.bits) - 1, null = a.old[1ull << a.old_bits];
    if (null & NEW) null = 0; // of a batch that is repeated
    if (id == 0) a.slots[mask + 1] = null;
    if (id >= a.n || (u32)id + 1 == (u32)null) return;
    Home h = Key::stored(a, id);
    u64 mine = (u64)h.tag << 32 | (u32)(id + 1), p = h.slot;
    while (atomicCAS(&a.slots[p], 0ull, mine) != 0) p = (p + 1) & mask;
}

#define INDEX(name, Key)                                            \
    KERNEL(index_insert_##name, IndexArgs) { index_insert<Key>(a); } \
    KERNEL_BOUNDS(index_number_##name, IndexArgs, TILE_THREADS, 1) { index_number<Key>(a); } \
    KERNEL(index_find_##name, IndexArgs) { index_find<Key>(a); }     \
    KERNEL(index_rehash_##name, IndexArgs) { index_rehash<Key>(a); }
INDEX(exact, Exact)
INDEX(words, Words)
INDEX(bytes, Bytes)

// The strings of new ids are appended to those of the existing ids.
struct AppendArgs {
    Texts texts;
    const i32* fresh; // rows of the new ids
    i32* offsets;     // lengths of the strings of the new ids, then their offsets among the new strings
    i32* kept;        // receives the offsets of the new ids among all strings
    u8* bytes;        // receives the bytes of the new ids
    i64 n;
    i32 base;         // bytes of the existing ids
};

KERNEL(append_lengths, AppendArgs) {
    i64 k = global_thread();
    if (k < a.n) a.offsets[k] = text(a.texts, a.fresh[k]).n;
}

// A warp copies the strings of 32 ids, one after the other.
KERNEL(append_bytes, AppendArgs) {
    i64 k = global_thread(), base = k - lane_id();
    Text mine = {nullptr, 0};
    i32 to = 0;
    if (k < a.n) {
        mine = text(a.texts, a.fresh[k]);
        to = a.offsets[k];
    }
    u64 address = reinterpret_cast<u64>(mine.bytes);
    for (int l = 0; l < 32 && base + l < a.n; l++) {
        const u8* from = reinterpret_cast<const u8*>(__shfl_sync(ALL, address, l));
        i32 n = __shfl_sync(ALL, mine.n, l);
        u8* dst = a.bytes + __shfl_sync(ALL, to, l);
        for (i32 b = lane_id(); b < n; b += 32) dst[b] = from[b];
    }
}

KERNEL(append_offsets, AppendArgs) {
    i64 k = global_thread();
    if (k <= a.n) a.kept[k] = a.base + a.offsets[k];
}

// and_bits computes the bitmap of the rows that have a key: rows without a null in any of the columns.
struct AndArgs {
    const u32* const* bitmaps;
    u32* out;
    i64 words;
    i32 count;
};

KERNEL(and_bits, AndArgs) {
    i64 w = global_thread();
    if (w >= a.words) return;
    u32 x = ALL;
    for (int b = 0; b < a.count; b++) x &= a.bitmaps[b][w];
    a.out[w] = x;
}

// pack_keys packs the key columns of a row into a u32 or into one or more words, null bits first. It is for several
// columns, or for one column that is not of plain 4 or 8 bytes. A null's value counts as zero.
struct KeyColumn {
    const void* data;
    const u32* valid;
    const i32* map; // maps a dictionary's codes; otherwise null
    i32 load;
    i32 word, shift, bits; // its position in the key
    i32 null;              // position of its null bit in word 0, or -1
    i32 pad;
};

struct PackArgs {
    const KeyColumn* columns;
    u32* exact; // either exact or words is set
    u64* words;
    i64 n;
    i32 count, width; // columns, words of a key
};

KERNEL(pack_keys, PackArgs) {
    i64 i = global_thread();
    if (i >= a.n) return;
    u64 word = 0;
    int w = 0;
    for (int c = 0; c < a.count; c++)
        if (a.columns[c].null >= 0 && !bit(a.columns[c].valid, i)) word |= 1ull << a.columns[c].null;
    for (int c = 0; c < a.count; c++) {
        const KeyColumn& k = a.columns[c];
        for (; w < k.word; w++, word = 0) a.words[i * a.width + w] = word;
        bool some = bit(k.valid, i);
        if (k.load == LOAD_WIDE) {
            const u64* v = static_cast<const u64*>(k.data) + 2 * i;
            a.words[i * a.width + w++] = some ? v[0] : 0;
            word = some ? v[1] : 0;
            continue;
        }
        if (!some) continue;
        u64 v;
        if (k.map)
            v = (u32)k.map[at<i32>(k.data, i)];
        else
            v = load_word(k.data, k.load, i);
        word |= (k.bits == 64 ? v : v & ((1ull << k.bits) - 1)) << k.shift;
    }
    if (a.exact)
        a.exact[i] = (u32)word;
    else
        a.words[i * a.width + w] = word;
}

// unpack_key extracts column k of keys [from, from+n) from a store.
struct UnpackArgs {
    const void* store; // u32 or words
    const u64* null;   // the slot of the null key; null pointer: see bit
    void* out;         // values of width bytes, a bitmap for width 0
    u32* valid;        // null: not wanted
    i64 from, n;
    i32 exact, words;
    i32 word, shift, width, bit;
};

DEVICE u64 stored_word(const UnpackArgs& a, i64 id, i32 w) {
    return a.exact ? at<u32>(a.store, id) : static_cast<const u64*>(a.store)[id * a.words + w];
}

KERNEL(unpack_key, UnpackArgs) {
    i64 i = global_thread(), id = a.from + i;
    bool in = i < a.n, null = false, one = false;
    if (in) {
        null = a.null ? (u32)id + 1 == (u32)*a.null : a.bit >= 0 && stored_word(a, id, 0) >> a.bit & 1;
        u64 v = null ? 0 : stored_word(a, id, a.word) >> a.shift;
        switch (a.width) {
        case 0: one = v & 1; break;
        case 1: static_cast<u8*>(a.out)[i] = v; break;
        case 2: static_cast<u16*>(a.out)[i] = v; break;
        case 4: static_cast<u32*>(a.out)[i] = v; break;
        case 8: static_cast<u64*>(a.out)[i] = v; break;
        default:
            static_cast<u64*>(a.out)[2 * i] = v;
            static_cast<u64*>(a.out)[2 * i + 1] = null ? 0 : stored_word(a, id, a.word + 1);
        }
    }
    u32 truth = __ballot_sync(ALL, one), some = __ballot_sync(ALL, in && !null);
    if (lane_id() == 0 && i < (a.n + 63) / 64 * 64) {
        if (a.width == 0) static_cast<u32*>(a.out)[i >> 5] = truth;
        if (a.valid) a.valid[i >> 5] = some;
    }
}
