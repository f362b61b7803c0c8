// Times CUB's DeviceRadixSort::SortPairs of 4+4 bytes, to compare `gstream bench sort`
// with in the same minute on the same GPU. It needs nvcc and CUB's headers, and no
// more to run than a driver:
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -cudart static -o cub_sort cub_sort.cu
//
// prints the median of 7 runs after one that does not count, and checks the order.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_radix_sort.cuh>

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t e = (call);                                                        \
        if (e != cudaSuccess) {                                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));                 \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

__global__ void fill(uint32_t* keys, uint32_t* values, size_t n, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)i * 0x9e3779b1u + seed;
        x ^= x >> 16, x *= 0x85ebca6bu, x ^= x >> 13, x *= 0xc2b2ae35u, x ^= x >> 16;
        keys[i] = x, values[i] = (uint32_t)i;
    }
}

__global__ void check(const uint32_t* keys, size_t n, unsigned long long* bad) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i + 1 < n; i += (size_t)gridDim.x * blockDim.x)
        if (keys[i] > keys[i + 1]) atomicAdd(bad, 1ull);
}

int main(int argc, char** argv) {
    const size_t n = size_t(1) << (argc > 1 ? atoi(argv[1]) : 28);
    uint32_t *keys, *values, *sorted, *moved;
    unsigned long long *bad, found = 0;
    for (uint32_t** p : {&keys, &values, &sorted, &moved}) CHECK(cudaMalloc(p, n * 4));
    CHECK(cudaMalloc(&bad, 8));
    CHECK(cudaMemset(bad, 0, 8));
    void* scratch = nullptr;
    size_t size = 0;
    CHECK(cub::DeviceRadixSort::SortPairs(scratch, size, keys, sorted, values, moved, n));
    CHECK(cudaMalloc(&scratch, size));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    float ms[8];
    for (int i = 0; i < 8; i++) {
        fill<<<1024, 256>>>(keys, values, n, i);
        CHECK(cudaEventRecord(begin));
        CHECK(cub::DeviceRadixSort::SortPairs(scratch, size, keys, sorted, values, moved, n));
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms[i], begin, end));
        check<<<1024, 256>>>(sorted, n, bad);
    }
    CHECK(cudaMemcpy(&found, bad, 8, cudaMemcpyDeviceToHost));
    if (found) {
        fprintf(stderr, "%llu rows are out of order\n", found);
        return 1;
    }
    std::sort(ms + 1, ms + 8);
    printf("CUB SortPairs, %zu rows of 4+4 bytes: %.3f ms (%.3f to %.3f)\n", n, ms[4], ms[1], ms[7]);
}
