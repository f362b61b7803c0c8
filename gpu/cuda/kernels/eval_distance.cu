// Distances of texts, byte by byte. A thread compares two texts; gpu/host/eval_distance.go
// has the same algorithms.
#include "eval_text.cuh"

enum Distance : i32 { LEVENSHTEIN, DAMERAU_LEVENSHTEIN, HAMMING, JACCARD, JARO, JARO_WINKLER };

DEVICE i64 least(i64 x, i64 y) { return x < y ? x : y; }
DEVICE i32 least(i32 x, i32 y) { return x < y ? x : y; }
DEVICE i64 greatest(i64 x, i64 y) { return x > y ? x : y; }

DEVICE i64 levenshtein(Text x, Text y, i32* row) {
    for (i64 j = 0; j <= y.n; j++) row[j] = (i32)j;
    for (i64 i = 0; i < x.n; i++) {
        i32 diagonal = row[0]++;
        for (i64 j = 0; j < y.n; j++) {
            i32 cost = diagonal + (x.p[i] != y.p[j]);
            diagonal = row[j + 1];
            row[j + 1] = least(cost, least(diagonal, row[j]) + 1);
        }
    }
    return row[y.n];
}

// In linear memory (Zhao and Sahni: String correction using the Damerau-Levenshtein
// distance, 2019).
DEVICE i64 damerau_levenshtein(Text x, Text y, i32* rows) {
    i64 n = y.n + 2;
    i32 *before = rows, *row = rows + n, *saved = rows + 2 * n, *last = rows + 3 * n;
    i32 far = (i32)greatest(x.n, y.n) + 1;
    for (i64 j = 0; j < n; j++) {
        before[j] = saved[j] = far;
        last[j] = -1;
        row[j] = (i32)j - 1;
    }
    row[0] = far;
    for (i32 i = 1; i <= x.n; i++) {
        i32* swap = before;
        before = row;
        row = swap;
        i32 last_column = -1, two = row[1], kept = far;
        row[1] = i;
        for (i32 j = 1; j <= y.n; j++) {
            i32 v;
            if (x.p[i - 1] == y.p[j - 1]) {
                v = least(before[j], least(row[j], before[j + 1]) + 1);
                last_column = j;
                kept = two;
                saved[j + 1] = before[j - 1];
            } else {
                v = least(before[j], least(row[j], before[j + 1])) + 1;
                if (j - last_column == 1) v = least(v, saved[j + 1] + i - last[j + 1]);
                else if (i - last[j + 1] == 1) v = least(v, kept + j - last_column);
            }
            two = row[j + 1];
            row[j + 1] = v;
        }
        for (i64 j = 0; j < y.n; j++)
            if (y.p[j] == x.p[i - 1]) last[j + 2] = i;
    }
    return row[n - 1];
}

DEVICE i64 hamming(Text x, Text y) {
    i64 count = 0;
    for (i64 i = 0; i < least(x.n, y.n); i++) count += x.p[i] != y.p[i];
    return count;
}

DEVICE double jaccard(Text x, Text y) {
    u64 sets[2][4] = {};
    for (i64 i = 0; i < x.n; i++) sets[0][x.p[i] / 64] |= 1ull << (x.p[i] % 64);
    for (i64 i = 0; i < y.n; i++) sets[1][y.p[i] / 64] |= 1ull << (y.p[i] % 64);
    i32 both = 0, either = 0;
    for (i32 w = 0; w < 4; w++) {
        both += __popcll(sets[0][w] & sets[1][w]);
        either += __popcll(sets[0][w] | sets[1][w]);
    }
    return (double)both / (double)either;
}

DEVICE double jaro(Text x, Text y, i32* row, bool winkler) {
    if (x.n == 0 || y.n == 0) return 0;
    // row has the bytes of x that have a partner, in their order, and in bit 8 of place
    // j whether byte j of y has one.
    constexpr i32 TAKEN = 1 << 8;
    i64 reach = greatest(greatest(x.n, y.n) / 2 - 1, 0), common = 0;
    for (i64 j = 0; j < y.n; j++) row[j] = 0;
    for (i64 i = 0; i < x.n; i++)
        for (i64 j = greatest(0, i - reach); j < least(y.n, i + reach + 1); j++)
            if (x.p[i] == y.p[j] && !(row[j] & TAKEN)) {
                row[j] |= TAKEN;
                row[common++] |= x.p[i];
                break;
            }
    if (common == 0) return 0;
    i64 wrong = 0, k = 0;
    for (i64 j = 0; j < y.n; j++)
        if (row[j] & TAKEN) wrong += y.p[j] != (u8)row[k++];
    double m = (double)common;
    double v = (m / (double)x.n + m / (double)y.n + (m - (double)(wrong / 2)) / m) / 3;
    if (!winkler || v <= 0.7) return v;
    i64 prefix = 0;
    while (prefix < least(least(x.n, y.n), (i64)4) && x.p[prefix] == y.p[prefix]) prefix++;
    return v + (double)prefix * 0.1 * (1 - v);
}

// eval_distance is the distance of mode of x and y. table has p rows of integers for
// each text of y, with two more columns than it has bytes; list is where the texts lie.
KERNEL(eval_distance, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    bool there = bit(a.valid, i);
    Text x{nullptr, 0}, y{nullptr, 0};
    if (there) {
        x = load_text(a.x, i);
        y = load_text(a.y, i);
    }
    i32* rows = a.p ? (i32*)a.table + (((const i64*)a.list)[i] + 2 * i) * a.p : nullptr;
    if (a.mode > HAMMING) {
        store_float(a, i, !there ? 0 : a.mode == JACCARD ? jaccard(x, y) : jaro(x, y, rows, a.mode == JARO_WINKLER));
        return;
    }
    i64 v = 0;
    if (there) v = a.mode == LEVENSHTEIN ? levenshtein(x, y, rows) : a.mode == HAMMING ? hamming(x, y) : damerau_levenshtein(x, y, rows);
    store_int(a, i, v);
}
