// Operations on nested values in expression programs. A nested value is a string of bytes, in the encoding of
// gpu/nested.go.
#include "eval_text.cuh"

enum Tag : u8 { END = 0x00, FIXED = 0x01, FLOAT32 = 0x06, FLOAT64 = 0x07, BYTES = 0x08, OPEN = 0x09, NONE_TAG = 0xff };

// skip_nested returns the length of the encoding at the start of s, and all of it if the encoding does not end.
DEVICE i64 skip_nested(Text s) {
    i64 depth = 0;
    for (i64 i = 0; i < s.n;) {
        u8 tag = s.p[i++];
        if (tag == END) {
            depth--;
        } else if (tag < FLOAT32) {
            i += 1 << (tag - FIXED);
        } else if (tag == FLOAT32) {
            i += 4;
        } else if (tag == FLOAT64) {
            i += 8;
        } else if (tag == BYTES) {
            for (;;) {
                while (i < s.n && s.p[i] != 0) i++;
                if (i >= s.n) return s.n;
                i += 2;
                if (i > s.n || s.p[i - 1] == 0) break;
            }
        } else if (tag == OPEN) {
            depth++;
        }
        if (depth <= 0) return i < s.n ? i : s.n;
    }
    return s.n;
}

// elements returns what next_nested reads: the elements of a list, struct or map.
DEVICE Text elements(Text s) { return s.n > 0 && s.p[0] == OPEN ? Text{s.p + 1, s.n - 1} : Text{s.p, 0}; }

// next_nested splits the first element off, and returns false if there is none.
DEVICE bool next_nested(Text& rest, Text& first) {
    if (rest.n == 0 || rest.p[0] == END) return false;
    i64 n = skip_nested(rest);
    first = Text{rest.p, n};
    rest = Text{rest.p + n, rest.n - n};
    return true;
}

DEVICE i64 count_nested(Text s) {
    Text rest = elements(s), one;
    i64 n = 0;
    while (next_nested(rest, one)) n++;
    return n;
}

// element_nested finds element k, which counts from 1, or from the end if it is negative. It returns false for a null
// and if there is no such element.
DEVICE bool element_nested(Text s, i128 k, Text& one) {
    if (k < 0) k += count_nested(s) + 1;
    Text rest = elements(s);
    for (; k > 0 && next_nested(rest, one); k--)
        if (k == 1) return one.p[0] != NONE_TAG;
    return false;
}

// fixed_nested reads the value of an encoding, which has an integer of a signed type or of an unsigned one.
DEVICE u128 fixed_nested(Text s, bool is_signed) {
    u128 v = 0;
    if (s.p[0] < FIXED || s.p[0] >= FLOAT32) return 0;
    i32 width = 1 << (s.p[0] - FIXED);
    if (s.n < 1 + width) return 0;
    for (i32 k = 1; k <= width; k++) v = v << 8 | s.p[k];
    if (!is_signed) return v;
    i32 shift = 128 - 8 * width;
    return (u128)((i128)((v ^ (u128)1 << (8 * width - 1)) << shift) >> shift);
}

DEVICE void put_big_endian(Writer& w, u128 v, i32 width) {
    for (i32 k = width - 1; k >= 0; k--) w.put((u8)(v >> (8 * k)));
}

// eval_nest_int writes the encodings of integers: p bytes, of which q says whether they have a sign.
KERNEL(eval_nest_int, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        if (!valid_at(a.x, i)) return w.put(NONE_TAG);
        u128 v = (u128)load_int(a.x, i);
        i32 width = (i32)a.p, tag = FIXED;
        for (i32 k = 1; k < width; k *= 2) tag++;
        w.put((u8)tag);
        put_big_endian(w, a.q ? v ^ (u128)1 << (8 * width - 1) : v, width);
    });
}

// eval_nest_float writes the encodings of floats of p bytes.
KERNEL(eval_nest_float, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        if (!valid_at(a.x, i)) return w.put(NONE_TAG);
        double v = load_float(a.x, i);
        u64 bits = a.p == 4 ? (u64)(u32)__float_as_int((float)v) : (u64)__double_as_longlong(v);
        u64 top = (u64)1 << (8 * a.p - 1);
        if (v != v) bits = a.p == 4 ? 0x7fc00000ull | top : 0x7ff8ull << 48 | top;
        else bits = bits & top ? ~bits : bits | top;
        w.put((u8)(a.p == 4 ? FLOAT32 : FLOAT64));
        put_big_endian(w, bits, (i32)a.p);
    });
}

