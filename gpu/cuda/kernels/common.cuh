// Definitions that every kernel of gstream uses: short names of types, the declaration of kernels, and building blocks
// for warps and blocks.
//
// A kernel has one argument struct, passed by value and named `a`. Go launches any kernel with a pointer to a struct of
// the same layout. Pointers and 8-byte fields come first, then narrower fields.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __int128 i128;
typedef unsigned __int128 u128;

#ifndef GSTREAM_EMULATOR
#define KERNEL(name, Args) extern "C" __global__ void name(const __grid_constant__ Args a)
#define KERNEL_BOUNDS(name, Args, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args a)
// SHARED makes name a T* to the block's dynamic shared memory.
extern __shared__ __align__(16) unsigned char gstream_shared[];
#define SHARED(T, name) T* name = reinterpret_cast<T*>(gstream_shared)
#endif

#define DEVICE static __device__ __forceinline__

constexpr u32 ALL = 0xffffffffu; // every lane of a warp

DEVICE u32 lane_id() { return threadIdx.x & 31; }
DEVICE u32 warp_id() { return threadIdx.x >> 5; }
DEVICE u32 lanes_below() { return (1u << lane_id()) - 1; }

// global_thread returns the number of the thread in the grid, grid_threads the number of threads in the grid.
DEVICE i64 global_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE i64 grid_threads() { return (i64)gridDim.x * blockDim.x; }

// bit reads bit i of a bitmap; a null bitmap is all ones.
DEVICE bool bit(const u32* bitmap, i64 i) { return !bitmap || (bitmap[i >> 5] >> (i & 31) & 1); }

// warp_sum returns the sum over the warp, in every lane.
template <class T>
DEVICE T warp_sum(T v) {
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(ALL, v, d);
    return v;
}

// warp_inclusive returns the inclusive prefix sum over the lanes of a warp.
template <class T>
DEVICE T warp_inclusive(T v) {
    for (int d = 1; d < 32; d <<= 1) {
        T up = __shfl_up_sync(ALL, v, d);
        if (lane_id() >= (u32)d) v += up;
    }
    return v;
}

// block_exclusive returns the exclusive prefix sum over the threads of a block, and its total. warps is shared memory
// of 33 values. All threads of the block call it.
template <class T>
DEVICE T block_exclusive(T v, T* warps, T& total) {
    T inclusive = warp_inclusive(v);
    if (lane_id() == 31) warps[warp_id()] = inclusive;
    __syncthreads();
    if (warp_id() == 0) {
        u32 count = blockDim.x >> 5;
        T w = lane_id() < count ? warps[lane_id()] : T(0);
        T sums = warp_inclusive(w);
        __syncwarp();
        if (lane_id() < count) warps[lane_id()] = sums - w;
        if (lane_id() == 31) warps[32] = sums;
    }
    __syncthreads();
    total = warps[32];
    T out = warps[warp_id()] + inclusive - v;
    __syncthreads();
    return out;
}

// block_sum returns the sum over the threads of a block, in every thread.
template <class T>
DEVICE T block_sum(T v, T* warps) {
    T total;
    block_exclusive(v, warps, total);
    return total;
}
