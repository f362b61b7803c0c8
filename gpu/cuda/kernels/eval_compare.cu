// Comparisons, sets, logic and conditional values in expression programs.
#include "eval_text.cuh"

// compare_rows compares row by row. The result is true for "less" if mode has bit 0 set, for "equal" with bit 1, for
// "greater" with bit 2. With p, null is a value that equals only itself.
template <class F>
DEVICE void compare_rows(const Args& a, F order) {
    i64 i = global_thread();
    bool r = false;
    if (i < a.n) {
        bool x = true, y = true;
        if (a.p) x = valid_at(a.x, i), y = valid_at(a.y, i);
        i32 c = x && y ? order(i) : x - y;
        r = a.mode >> (c + 1) & 1;
    }
    store_bits((u32*)a.out, a.n, i, r);
}

KERNEL(eval_compare_int, Args) {
    compare_rows(a, [&](i64 i) {
        i128 x = load_int(a.x, i), y = load_int(a.y, i);
        return (i32)(x > y) - (i32)(x < y);
    });
}

// NaN equals itself and is above all numbers.
KERNEL(eval_compare_float, Args) {
    compare_rows(a, [&](i64 i) {
        double x = load_float(a.x, i), y = load_float(a.y, i);
        if (isnan(x) || isnan(y)) return (i32)isnan(x) - (i32)isnan(y);
        return (i32)(x > y) - (i32)(x < y);
    });
}

KERNEL(eval_compare_text, Args) {
    compare_rows(a, [&](i64 i) { return compare_text(load_text(a.x, i), load_text(a.y, i)); });
}

// found searches p values in ascending order. order(k) compares the row's value with value k.
template <class F>
DEVICE bool found(const Args& a, F order) {
    i64 from = 0, to = a.p;
    while (from < to) {
        i64 k = (from + to) / 2;
        i32 c = order(k);
        if (c == 0) return true;
        if (c < 0) to = k;
        else from = k + 1;
    }
    return false;
}

DEVICE bool in_integers(const Args& a, i128 x) {
    return found(a, [&](i64 k) {
        const u64* word = (const u64*)a.set + 2 * k;
        i128 y = make128(word[0], (i64)word[1]);
        return (i32)(x > y) - (i32)(x < y);
    });
}

// The set of whole numbers is an array of 128-bit integers.
KERNEL(eval_in_int, Args) {
    i64 i = global_thread();
    store_bits((u32*)a.out, a.n, i, i < a.n && in_integers(a, load_int(a.x, i)));
}

// The set of floats is an array of the bits of doubles as 128-bit integers. -0 is stored as +0, and every NaN as the
// NaN in q.
KERNEL(eval_in_float, Args) {
    i64 i = global_thread();
    bool r = false;
    if (i < a.n) {
        double x = load_float(a.x, i) + 0.0;
        r = in_integers(a, isnan(x) ? (u64)a.q : (u64)__double_as_longlong(x));
    }
    store_bits((u32*)a.out, a.n, i, r);
}

// The set of strings consists of p + 1 offsets, and of the bytes in table.
KERNEL(eval_in_text, Args) {
    i64 i = global_thread();
    bool r = false;
    if (i < a.n) {
        Text x = load_text(a.x, i);
        const i64* offsets = (const i64*)a.set;
        r = found(a, [&](i64 k) {
            return compare_text(x, Text{(const u8*)a.table + offsets[k], offsets[k + 1] - offsets[k]});
        });
    }
    store_bits((u32*)a.out, a.n, i, r);
}

// Bitmap operations process 32 rows a thread, on all words up to the end of the last 64-bit word. Bits past the last
// row become zero.

DEVICE i64 bitmap_words(i64 n) { return (n + 63) / 64 * 2; }

DEVICE u32 rows_of_word(i64 n, i64 w) {
    i64 rest = n - w * 32;
    return rest >= 32 ? ALL : rest <= 0 ? 0 : (1u << rest) - 1;
}

DEVICE u32 word_or_ones(const u32* bitmap, i64 w) { return bitmap ? bitmap[w] : ALL; }

// Bitmaps are the arguments of operations on bitmaps: values and validity of up to three operands, and of the result.
struct Bitmaps {
    const u32* x;
    const u32* x_valid;
    const u32* y;
    const u32* y_valid;
    const u32* z;
    const u32* z_valid;
    u32* out;
    u32* out_valid; // may be null
    i64 n;
};