KERNEL(eval_nest_text, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        if (!valid_at(a.x, i)) return w.put(NONE_TAG);
        Text s = load_text(a.x, i);
        w.put(BYTES);
        for (i64 k = 0; k < s.n; k++) {
            w.put(s.p[k]);
            if (s.p[k] == 0) w.put(0xff);
        }
        w.put(0);
        w.put(0);
    });
}

KERNEL(eval_nest_nested, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        if (!valid_at(a.x, i)) w.put(NONE_TAG);
        else w.put(load_text(a.x, i));
    });
}

DEVICE bool element_at(const Args& a, i64 i, Text& one) {
    return i < a.n && bit(a.valid, i) && element_nested(load_text(a.x, i), load_int(a.y, i), one);
}

// eval_element_int reads element y of x; q says whether its type has a sign.
KERNEL(eval_element_int, Args) {
    i64 i = global_thread();
    Text one;
    bool found = element_at(a, i, one);
    if (i < a.n) store_int(a, i, found ? (i128)fixed_nested(one, a.q) : 0);
    settle(a, i, found ? VALUE : NONE);
}

KERNEL(eval_element_bits, Args) {
    i64 i = global_thread();
    Text one;
    bool found = element_at(a, i, one);
    store_bits((u32*)a.out, a.n, i, found && fixed_nested(one, false) != 0);
    settle(a, i, found ? VALUE : NONE);
}

KERNEL(eval_element_float, Args) {
    i64 i = global_thread();
    Text one;
    bool found = element_at(a, i, one);
    if (i < a.n) {
        u64 v = 0;
        i32 width = found && one.p[0] == FLOAT32 ? 4 : 8;
        if (found && one.n >= 1 + width && (one.p[0] == FLOAT32 || one.p[0] == FLOAT64)) {
            for (i32 k = 1; k <= width; k++) v = v << 8 | one.p[k];
            u64 top = (u64)1 << (8 * width - 1);
            v = v & top ? v & ~top : ~v;
            if (width == 4) v &= 0xffffffff;
            if (width == 4) store_float(a, i, (double)__int_as_float((i32)(u32)v));
            else store_float(a, i, __longlong_as_double((i64)v));
        } else {
            store_float(a, i, 0);
        }
    }
    settle(a, i, found ? VALUE : NONE);
}

// eval_element_text first counts, like the operations that make strings. It settles in the run that writes.
KERNEL(eval_element_text, Args) {
    i64 i = global_thread();
    Text one;
    bool found = element_at(a, i, one);
    if (i < a.n) {
        Writer w{a.out ? a.bytes + a.at[i] : nullptr, 0};
        if (found && one.p[0] == BYTES) {
            for (i64 k = 1; k < one.n; k++) {
                if (one.p[k] == 0 && (k + 1 >= one.n || one.p[k + 1] == 0)) break;
                w.put(one.p[k]);
                if (one.p[k] == 0) k++;
            }
        }
        if (a.out) ((Text*)a.out)[i] = Text{w.p, w.n};
        else a.at[i] = w.n;
    }
    if (a.out) settle(a, i, found ? VALUE : NONE);
}

KERNEL(eval_element_nested, Args) {
    i64 i = global_thread();
    Text one;
    bool found = element_at(a, i, one);
    if (i < a.n) ((Text*)a.out)[i] = found ? one : Text{nullptr, 0};
    settle(a, i, found ? VALUE : NONE);
}

KERNEL(eval_count_elements, Args) {
    i64 i = global_thread();
    if (i < a.n) store_int(a, i, count_nested(load_text(a.x, i)));
}

// eval_find_element returns the position of the first element of x whose encoding is y, or whose field mode is; 0
// without one.
KERNEL(eval_find_element, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text rest = elements(load_text(a.x, i)), y = load_text(a.y, i), one;
    i64 at = 0;
    for (i64 k = 1; at == 0 && next_nested(rest, one); k++) {
        Text part = one;
        if (a.mode > 0) {
            Text fields = elements(one);
            part.n = 0;
            for (i32 f = 0; f < a.mode && next_nested(fields, part); f++) {}
        }
        if (part.n == y.n && equal_bytes(part.p, y.p, y.n)) at = k;
    }
    store_int(a, i, at);
}

