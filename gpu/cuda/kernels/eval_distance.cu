// Distances of strings, by code points, which are bytes if both strings are ASCII. A thread compares two strings.
// Package eval of gpu/host has the same algorithms.
#include "eval_text.cuh"

enum Distance : i32 { LEVENSHTEIN, DAMERAU_LEVENSHTEIN, HAMMING, JACCARD, JARO, JARO_WINKLER };

DEVICE i64 least(i64 x, i64 y) { return x < y ? x : y; }
DEVICE i32 least(i32 x, i32 y) { return x < y ? x : y; }
DEVICE i64 greatest(i64 x, i64 y) { return x > y ? x : y; }

// Runes contains the code points of a string.
struct Runes {
    const i32* p;
    i64 n;
};

template <class S>
DEVICE i64 levenshtein(S x, S y, i32* row) {
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

// damerau_levenshtein uses linear memory (Zhao and Sahni: String correction using the Damerau-Levenshtein distance,
// 2019).
template <class S>
DEVICE i64 damerau_levenshtein(S x, S y, i32* rows) {
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
    for (i64 i = 0, j = 0; i < x.n && j < y.n;) {
        Rune r = decode(x.p + i, x.n - i), s = decode(y.p + j, y.n - j);
        count += r.code != s.code;
        i += r.size;
        j += s.size;
    }
    return count;
}

DEVICE double jaccard(Text x, Text y) {
    u64 sets[2][2] = {};
    for (i64 i = 0; i < x.n; i++) sets[0][x.p[i] / 64] |= 1ull << (x.p[i] % 64);
    for (i64 i = 0; i < y.n; i++) sets[1][y.p[i] / 64] |= 1ull << (y.p[i] % 64);
    i32 both = 0, either = 0;
    for (i32 w = 0; w < 2; w++) {
        both += __popcll(sets[0][w] & sets[1][w]);
        either += __popcll(sets[0][w] | sets[1][w]);
    }
    return (double)both / (double)either;
}

// sort_distinct sorts n numbers and removes duplicates. It returns how many numbers remain.
DEVICE i64 sort_distinct(i32* v, i64 n) {
    auto sink = [v](i64 at, i64 end) { // heap sort: the root of each subtree is its greatest number
        i32 x = v[at];
        for (i64 child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && v[child + 1] > v[child]) child++;
            if (v[child] <= x) break;
            v[at] = v[child];
        }
        v[at] = x;
    };
    for (i64 at = n / 2; at-- > 0;) sink(at, n);
    for (i64 end = n; end-- > 1;) {
        i32 greatest = v[0];
        v[0] = v[end];
        v[end] = greatest;
        sink(0, end);
    }
    i64 kept = 0;
    for (i64 i = 0; i < n; i++)
        if (kept == 0 || v[i] != v[kept - 1]) v[kept++] = v[i];
    return kept;
}

DEVICE double jaccard(i32* x, i64 nx, i32* y, i64 ny) {
    nx = sort_distinct(x, nx);
    ny = sort_distinct(y, ny);
    i64 both = 0;
    for (i64 i = 0, j = 0; i < nx && j < ny;) {
        i32 c = (x[i] > y[j]) - (x[i] < y[j]);
        both += c == 0;
        i += c <= 0;
        j += c >= 0;
    }
    return (double)both / (double)(nx + ny - both);
}

template <class S>
DEVICE double jaro(S x, S y, i32* row, bool winkler) {
    if (x.n == 0 || y.n == 0) return 0;
    // row contains the characters of x that have a partner, in order. A bit above the code point of row[j] tells
    // whether character j of y has a partner.
    constexpr i32 TAKEN = 1 << 24;
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
        if (row[j] & TAKEN) wrong += (i32)y.p[j] != (row[k++] & ~TAKEN);
    double m = (double)common;
    double v = (m / (double)x.n + m / (double)y.n + (m - (double)(wrong / 2)) / m) / 3;
    if (!winkler || v <= 0.7) return v;
    i64 prefix = 0;
    while (prefix < least(least(x.n, y.n), (i64)4) && x.p[prefix] == y.p[prefix]) prefix++;
    return v + (double)prefix * 0.1 * (1 - v);
}

DEVICE bool is_ascii(Text s) {
    u8 all = 0;
    for (i64 i = 0; i < s.n; i++) all |= s.p[i];
    return all < 0x80;
}

// needed returns the number of integers that the distance of mode takes for two strings: their code points, unless both
// are ASCII, and p rows of a matrix with two more columns than y has code points.
DEVICE i64 needed(Text x, Text y, i32 mode, i64 p) {
    if (mode == HAMMING) return 0;
    if (is_ascii(x) && is_ascii(y)) return p * (y.n + 2);
    i64 n = runes(y);
    return runes(x) + n + p * (n + 2);
}

// eval_distance_sizes writes to at the number of integers that the distance of x and y takes.
KERNEL(eval_distance_sizes, Args) {
    i64 i = global_thread();
    if (i < a.n) a.at[i] = bit(a.valid, i) ? needed(load_text(a.x, i), load_text(a.y, i), a.mode, a.p) : 0;
}

// decoded writes the code points of a string to out.
DEVICE i64 decoded(Text s, i32* out) {
    i64 n = 0;
    for (i64 i = 0; i < s.n; n++) {
        Rune r = decode(s.p + i, s.n - i);
        out[n] = (i32)r.code;
        i += r.size;
    }
    return n;
}

// measure returns the distance of mode of two strings. memory has room for `needed` integers.
DEVICE double measure(Text x, Text y, i32 mode, i32* memory) {
    if (mode == HAMMING) return (double)hamming(x, y);
    auto of = [=](auto x, auto y, i32* rows) -> double {
        switch (mode) {
        case LEVENSHTEIN: return (double)levenshtein(x, y, rows);
        case DAMERAU_LEVENSHTEIN: return (double)damerau_levenshtein(x, y, rows);
        }
        return jaro(x, y, rows, mode == JARO_WINKLER);
    };
    if (is_ascii(x) && is_ascii(y)) return mode == JACCARD ? jaccard(x, y) : of(x, y, memory);
    i32* second = memory + decoded(x, memory);
    i64 n = decoded(y, second);
    if (mode == JACCARD) return jaccard(memory, second - memory, second, n);
    return of(Runes{memory, second - memory}, Runes{second, n}, second + n);
}

// eval_distance computes the distance of mode of x and y. list has, by row, where in the integers of table its memory
// begins.
KERNEL(eval_distance, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    double v = 0;
    if (bit(a.valid, i)) v = measure(load_text(a.x, i), load_text(a.y, i), a.mode, (i32*)a.table + (a.list ? ((const i64*)a.list)[i] : 0));
    if (a.mode > HAMMING) store_float(a, i, v);
    else store_int(a, i, (i64)v);
}
