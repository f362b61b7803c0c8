// Samples of rows.
#pragma once
#include "common.cuh"

// sampled_row returns row i of a sample, like gpu.SampledRow: a row of part i, which has `step` >> 20 rows. It is not
// always the first row of the part.
DEVICE u64 sampled_row(u64 i, u64 step) {
    const u64 lo = i * step >> 20, hi = (i + 1) * step >> 20;
    return lo + ((u64)(u32)((u32)i * 0x9e3779b9u) * (hi - lo) >> 32);
}
