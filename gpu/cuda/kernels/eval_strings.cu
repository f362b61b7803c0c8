// Operations on strings in expression programs. Intermediate strings are views of the bytes of inputs, or of bytes that
// an operation made.
#include "eval_text.cuh"

constexpr u32 DROPPED = ~0u;

// eval_case maps every code point with table, which has p entries.
KERNEL(eval_case, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i);
        CaseTable table{(const u32*)a.table, a.p};
        for (i64 k = 0; k < s.n;) {
            Rune r = decode(s.p + k, s.n - k);
            u32 to = map_case(table, r.code);
            if (r.code == REPLACEMENT && r.size == 1) w.put(s.p[k]);
            else if (to != DROPPED) w.rune(to);
            k += r.size;
        }
    });
}

KERNEL(eval_reverse, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        for (Text s = load_text(a.x, i); s.n > 0;) {
            i32 size = decode_last(s.p, s.n).size;
            s.n -= size;
            w.put(s.p + s.n, size);
        }
    });
}

// eval_concat concatenates the p operands in list.
KERNEL(eval_concat, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        for (i64 k = 0; k < a.p; k++) w.put(load_text(a.list[k], i));
    });
}

KERNEL(eval_replace, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i), from = load_text(a.y, i), to = load_text(a.z, i);
        while (from.n > 0) {
            i64 k = find_text(s, from);
            if (k < 0) break;
            w.put(s.p, k);
            w.put(to);
            s = Text{s.p + k + from.n, s.n - k - from.n};
        }
        w.put(s);
    });
}

// eval_escape writes bytes other than plain ASCII as \xHH.
KERNEL(eval_escape, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        const char* hex = "0123456789ABCDEF";
        Text s = load_text(a.x, i);
        for (i64 k = 0; k < s.n; k++) {
            u8 c = s.p[k];
            if (c < ' ' || c > '~' || c == '\\' || c == '\'' || c == '"') {
                w.literal("\\x");
                w.put((u8)hex[c >> 4]);
                w.put((u8)hex[c & 15]);
            } else {
                w.put(c);
            }
        }
    });
}

// skip returns the byte offset of code point number count of s, or the end of s.
DEVICE i64 skip(Text s, i64 count) {
    i64 at = 0;
    for (; count > 0 && at < s.n; count--) at += decode(s.p + at, s.n - at).size;
    return at;
}

DEVICE i64 clamp(i64 v, i64 limit) { return v < -limit ? -limit : v > limit ? limit : v; }

// eval_substring returns z code points of x, starting at number y. If mode is 0, it returns all code points from there
// on. y counts from 1, or from the end if it is negative. A negative z selects the code points before y.
KERNEL(eval_substring, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    constexpr i64 FAR = 1ll << 40;
    Text s = load_text(a.x, i);
    i64 start = clamp((i64)load_int(a.y, i), FAR), length = a.mode ? clamp((i64)load_int(a.z, i), FAR) : FAR;
    if (start < 0) start += runes(s);
    else start--;
    i64 end = start + length;
    if (length < 0) {
        i64 swap = start;
        start = end;
        end = swap;
    }
    if (start < 0) start = 0;
    i64 from = skip(s, start);
    Text rest{s.p + from, s.n - from};
    ((Text*)a.out)[i] = Text{rest.p, end <= start ? 0 : skip(rest, end - start)};
}

DEVICE bool has_rune(Text set, u32 code) {
    for (i64 k = 0; k < set.n;) {
        Rune r = decode(set.p + k, set.n - k);
        if (r.code == code) return true;
        k += r.size;
    }
    return false;
}

// eval_trim removes code points of y at the left if mode has bit 0 set, and at the right with bit 1.
KERNEL(eval_trim, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text s = load_text(a.x, i), set = load_text(a.y, i);
    while ((a.mode & 1) && s.n > 0) {
        Rune r = decode(s.p, s.n);
        if (!has_rune(set, r.code)) break;
        s = Text{s.p + r.size, s.n - r.size};
    }
    while ((a.mode & 2) && s.n > 0) {
        Rune r = decode_last(s.p, s.n);
        if (!has_rune(set, r.code)) break;
        s.n -= r.size;
    }
    ((Text*)a.out)[i] = s;
}

