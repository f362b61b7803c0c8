// Samples the keys of evenly spread rows. It counts the distinct keys, and the keys that occur more than once. One
// block keeps the keys in a hash table in shared memory. The table has keys only. A bit of each slot tells whether its
// key occurred again. Bytes: a sector for each row of the sample.
#include "sample.cuh"

struct SampleArgs {
    u64 key;
    u32* found; // distinct keys, and keys that occurred again
    u64 mul;    // odd
    u64 step;    // see sampled_row
    u32 sampled; // rows to look at, fewer than the slots
    u32 slots;
};

// hash_key is the upper half of a product (multiply-shift hashing).
DEVICE u32 hash_key(u32 key, u64 mul) { return key * (u32)mul; }
DEVICE u32 hash_key(u64 key, u64 mul) { return (u32)(key * mul >> 32); }

// The key of all ones marks a slot without a key, so it is counted separately, in `extreme`.
template <class K>
DEVICE void sample_keys(const SampleArgs& a, u32* memory) {
    constexpr K EMPTY = (K)~(K)0;
    constexpr int AT_ONCE = 8; // loads in flight
    __shared__ u32 sums[33], extreme;
    K* keys = (K*)memory;
    u32* again = (u32*)(keys + a.slots);
    const K* key = (const K*)a.key;
    for (u32 s = threadIdx.x; s < a.slots; s += blockDim.x) keys[s] = EMPTY;
    for (u32 w = threadIdx.x; w < (a.slots + 31) / 32; w += blockDim.x) again[w] = 0;
    if (threadIdx.x == 0) extreme = 0;
    __syncthreads();
    for (u32 from = threadIdx.x; from < a.sampled; from += AT_ONCE * blockDim.x) {
        K k[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const u32 r = from + i * blockDim.x;
            if (r < a.sampled) k[i] = key[sampled_row(r, a.step)];
        }
#pragma unroll 1
        for (int i = 0; i < AT_ONCE; i++) {
            if (from + i * blockDim.x >= a.sampled) break;
            K mine = k[0];
#pragma unroll
            for (int j = 1; j < AT_ONCE; j++)
                if (i == j) mine = k[j];
            if (mine == EMPTY) {
                atomicAdd(&extreme, 1u);
                continue;
            }
            for (u32 at = __umulhi(hash_key(mine, a.mul), a.slots);; at = at + 1 < a.slots ? at + 1 : 0) {
                const K there = atomicCAS(&keys[at], EMPTY, mine);
                if (there == mine) atomicOr(&again[at / 32], 1u << at % 32);
                if (there == mine || there == EMPTY) break;
            }
        }
    }
    __syncthreads();
    u32 found = 0, more = 0;
    for (u32 s = threadIdx.x; s < a.slots; s += blockDim.x) found += keys[s] != EMPTY;
    for (u32 w = threadIdx.x; w < (a.slots + 31) / 32; w += blockDim.x) more += __popc(again[w]);
    found = block_sum(found, sums);
    more = block_sum(more, sums);
    if (threadIdx.x == 0) {
        a.found[0] = found + (extreme > 0);
        a.found[1] = more + (extreme > 1);
    }
}

KERNEL_BOUNDS(sample_keys_k4, SampleArgs, 1024, 1) {
    SHARED(u32, shared);
    sample_keys<u32>(a, shared);
}
KERNEL_BOUNDS(sample_keys_k8, SampleArgs, 1024, 1) {
    SHARED(u32, shared);
    sample_keys<u64>(a, shared);
}