// eval_slice_elements returns elements y to z of x, which count from 1, or from the end if they are negative.
KERNEL(eval_slice_elements, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i), one;
        i128 from = load_int(a.y, i), to = load_int(a.z, i);
        if (from < 0 || to < 0) {
            i64 n = count_nested(s);
            if (from < 0) from += n + 1;
            if (to < 0) to += n + 1;
        }
        w.put(OPEN);
        Text rest = elements(s);
        for (i64 k = 1; k <= to && next_nested(rest, one); k++)
            if (k >= from) w.put(one);
        w.put(END);
    });
}

// eval_pluck_elements returns the list of field p of each element.
KERNEL(eval_pluck_elements, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text rest = elements(load_text(a.x, i)), one, part;
        w.put(OPEN);
        while (next_nested(rest, one)) {
            Text fields = elements(one);
            i64 k = 0;
            while (k < a.p && next_nested(fields, part)) k++;
            if (k == a.p && k > 0) w.put(part);
            else w.put(NONE_TAG);
        }
        w.put(END);
    });
}

// eval_flatten_elements returns the elements of the elements of x.
KERNEL(eval_flatten_elements, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text rest = elements(load_text(a.x, i)), one, inner;
        w.put(OPEN);
        while (next_nested(rest, one)) {
            Text in = elements(one);
            while (next_nested(in, inner)) w.put(inner);
        }
        w.put(END);
    });
}

// eval_join_elements returns the elements of x, then those of y.
KERNEL(eval_join_elements, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        w.put(OPEN);
        for (i32 k = 0; k < 2; k++) {
            Text rest = elements(load_text(k ? a.y : a.x, i)), one;
            while (next_nested(rest, one)) w.put(one);
        }
        w.put(END);
    });
}

// eval_zip_elements returns structs of an element of x and one of y, null behind the end of one.
KERNEL(eval_zip_elements, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text x = elements(load_text(a.x, i)), y = elements(load_text(a.y, i)), one, other;
        w.put(OPEN);
        for (;;) {
            bool in_x = next_nested(x, one), in_y = next_nested(y, other);
            if (!in_x && !in_y) break;
            w.put(OPEN);
            if (in_x) w.put(one);
            else w.put(NONE_TAG);
            if (in_y) w.put(other);
            else w.put(NONE_TAG);
            w.put(END);
        }
        w.put(END);
    });
}

// eval_canonical returns x with zeros without a sign.
KERNEL(eval_canonical, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Text s = load_text(a.x, i);
        for (i64 at = 0; at < s.n;) {
            u8 tag = s.p[at];
            i64 size = 1;
            if (tag != END && tag != OPEN) size = skip_nested(Text{s.p + at, s.n - at});
            bool zero = (tag == FLOAT32 && size == 5) || (tag == FLOAT64 && size == 9);
            for (i64 k = 1; k < size && zero; k++) zero = s.p[at + k] == (k == 1 ? 0x7f : 0xff);
            if (!zero) {
                w.put(Text{s.p + at, size});
            } else {
                w.put(tag);
                w.put(0x80);
                for (i64 k = 2; k < size; k++) w.put(0);
            }
            at += size;
        }
    });
}

// eval_elements counts the elements of each row in at if bytes is null. Otherwise at has the position of the first one
// of each row, and the total. bytes receives these positions in 32 bits, out the row of each element, set its position
// in its row, and table where its encoding is.
KERNEL(eval_elements, Args) {
    i64 i = global_thread();
    if (i >= a.n + (a.bytes != nullptr)) return;
    Text s = i < a.n && valid_at(a.x, i) ? load_text(a.x, i) : Text{nullptr, 0};
    if (!a.bytes) {
        a.at[i] = count_nested(s);
        return;
    }
    i64 first = a.at[i];
    ((i32*)a.bytes)[i] = (i32)first;
    Text rest = elements(s), one;
    for (i64 k = first; next_nested(rest, one); k++) {
        ((i32*)a.out)[k] = (i32)i;
        ((i64*)a.set)[k] = k - first + 1;
        ((Text*)a.table)[k] = one;
    }
}

// eval_wrap_element makes a list of each encoding.
KERNEL(eval_wrap_element, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        w.put(OPEN);
        w.put(load_text(a.x, i));
        w.put(END);
    });
}