// eval_length counts code points, or bytes if mode is 1.
KERNEL(eval_length, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text s = load_text(a.x, i);
    store_int(a, i, a.mode ? s.n : runes(s));
}

KERNEL(eval_position, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text s = load_text(a.x, i);
    i64 k = find_text(s, load_text(a.y, i));
    store_int(a, i, k < 0 ? 0 : runes(Text{s.p, k}) + 1);
}

template <class F>
DEVICE void test_text(const Args& a, F holds) {
    i64 i = global_thread();
    store_bits((u32*)a.out, a.n, i, i < a.n && holds(i, load_text(a.x, i)));
}

KERNEL(eval_starts_with, Args) {
    test_text(a, [&](i64 i, Text s) { return starts_with(s, load_text(a.y, i)); });
}
KERNEL(eval_ends_with, Args) {
    test_text(a, [&](i64 i, Text s) { return ends_with(s, load_text(a.y, i)); });
}
KERNEL(eval_contains, Args) {
    test_text(a, [&](i64 i, Text s) { return find_text(s, load_text(a.y, i)) >= 0; });
}

// Run is the part of a LIKE pattern between two % signs: plain bytes, or code points if tokens is set.
struct Run {
    Text text;
    const u32* tokens;
    i64 count;
};

constexpr u32 ANY = ~0u;             // the token of _
constexpr u32 RAW_BYTE = 0x80000000; // plus the byte: the token of a byte that is no code point

// Matcher compares strings with the runs of a pattern. With a case table it compares lower case, where a byte that is
// no code point counts as U+FFFD.
struct Matcher {
    CaseTable lower;

    __device__ u32 token(Text s, i32& size) {
        Rune r = decode(s.p, s.n);
        size = r.size;
        if (lower.map) return map_case(lower, r.code);
        return r.code == REPLACEMENT && r.size == 1 ? RAW_BYTE | s.p[0] : r.code;
    }

    // prefix returns the number of bytes that the run matches at the beginning of s, or -1.
    __device__ i64 prefix(const Run& run, Text s) {
        if (!run.tokens) return starts_with(s, run.text) ? run.text.n : -1;
        i64 at = 0;
        for (i64 k = 0; k < run.count; k++) {
            if (at >= s.n) return -1;
            i32 size;
            u32 t = token(Text{s.p + at, s.n - at}, size);
            if (run.tokens[k] != ANY && run.tokens[k] != t) return -1;
            at += size;
        }
        return at;
    }

    // find returns the end of the first match of the run, or -1.
    __device__ i64 find(const Run& run, Text s) {
        if (!run.tokens) {
            i64 k = find_text(s, run.text);
            return k < 0 ? -1 : k + run.text.n;
        }
        for (i64 at = 0; at < s.n; at += decode(s.p + at, s.n - at).size) {
            i64 size = prefix(run, Text{s.p + at, s.n - at});
            if (size >= 0) return at + size;
        }
        return -1;
    }

    // suffix reports whether the run matches at the end of s.
    __device__ bool suffix(const Run& run, Text s) {
        if (!run.tokens) return ends_with(s, run.text);
        i64 at = s.n;
        for (i64 k = 0; k < run.count; k++) {
            if (at == 0) return false;
            at -= decode_last(s.p, at).size;
        }
        return prefix(run, Text{s.p + at, s.n - at}) == s.n - at;
    }
};

// LikeMode is what eval_like's mode tells about the pattern in addition to its runs.
enum LikeMode : i32 { OPEN_LEFT = 1, OPEN_END = 2 };

