// Samples of rows.
#pragma once
#include "common.cuh"

// sampled_row is row i of a sample, as gpu.SampledRow is: one of part i, of `step` >> 20 rows, and not the first of each.
DEVICE u64 sampled_row(u64 i, u64 step) {
    const u64 lo = i * step >> 20, hi = (i + 1) * step >> 20;
    return lo + ((u64)(u32)((u32)i * 0x9e3779b9u) * (hi - lo) >> 32);
}
