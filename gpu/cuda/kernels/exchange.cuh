// What the kernels of exchange.cu and exchange_table.cu share: tuples of a key and a value, and where they are.
#pragma once
#include "common.cuh"

constexpr u32 EXCHANGE_THREADS = 1024, EXCHANGE_WARPS = EXCHANGE_THREADS / 32;
constexpr int EXCHANGE_ITEMS = 4;
constexpr u32 EXCHANGE_TILE = EXCHANGE_THREADS * EXCHANGE_ITEMS;
constexpr u32 LINE = 8; // tuples of a line of 128 bytes
constexpr u32 SEND_TAIL = 192 * LINE; // room of a region for tuples that fill no line
constexpr u32 NOWHERE = ~0u;

typedef ulonglong2 Tuple; // x is the key, y the value

DEVICE u32 key_digit(u64 key, u64 mul, u32 shift, u32 bits) { return (u32)(key * mul >> shift) & ((1u << bits) - 1); }

// ExchangeRun is a run of tuples. to is the first tuple of its room in the output, a multiple of LINE; in exchange_sums
// the region that its tuples belong to.
struct ExchangeRun {
    const Tuple* tuples;
    const u32* counts; // of a region of exchange_send; null for a run without a hole
    u32 rows;          // of the region, its room
    u32 to;
};

// WideTuple has a key, and N - 1 values. A tuple of 8 bytes is a u64 with a key and a value of 4 bytes each.
template <int N> struct alignas(16) WideTuple { u64 word[N]; };

// pair_of returns the key of a tuple, and the sum of its values.
DEVICE Tuple pair_of(const Tuple& t) { return t; }
DEVICE Tuple pair_of(const u64& t) { return Tuple{(u32)t, t >> 32}; }
template <int N> DEVICE Tuple pair_of(const WideTuple<N>& t) {
    u64 sum = 0;
#pragma unroll
    for (int i = 1; i < N; i++) sum += t.word[i];
    return Tuple{t.word[0], sum};
}

// Wide tuples take as much shared memory as those of 16 bytes: a thread has fewer of them, and a line too.
template <class T> struct Wide {
    static constexpr u32 LINE = sizeof(T) > 16 ? 128 / sizeof(T) : ::LINE;
    static constexpr int ITEMS = sizeof(T) > 16 ? 64 / sizeof(T) : EXCHANGE_ITEMS;
    static constexpr u32 TILE = EXCHANGE_THREADS * ITEMS;
};

// FilledOf is the tuples of a run.
template <class T> struct FilledOf {
    const T* tuples;
    u32 rows, front, hole;

    __device__ __forceinline__ FilledOf(const ExchangeRun& run) : tuples((const T*)run.tuples), rows(run.rows), front(run.rows), hole(0) {
        if (!run.counts) return;
        front = min(run.counts[0], run.rows - SEND_TAIL);
        rows = front + run.counts[1];
        hole = run.rows - rows;
    }
    // Tuples of a region of room tuples: front from its beginning, and back from its end.
    __device__ __forceinline__ FilledOf(const T* tuples, u32 room, u32 front, u32 back)
        : tuples(tuples), rows(front + back), front(front), hole(room - front - back) {}

    // at returns the place of a tuple.
    __device__ __forceinline__ u32 at(u32 i) const { return i < front ? i : i + hole; }

    __device__ __forceinline__ T operator[](u32 i) const { return tuples[at(i)]; }
};
typedef FilledOf<Tuple> Filled;
