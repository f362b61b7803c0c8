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

// Filled is the tuples of a run.
struct Filled {
    const Tuple* tuples;
    u32 rows, front, hole;

    __device__ __forceinline__ Filled(const ExchangeRun& run) : tuples(run.tuples), rows(run.rows), front(run.rows), hole(0) {
        if (!run.counts) return;
        front = min(run.counts[0], run.rows - SEND_TAIL);
        rows = front + run.counts[1];
        hole = run.rows - rows;
    }
    // Tuples of a region of room tuples: front from its beginning, and back from its end.
    __device__ __forceinline__ Filled(const Tuple* tuples, u32 room, u32 front, u32 back)
        : tuples(tuples), rows(front + back), front(front), hole(room - front - back) {}

    // at returns the place of a tuple.
    __device__ __forceinline__ u32 at(u32 i) const { return i < front ? i : i + hole; }

    __device__ __forceinline__ Tuple operator[](u32 i) const { return tuples[at(i)]; }
};
