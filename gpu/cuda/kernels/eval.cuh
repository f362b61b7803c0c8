// Definitions that the kernels of expression programs share: operands of any type, where the result of a row is stored,
// and what happens to rows without a result.
//
// There is one kernel for each operation and class of types (whole numbers, floats, strings). Each row branches on the
// width of values. All threads take the same branch, so this costs little compared with the memory traffic. Whole
// numbers are computed in 128 bits and checked against the bounds of the result's type.
#pragma once

#include "common.cuh"

// Layout is how values are stored in memory. VIEW is an array of Text, TEXT is bytes with offsets.
enum Layout : i32 { I8, I16, I32, I64, U8, U16, U32, U64, I128, F32, F64, BITS, TEXT, VIEW };

// Text is a string anywhere in device memory.
struct Text {
    const u8* p;
    i64 n;
};

// Operand is an argument of an operation: a column, a dictionary-coded column (codes is set) or one value for all rows.
// lo and hi contain a constant number. A constant float is stored as the bits of a double. For a constant string, lo is
// the length.
struct Operand {
    const void* data;
    const i32* offsets; // TEXT
    const i32* codes;   // row i has value codes[i]; null: value i
    const u32* valid;   // by row; null: no row is null
    u64 lo;
    i64 hi;
    i32 layout;
    i32 constant;
};

// Args are the arguments of all kernels that work row by row. An operation uses the fields that it needs.
struct Args {
    Operand x, y, z;
    const Operand* list; // the arguments of a concatenation
    void* out;           // the results, of the given layout
    u32* nulls;          // their validity, written if set
    // The operation may fail on these rows: valid, and mask true and not null.
    const u32* valid;
    const u32* mask;
    const u32* mask_valid;
    u32* error;      // the first row that failed; null: a failure produces a null
    const void* set; // tables of the operation
    const void* table;
    u64 lo_low, hi_low; // bounds of the result
    i64 lo_high, hi_high;
    i64 p, q; // small operands
    double scale;
    i64 infinity_x, infinity; // 'infinity' of the first argument and of the result; 0: there is none
    i64* at;  // byte offsets of the strings made, one for each row, and the total
    u8* bytes;
    i64 n; // rows
    i32 layout;
    i32 mode;
};

// Go has structs of the same layout.
static_assert(sizeof(Operand) == 56 && sizeof(Args) == 344);

DEVICE i128 make128(u64 lo, i64 hi) { return (i128)(((u128)(u64)hi << 64) | lo); }

DEVICE bool valid_at(const Operand& x, i64 i) { return bit(x.valid, i); }

// index_of returns the index of row i's value. The code of a null row is arbitrary.
DEVICE i64 index_of(const Operand& x, i64 i) { return !x.codes ? i : valid_at(x, i) ? x.codes[i] : 0; }

// load_int reads a whole number, the integer that stores a decimal, date or time, or the raw bits of a value of up to
// 16 bytes.
DEVICE i128 load_int(const Operand& x, i64 i) {
    if (x.constant) return make128(x.lo, x.hi);
    i = index_of(x, i);
    switch (x.layout) {
    case I8: return ((const i8*)x.data)[i];
    case I16: return ((const i16*)x.data)[i];
    case I32: return ((const i32*)x.data)[i];
    case I64: return ((const i64*)x.data)[i];
    case U8: return ((const u8*)x.data)[i];
    case U16: return ((const u16*)x.data)[i];
    case U32: return ((const u32*)x.data)[i];
    case U64: return ((const u64*)x.data)[i];
    case BITS: return bit((const u32*)x.data, i);
    }
    const u64* word = (const u64*)x.data + 2 * i;
    return make128(word[0], (i64)word[1]);
}

// load_float reads a float as a double.
DEVICE double load_float(const Operand& x, i64 i) {
    if (x.constant) return __longlong_as_double((i64)x.lo);
    i = index_of(x, i);
    return x.layout == F32 ? (double)((const float*)x.data)[i] : ((const double*)x.data)[i];
}

DEVICE Text load_text(const Operand& x, i64 i) {
    if (x.constant) return Text{(const u8*)x.data, (i64)x.lo};
    i = index_of(x, i);
    if (x.layout == VIEW) return ((const Text*)x.data)[i];
    i32 from = x.offsets[i];
    return Text{(const u8*)x.data + from, x.offsets[i + 1] - from};
}

DEVICE void store_int(const Args& a, i64 i, i128 v) {
    switch (a.layout) {
    case I8: case U8: ((u8*)a.out)[i] = (u8)v; return;
    case I16: case U16: ((u16*)a.out)[i] = (u16)v; return;
    case I32: case U32: ((u32*)a.out)[i] = (u32)v; return;
    case I64: case U64: ((u64*)a.out)[i] = (u64)v; return;
    }
    u64* word = (u64*)a.out + 2 * i;
    word[0] = (u64)v;
    word[1] = (u64)(v >> 64);
}

DEVICE void store_float(const Args& a, i64 i, double v) {
    if (a.layout == F32) ((float*)a.out)[i] = (float)v;
    else ((double*)a.out)[i] = v;
}

DEVICE bool in_bounds(const Args& a, i128 v) {
    return make128(a.lo_low, a.lo_high) <= v && v <= make128(a.hi_low, a.hi_high);
}

// store_bits writes 32 rows of a bitmap, one bit for each lane. Bits past the last row, up to the end of the 64-bit
// word, become zero. All lanes of the warp call it.
DEVICE void store_bits(u32* out, i64 n, i64 i, bool v) {
    u32 word = __ballot_sync(ALL, i < n && v);
    if (lane_id() == 0 && i < (n + 63) / 64 * 64) out[i >> 5] = word;
}

// Outcome of an operation on a row: a value, a null although no argument is null, or a failure.
enum Outcome { VALUE, NONE, FAILED };

// settle records the outcome of row i. A failure counts where the row is valid and the mask is true. Anywhere else it
// produces a null. All lanes of the warp call it.
DEVICE void settle(const Args& a, i64 i, Outcome outcome) {
    bool valid = i < a.n && bit(a.valid, i);
    bool live = valid && outcome == FAILED && bit(a.mask, i) && bit(a.mask_valid, i);
    u32 failing = __ballot_sync(ALL, live);
    if (failing && a.error && lane_id() == 0) atomicMin(a.error, (u32)i + __ffs(failing) - 1);
    if (a.nulls) store_bits(a.nulls, a.n, i, valid && outcome == VALUE);
}

// settle_int stores a whole number and settles. Unless the number is infinite, it must be within the bounds, which are
// those of finite dates.
DEVICE void settle_int(const Args& a, i64 i, i128 v, Outcome outcome, bool infinite = false) {
    if (i < a.n) {
        if (outcome == VALUE && !infinite && !in_bounds(a, v)) outcome = FAILED;
        store_int(a, i, outcome == VALUE ? v : 0);
    }
    settle(a, i, outcome);
}

// is_infinite reports whether v is 'infinity' or '-infinity'. A type without infinity has an infinity of 0.
DEVICE bool is_infinite(i64 infinity, i128 v) { return infinity && (v == infinity || v == -infinity); }