// eval_and_bits computes the AND of validity bitmaps x and y.
KERNEL(eval_and_bits, Bitmaps) {
    i64 w = global_thread();
    if (w < bitmap_words(a.n)) a.out[w] = a.x[w] & a.y[w] & rows_of_word(a.n, w);
}

// eval_set_bits writes x, or one value if x is null. Bits past the end become zero.
struct SetBits {
    const u32* x;
    u32* out;
    i64 n;
    i64 value;
};
KERNEL(eval_set_bits, SetBits) {
    i64 w = global_thread();
    if (w < bitmap_words(a.n)) a.out[w] = (a.x ? a.x[w] : a.value ? ALL : 0) & rows_of_word(a.n, w);
}

KERNEL(eval_not, Bitmaps) {
    i64 w = global_thread();
    if (w < bitmap_words(a.n)) a.out[w] = ~a.x[w] & rows_of_word(a.n, w);
}

// Three-valued AND, and OR as the AND of the negations. AND is true where both are certainly true, and false where one
// is certainly false.
DEVICE void connect(const Bitmaps& a, u32 flip) {
    i64 w = global_thread();
    if (w >= bitmap_words(a.n)) return;
    u32 x = a.x[w] ^ flip, y = a.y[w] ^ flip;
    u32 known_x = word_or_ones(a.x_valid, w), known_y = word_or_ones(a.y_valid, w);
    u32 yes = x & known_x & y & known_y, no = (~x & known_x) | (~y & known_y);
    u32 rows = rows_of_word(a.n, w);
    a.out[w] = (yes ^ flip) & rows;
    if (a.out_valid) a.out_valid[w] = (yes | no) & rows;
}

KERNEL(eval_and, Bitmaps) { connect(a, 0); }
KERNEL(eval_or, Bitmaps) { connect(a, ALL); }

// eval_is_null and eval_is_not_null read x_valid.
KERNEL(eval_is_null, Bitmaps) {
    i64 w = global_thread();
    if (w < bitmap_words(a.n)) a.out[w] = ~word_or_ones(a.x_valid, w) & rows_of_word(a.n, w);
}
KERNEL(eval_is_not_null, Bitmaps) {
    i64 w = global_thread();
    if (w < bitmap_words(a.n)) a.out[w] = word_or_ones(a.x_valid, w) & rows_of_word(a.n, w);
}

// eval_select_bits selects y where x is true, and z elsewhere. out may be null if only the validity is wanted.
KERNEL(eval_select_bits, Bitmaps) {
    i64 w = global_thread();
    if (w >= bitmap_words(a.n)) return;
    u32 take = a.x[w] & word_or_ones(a.x_valid, w), rows = rows_of_word(a.n, w);
    if (a.out) a.out[w] = ((a.y[w] & take) | (a.z[w] & ~take)) & rows;
    if (a.out_valid)
        a.out_valid[w] = ((word_or_ones(a.y_valid, w) & take) | (word_or_ones(a.z_valid, w) & ~take)) & rows;
}

DEVICE bool chosen(const Args& a, i64 i) { return bit((const u32*)a.x.data, i) && valid_at(a.x, i); }

// eval_select selects y where the bitmap x is true, and z elsewhere. Values are copied unchanged. The result is checked
// only for decimals of two widths.
KERNEL(eval_select, Args) {
    i64 i = global_thread();
    settle_int(a, i, i < a.n ? chosen(a, i) ? load_int(a.y, i) : load_int(a.z, i) : 0, VALUE);
}

KERNEL(eval_select_text, Args) {
    i64 i = global_thread();
    if (i < a.n) ((Text*)a.out)[i] = chosen(a, i) ? load_text(a.y, i) : load_text(a.z, i);
}

// eval_move copies x's values unchanged, or one value to all rows.
KERNEL(eval_move, Args) {
    i64 i = global_thread();
    if (i < a.n) store_int(a, i, load_int(a.x, i));
}

KERNEL(eval_move_bits, Args) {
    i64 i = global_thread();
    store_bits((u32*)a.out, a.n, i, i < a.n && load_int(a.x, i) != 0);
}

// eval_null_codes copies dictionary codes, with code p for nulls.
KERNEL(eval_null_codes, Args) {
    i64 i = global_thread();
    if (i < a.n) ((i32*)a.out)[i] = valid_at(a.x, i) ? ((const i32*)a.x.data)[i] : (i32)a.p;
}
