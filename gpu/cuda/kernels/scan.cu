// Exclusive prefix sums of 32-bit counts by reduce-then-scan: the sums of tiles, a scan of these sums by one block,
// then the scan of each tile from its start. It moves 3 × 4 bytes a value, and no block waits for another.
#include "common.cuh"

struct ScanArgs {
    const i32* in;
    i32* out;     // n values, may be in
    i64* sums;    // one a tile, then the total
    i64 n;
    i32 tiles;
    i32 closed;   // also write the total to out[n]
};

constexpr int SCAN_THREADS = 256, SCAN_ITEMS = 16, SCAN_TILE = SCAN_THREADS * SCAN_ITEMS;

KERNEL_BOUNDS(scan_sums, ScanArgs, SCAN_THREADS, 1) {
    __shared__ i64 warps[33];
    i64 base = (i64)blockIdx.x * SCAN_TILE, sum = 0;
    for (int k = 0; k < SCAN_ITEMS; k++) {
        i64 i = base + k * SCAN_THREADS + threadIdx.x;
        if (i < a.n) sum += a.in[i];
    }
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

// One block replaces the sum of each tile by its start.
KERNEL_BOUNDS(scan_starts, ScanArgs, 1024, 1) {
    __shared__ i64 warps[33];
    i64 carry = 0;
    for (i32 base = 0; base < a.tiles; base += 1024) {
        i32 i = base + threadIdx.x;
        i64 v = i < a.tiles ? a.sums[i] : 0, total;
        i64 at = block_exclusive(v, warps, total);
        if (i < a.tiles) a.sums[i] = carry + at;
        carry += total;
    }
    if (threadIdx.x == 0) {
        a.sums[a.tiles] = carry;
        if (a.closed) a.out[a.n] = (i32)carry;
    }
}

KERNEL_BOUNDS(scan_write, ScanArgs, SCAN_THREADS, 1) {
    __shared__ i64 warps[33];
    __shared__ i32 tile[SCAN_TILE + SCAN_TILE / 32];
    i64 base = (i64)blockIdx.x * SCAN_TILE;
    for (int k = 0; k < SCAN_ITEMS; k++) {
        int j = k * SCAN_THREADS + threadIdx.x;
        tile[j + j / 32] = base + j < a.n ? a.in[base + j] : 0;
    }
    __syncthreads();
    i32 items[SCAN_ITEMS];
    i64 sum = 0, total;
    for (int k = 0; k < SCAN_ITEMS; k++) {
        int j = threadIdx.x * SCAN_ITEMS + k;
        items[k] = tile[j + j / 32];
        sum += items[k];
    }
    i64 at = a.sums[blockIdx.x] + block_exclusive(sum, warps, total);
    for (int k = 0; k < SCAN_ITEMS; k++) {
        int j = threadIdx.x * SCAN_ITEMS + k;
        tile[j + j / 32] = (i32)at;
        at += items[k];
    }
    __syncthreads();
    for (int k = 0; k < SCAN_ITEMS; k++) {
        int j = k * SCAN_THREADS + threadIdx.x;
        if (base + j < a.n) a.out[base + j] = tile[j + j / 32];
    }
}
