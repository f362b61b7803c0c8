// Kernels that prove what the emulator does and what it finds.
#include "common.cuh"

struct Numbers {
    u64* out;
    i64 n;
};

// Every thread alone.
KERNEL(check_iota, Numbers) {
    i64 i = global_thread();
    if (i < a.n) a.out[i] = i;
}

// Barriers and shuffles: the prefix sums of thread numbers within a block.
KERNEL(check_scan, Numbers) {
    __shared__ u64 warps[33];
    u64 total;
    u64 before = block_exclusive<u64>(threadIdx.x, warps, total);
    a.out[global_thread()] = before << 32 | total;
}

// Lanes of one warp in different collectives at a time.
KERNEL(check_lanes, Numbers) {
    u32 lane = lane_id(), odd = 0xaaaaaaaau, even = ~odd;
    u64 v;
    if (lane & 1)
        v = __shfl_sync(odd, (u64)lane << 40, 31);
    else if (lane % 4 == 0)
        v = __ballot_sync(0x11111111u, lane > 16);
    else
        v = __match_any_sync(even & ~0x11111111u, lane / 16);
    v = v << 8 | __reduce_max_sync(ALL, lane);
    a.out[global_thread()] = v;
}

KERNEL(check_barriers, Numbers) {
    int any = __syncthreads_or(threadIdx.x == 5), all = __syncthreads_and(threadIdx.x != 5);
    int count = __syncthreads_count(threadIdx.x < 7);
    a.out[global_thread()] = any << 16 | all << 8 | count;
}

// Shared memory, static and dynamic, before anything is written to it.
KERNEL(check_poison, Numbers) {
    __shared__ u64 fixed[64];
    SHARED(u64, dynamic);
    a.out[2 * threadIdx.x] = fixed[threadIdx.x];
    a.out[2 * threadIdx.x + 1] = dynamic[threadIdx.x];
    __syncthreads();
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;
}

// The order of turns: who comes last of the threads that add themselves.
KERNEL(check_order, Numbers) {
    __shared__ u32 turn;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    a.out[threadIdx.x] = atomicAdd(&turn, 1);
}

KERNEL(check_write_at, Numbers) {
    if (threadIdx.x == 0) reinterpret_cast<u8*>(a.out)[a.n] = 1;
}

KERNEL(check_misaligned, Numbers) { *reinterpret_cast<u64*>(reinterpret_cast<u8*>(a.out) + a.n) = 1; }

KERNEL(check_index, Numbers) {
    __shared__ u64 fixed[64];
    fixed[threadIdx.x + a.n] = 1;
    __syncthreads();
    a.out[0] = fixed[threadIdx.x];
}

KERNEL(check_divergence, Numbers) {
    if (threadIdx.x == 3) return;
    __syncthreads();
    a.out[threadIdx.x] = 1;
}

KERNEL(check_deadlock, Numbers) {
    if (lane_id() < 16)
        __syncwarp();
    else
        __ballot_sync(ALL, 1);
    a.out[threadIdx.x] = 1;
}

KERNEL(check_mask, Numbers) { a.out[threadIdx.x] = __shfl_sync(1u, threadIdx.x, 0); }

KERNEL(check_spin, Numbers) {
    while (*reinterpret_cast<volatile u64*>(a.out) != 1) __nanosleep(100);
}

KERNEL(check_resources, Numbers) { a.out[0] = a.n; }

KERNEL_BOUNDS(check_bounds, Numbers, 128, 2) { a.out[0] = a.n; }

// Races: each thread reads what its neighbour wrote, with what orders it or without.
DEVICE void pass_on(u64* out, u64* shared, u32 from, bool barrier, bool warp) {
    shared[threadIdx.x] = threadIdx.x;
    if (barrier) __syncthreads();
    if (warp) __syncwarp();
    out[global_thread()] = shared[from];
}

KERNEL(check_race_lanes, Numbers) {
    __shared__ u64 shared[64];
    pass_on(a.out, shared, threadIdx.x ^ 1, false, false);
}

KERNEL(check_race_warps, Numbers) {
    __shared__ u64 shared[64];
    pass_on(a.out, shared, threadIdx.x ^ 32, false, true);
}

// A buffer that is written anew while slow threads still read it.
KERNEL(check_race_reuse, Numbers) {
    SHARED(u64, shared);
    pass_on(a.out, shared, threadIdx.x ^ 32, true, false);
    shared[threadIdx.x] = 0;
}

KERNEL(check_no_race, Numbers) {
    SHARED(u64, shared);
    __shared__ u32 bits[2];
    pass_on(a.out, shared, threadIdx.x ^ 1, false, true);
    __syncthreads();
    pass_on(a.out, shared, threadIdx.x ^ 32, true, false);
    if (threadIdx.x < 2) bits[threadIdx.x] = 0;
    __syncthreads();
    atomicOr(&bits[threadIdx.x & 1], 1u << (threadIdx.x & 31));
    ((u8*)shared)[threadIdx.x + blockDim.x] = (u8)*(volatile u32*)bits; // bytes of one word, and a look on purpose
}

KERNEL(check_unwritten, Numbers) { a.out[threadIdx.x] = a.out[threadIdx.x + 64]; }