// eval_like matches the p runs in set. It takes the leftmost match of each run, which is right because anything may be
// between them. table is the lower-case table with q entries, or null.
KERNEL(eval_like, Args) {
    test_text(a, [&](i64, Text s) {
        Matcher m{{(const u32*)a.table, a.q}};
        const Run* runs = (const Run*)a.set;
        i64 first = 0, last = a.p;
        bool open_end = a.mode & OPEN_END;
        if (!(a.mode & OPEN_LEFT) && first < last) {
            i64 n = m.prefix(runs[first++], s);
            if (n < 0) return false;
            s = Text{s.p + n, s.n - n};
        }
        if (first == last) return open_end || s.n == 0;
        if (!open_end) last--;
        for (; first < last; first++) {
            i64 n = m.find(runs[first], s);
            if (n < 0) return false;
            s = Text{s.p + n, s.n - n};
        }
        return open_end || m.suffix(runs[last], s);
    });
}

// From views to a column: sizes, offsets, bytes.

KERNEL(eval_text_sizes, Args) {
    i64 i = global_thread();
    if (i < a.n) a.at[i] = bit(a.valid, i) ? load_text(a.x, i).n : 0;
}

// eval_text_copy writes the n + 1 offsets to out and the strings to bytes. Eight
// lanes copy a string.
KERNEL(eval_text_copy, Args) {
    i64 i = global_thread();
    Text s{nullptr, 0};
    i64 at = 0;
    if (i <= a.n) {
        at = a.at[i];
        ((i32*)a.out)[i] = (i32)at;
        if (i < a.n && bit(a.valid, i)) s = load_text(a.x, i);
    }
    constexpr u32 LANES = 8, STRINGS = 32 / LANES;
    for (u32 k = 0; k < 32; k += STRINGS) {
        u32 from = k + lane_id() / LANES;
        const u8* p = (const u8*)__shfl_sync(ALL, (u64)s.p, from);
        i64 n = __shfl_sync(ALL, s.n, from), to = __shfl_sync(ALL, at, from);
        for (i64 b = lane_id() % LANES; b < n; b += LANES) a.bytes[to + b] = p[b];
    }
}

// ScanArgs is for the exclusive prefix sum of sizes, in place, followed by the total. It has three steps: sums of
// tiles, their prefix sums in one block, and the sizes again.
struct ScanArgs {
    i64* at;
    i64* tiles;
    i64 n;
};

constexpr i32 SCAN_ITEMS = 8; // sizes that a thread scans

DEVICE i64 load_items(const ScanArgs& a, i64 (&v)[SCAN_ITEMS]) {
    i64 sum = 0, from = global_thread() * SCAN_ITEMS;
    for (i32 k = 0; k < SCAN_ITEMS; k++) sum += v[k] = from + k < a.n ? a.at[from + k] : 0;
    return sum;
}

KERNEL(eval_scan_sums, ScanArgs) {
    __shared__ i64 warps[33];
    i64 v[SCAN_ITEMS];
    i64 sum = block_sum(load_items(a, v), warps);
    if (threadIdx.x == 0) a.tiles[blockIdx.x] = sum;
}

// eval_scan_tiles runs in one block; n is the number of tiles.
KERNEL(eval_scan_tiles, ScanArgs) {
    __shared__ i64 warps[33];
    i64 before = 0;
    for (i64 from = 0; from < a.n; from += blockDim.x) {
        i64 k = from + threadIdx.x, total;
        i64 v = block_exclusive(k < a.n ? a.tiles[k] : 0, warps, total);
        if (k < a.n) a.tiles[k] = before + v;
        before += total;
    }
}

KERNEL(eval_scan_apply, ScanArgs) {
    __shared__ i64 warps[33];
    i64 v[SCAN_ITEMS], total;
    i64 at = a.tiles[blockIdx.x] + block_exclusive(load_items(a, v), warps, total);
    i64 from = global_thread() * SCAN_ITEMS;
    for (i32 k = 0; k < SCAN_ITEMS && from + k <= a.n; k++) {
        a.at[from + k] = at;
        at += v[k];
    }
}
