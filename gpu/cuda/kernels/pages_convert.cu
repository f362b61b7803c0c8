// Decodes the encodings of pages but PLAIN and dictionaries, and the types whose PLAIN values are not those of the
// column. The values of a page become an array like the values of a dictionary: pages_decode then takes value i where
// it would take the value with code i. A block takes a page.
#include "pages.cuh"

// The layout of pages_convert.go.
struct Conversion {
    u8* values;    // converted values, or addresses of strings
    i32* lengths;  // of strings
    u8* bytes;     // space for bytes of values, and for lengths of prefixes before them
    i64 capacity;  // of bytes, and SLACK follow; a kernel that needs more writes what it needs
    i64 factor;    // of STORED_SCALED
    i32 page;
    i32 encoding;
    i32 form;
    i32 digits;    // most digits of a decimal
    i32 is_unsigned;  // integers
    i32 unused;
};

struct ConvertArgs {
    Page* pages;
    const PageColumn* columns;
    PageStatus* status;
    Conversion* list;
};

enum Encoding { PLAIN, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, STREAM_SPLIT, RUNS };
enum StoredForm { STORED_VALUES, STORED_BIG_ENDIAN, STORED_INT96, STORED_HALF, STORED_BITS, STORED_BYTES,
                  STORED_SCALED, STORED_WHOLE, STORED_SINGLE };

constexpr i32 MOST_DELTA_BLOCK = 1 << 14;

// What is wrong with pages: their bytes, or only the room for strings that share prefixes.
constexpr u32 PAGES_BAD = 1, PAGES_FULL = 2;

struct ConvertShared : Strings {
    i32 count;
    bool full;  // strings that share prefixes have more bytes than the capacity
    const u8* rest;
    i64 warps[33];
};

// Source has the bytes of fixed-width values: byte k of value i.
struct Source {
    const u8* at;
    i64 value, byte;  // distance from value to value, and from byte to byte
    __device__ u8 get(i64 i, i32 k) const { return at[i * value + k * byte]; }
};

// uvarint64 reads a number at p and moves p behind it.
DEVICE bool uvarint64(const u8*& p, const u8* end, u64& v) {
    v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (p >= end) return false;
        u8 b = *p++;
        if (shift == 63 && b > 1) return false;
        v |= (u64)(b & 127) << shift;
        if (!(b & 128)) return true;
    }
    return false;
}

DEVICE i64 zigzag(u64 v) { return (i64)(v >> 1) ^ -(i64)(v & 1); }

// delta decodes DELTA_BINARY_PACKED values and calls put with each value and its position. It returns the bytes after
// them, or null. count is at most `most`. A warp calls it; every lane gets the same results.
template <class Put>
DEVICE const u8* delta(const u8* at, const u8* end, i32 most, i32& count, Put put) {
    u64 block, minis, total, first, least;
    count = 0;
    if (!uvarint64(at, end, block) || !uvarint64(at, end, minis) || !uvarint64(at, end, total)) return nullptr;
    if (!uvarint64(at, end, first) || total > (u64)most || minis == 0 || minis > 1 << 16) return nullptr;
    if (block > MOST_DELTA_BLOCK || block % minis || block / minis % 8 || block == 0) return nullptr;
    u32 per = (u32)(block / minis), lane = lane_id();
    i32 n = (i32)total;
    u64 last = (u64)zigzag(first);
    if (n > 0 && lane == 0) put(0, (i64)last);
    for (i32 i = 1; i < n;) {
        if (!uvarint64(at, end, least) || (u64)(end - at) < minis) return nullptr;
        u64 add = (u64)zigzag(least);
        const u8* widths = at;
        at += minis;
        for (u32 k = 0; k < (u32)minis && i < n; k++) {
            u32 width = widths[k], size = per / 8 * width;
            if (width > 64 || (u64)(end - at) < size) return nullptr;
            for (u32 j = 0; j < per && i < n; j += 32) {
                u32 mine = j + lane, left = min(min(per - j, (u32)(n - i)), 32u);
                u64 v = 0;
                if (lane < left) {
                    u32 bit = mine * width;
                    const u8* from = at + bit / 8;
                    u32 shift = bit % 8;
                    if (width > 0) {
                        v = load64(from) >> shift;
                        if (shift + width > 64) v |= (u64)from[8] << (64 - shift);
                        v &= ~0ull >> (64 - width);
                    }
                    v += add;
                }
                v = warp_inclusive(v) + last;
                last = __shfl_sync(ALL, v, left - 1);
                if (lane < left) put(i + (i32)lane, (i64)v);
                i += left;
            }
            at += size;
        }
    }
    count = n;
    return at;
}

// single_bits converts a float of 4 bytes, which is exact. A NaN becomes a quiet one.
DEVICE u64 single_bits(u32 f) {
    u64 sign = (u64)(f >> 31) << 63, exponent = f >> 23 & 255, fraction = f & 0x7fffff;
    if (exponent == 255) return sign | 0x7ffull << 52 | fraction << 29 | (fraction ? 1ull << 51 : 0);
    if (exponent > 0) return sign | (exponent + 896) << 52 | fraction << 29;
    if (fraction == 0) return sign;
    u32 top = 31 - __clz((u32)fraction); // a subnormal number: fraction / 2^149
    return sign | (u64)(top + 874) << 52 | (fraction << (52 - top) & 0xfffffffffffffull);
}

// store writes an integer as a value of a column. It returns false if the value is out of bounds. v has the lowest
// bytes of the integer, as many as are stored.
DEVICE bool store(const Conversion& x, const PageColumn& c, i64 i, i64 v) {
    if (c.stored == 4) v = x.is_unsigned ? (i64)(u32)v : (i64)(i32)(u32)v;
    if (x.form == STORED_SINGLE) {
        ((u64*)x.values)[i] = single_bits((u32)v);
        return true;
    }
    if (x.form == STORED_WHOLE) {
        if (c.width == 4) ((float*)x.values)[i] = (float)v;
        else ((double*)x.values)[i] = (double)v;
        return c.least <= v && v <= c.most;
    }
    if (x.form == STORED_SCALED) {
        if (v < c.least || v > c.most) return false;
        i128 scaled = (i128)v * x.factor;
        if (c.width == 16) {
            ((u64*)x.values)[2 * i] = (u64)scaled;
            ((i64*)x.values)[2 * i + 1] = (i64)(scaled >> 64);
            return true;
        }
        v = (i64)scaled;
    }
    switch (c.width) {
    case 1: x.values[i] = (u8)v; break;
    case 2: ((u16*)x.values)[i] = (u16)v; break;
    case 4: ((u32*)x.values)[i] = (u32)v; break;
    case 8: ((i64*)x.values)[i] = v; break;
    default:
        ((i64*)x.values)[2 * i] = v;
        ((i64*)x.values)[2 * i + 1] = v >> 63;
    }
    return x.form == STORED_SCALED || (c.least <= v && v <= c.most);
}

// big_endian converts a decimal of n bytes in two's complement, which is value i of s, to value `to`.
DEVICE bool big_endian(const Conversion& x, const PageColumn& c, i64 to, const Source& s, i64 i, i32 n) {
    i32 from = max(n - 16, 0);
    u8 sign = n > 0 && s.get(i, 0) >> 7 ? 0xff : 0;
    for (i32 k = 0; k < from; k++)
        if (s.get(i, k) != sign) return false;
    u64 high = sign ? ~0ull : 0, low = high;
    for (i32 k = from; k < n; k++) {
        high = high << 8 | low >> 56;
        low = low << 8 | s.get(i, k);
    }
    if (n > 16 && (u8)((i64)high >> 63) != sign) return false;
    i128 v = (i128)((u128)high << 64 | low), most = 1;
    for (i32 k = 0; k < x.digits; k++) most *= 10;
    if (c.width == 8) {
        ((u64*)x.values)[to] = low;
    } else {
        ((u64*)x.values)[2 * to] = low;
        ((u64*)x.values)[2 * to + 1] = high;
    }
    return -most < v && v < most;
}

// int96 converts nanoseconds of a day and a Julian day to microseconds since 1970.
DEVICE bool int96(const Conversion& x, i64 i, const Source& s) {
    u64 nanos = 0;
    u32 day = 0;
    for (i32 k = 0; k < 8; k++) nanos |= (u64)s.get(i, k) << 8 * k;
    for (i32 k = 0; k < 4; k++) day |= (u32)s.get(i, 8 + k) << 8 * k;
    i64 micros = (i64)nanos / 1000 - ((i64)nanos % 1000 < 0);
    i128 v = (i128)((i64)(i32)day - 2440588) * 86400000000ll + micros;
    ((i64*)x.values)[i] = (i64)v;
    return v == (i128)(i64)v;
}

// half converts a 2-byte float, which is exact.
DEVICE u32 half_bits(u32 h) {
    u32 sign = h >> 15 << 31, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return sign | 255u << 23 | fraction << 13;
    if (exponent > 0) return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    u32 top = 31 - __clz(fraction); // a subnormal number: fraction / 2^24
    return sign | (top + 103) << 23 | ((fraction << (23 - top)) & 0x7fffff);
}

// convert converts n fixed-width values. All threads take part.
DEVICE bool convert(const Conversion& x, const PageColumn& c, const Source& s, i32 n) {
    bool ok = true;
    for (i64 i = threadIdx.x; i < n; i += PAGE_THREADS) {
        u64 v = 0;
        switch (x.form) {
        case STORED_BIG_ENDIAN: ok = big_endian(x, c, i, s, i, c.stored) && ok; break;
        case STORED_INT96: ok = int96(x, i, s) && ok; break;
        case STORED_HALF: ((u32*)x.values)[i] = half_bits(s.get(i, 0) | (u32)s.get(i, 1) << 8); break;
        case STORED_BYTES: {
            u8* to = x.bytes + i * c.stored;
            if (s.byte != 1)
                for (i32 k = 0; k < c.stored; k++) to[k] = s.get(i, k);
            ((u64*)x.values)[i] = (u64)(s.byte == 1 ? s.at + i * s.value : to);
            x.lengths[i] = c.stored;
            break;
        }
        default:
            for (i32 k = 0; k < c.stored; k++) v |= (u64)s.get(i, k) << 8 * k;
            ok = store(x, c, i, (i64)v) && ok;
        }
    }
    return ok;
}

// take_bits decodes booleans in runs, as bytes. It returns the number of those that there are. A warp calls it.
DEVICE i32 take_bits(const Conversion& x, const u8* at, const u8* end, i32 most) {
    i32 n = 0, lane = lane_id();
    while (n < most) {
        u32 head;
        if (!uvarint(at, end, head)) break;
        i64 left = head >> 1;
        if (!(head & 1)) {
            if (at >= end || *at > 1) break;
            left = min(left, (i64)(most - n));
            for (i64 i = lane; i < left; i += 32) x.values[n + i] = *at;
            at++;
        } else {
            i64 size = min(left, (i64)(end - at));
            if (left > 1 << 28 || (left > 0 && size == 0)) break;
            left = min(size * 8, (i64)(most - n));
            for (i64 i = lane; i < left; i += 32) x.values[n + i] = at[i / 8] >> i % 8 & 1;
            at += size;
        }
        n += (i32)left;
    }
    return n;
}

// put_string makes value i of n bytes: the address of a string, whose length is known, or a decimal.
DEVICE bool put_string(const Conversion& x, const PageColumn& c, i32 i, const u8* string, i32 n) {
    if (x.form == STORED_BIG_ENDIAN) return big_endian(x, c, i, {string, 0, 1}, 0, n);
    ((u64*)x.values)[i] = (u64)string;
    return !c.text || valid_utf8(string, n);
}

// place_strings makes values of n strings that follow each other, from their lengths. It returns false if they have
// more bytes than there are. All threads take part.
DEVICE bool place_strings(const Conversion& x, const PageColumn& c, ConvertShared& s, const u8* from, i64 bytes,
                          i32 n) {
    i64 before = 0;
    bool ok = true;
    for (i32 i = 0; i < n; i += PAGE_THREADS) {
        i32 k = i + threadIdx.x;
        i64 size = k < n ? x.lengths[k] : 0, total, at = block_exclusive(size, s.warps, total);
        if (before + total > bytes) return false;
        if (k < n) ok = put_string(x, c, k, from + before + at, (i32)size) && ok;
        before += total;
    }
    return ok;
}

// delta_bytes decodes DELTA_BYTE_ARRAY. A warp calls it: prefixes and bytes of values go to x.bytes, lengths to
// x.lengths. It returns where the bytes of values are, or null.
DEVICE const u8* delta_bytes(Conversion& x, const PageColumn& c, ConvertShared& s, const u8* at, const u8* end,
                             i32 most, i32& n) {
    i32* prefixes = (i32*)x.bytes;
    i64 head = ((i64)most * 8 + 15) / 16 * 16, left = x.capacity - head;
    i32* suffixes = prefixes + most;
    bool ok = left >= 0;
    if (!ok) return nullptr;
    i32 m;
    auto keep = [&](i32* to) {
        return [to, &ok](i32 i, i64 v) {
            ok = ok && 0 <= v && v <= 1 << 30;
            to[i] = (i32)v;
        };
    };
    at = delta(at, end, most, n, keep(prefixes));
    if (at) at = delta(at, end, most, m, keep(suffixes));
    if (!__all_sync(ALL, ok && at != nullptr) || m != n) return nullptr;
    __syncwarp();
    i32 last = 0, lane = lane_id();
    i64 sum = 0;
    for (i32 i = lane; i < n; i += 32) sum += (i64)prefixes[i] + suffixes[i];
    sum = warp_sum(sum);
    if (sum > left && !c.stored) {
        if (lane == 0) {
            s.full = true;
            x.capacity = head + sum;
        }
        return nullptr;
    }
    u8 *out = x.bytes + head, *before = out;
    for (i32 i = 0; i < n; i++) {
        i32 prefix = prefixes[i], suffix = suffixes[i];
        i64 size = (i64)prefix + suffix;
        if (prefix > last || size > left || suffix > end - at) return nullptr;
        if (c.stored && size != c.stored) return nullptr;
        for (i32 k = lane; k < (i32)size; k += 32) out[k] = k < prefix ? before[k] : at[k - prefix];
        if (lane == 0 && !c.stored) x.lengths[i] = (i32)size;
        at += suffix;
        left -= size;
        last = (i32)size;
        before = out;
        out += size;
        __syncwarp();
    }
    if (lane < (i32)SLACK) out[lane] = 0; // kernels read behind the last one
    return x.bytes + head;
}

// take_decimals converts PLAIN decimals of any length, at most `most`. It returns their number, or -1 if a value has
// too many digits. All threads take part.
DEVICE i32 take_decimals(const Conversion& x, const PageColumn& c, ConvertShared& s, const u8* body, i32 bytes,
                         i32 most) {
    i32 done = 0;
    bool ok = true, more = true;
    if (threadIdx.x == 0) s.at = 0;
    while (more && done < most) {
        more = take_strings(s, body, bytes, min(CHUNK, most - done));
        i32 n = s.found;
        for (i32 i = threadIdx.x; i < n; i += PAGE_THREADS)
            ok = put_string(x, c, done + i, body + s.value[i], s.length[i]) && ok;
        done += n;
        __syncthreads();
    }
    return __syncthreads_and(ok) ? done : -1;
}

// convert_page converts a page. It returns the number of its values, or -1. All threads take part.
DEVICE i32 convert_page(Conversion& x, const Page& p, const PageColumn& c, ConvertShared& s) {
    const u8 *at = p.body, *end = at + p.raw;
    if (p.levels == LEVELS_IN_BODY) {
        if (p.raw < 4) return -1;
        u32 n = load32(at);
        if (n > (u32)(p.raw - 4)) return -1;
        at += 4 + n;
    }
    i64 bytes = end - at;
    i32 n, most = p.values;
    bool first = threadIdx.x < 32, ok = true;
    if (threadIdx.x == 0) s.ok = true;
    __syncthreads();
    switch (x.encoding) {
    case PLAIN:
        if (x.form == STORED_BITS) {
            n = (i32)min((i64)most, bytes * 8);
            for (i32 i = threadIdx.x; i < n; i += PAGE_THREADS) x.values[i] = at[i / 8] >> i % 8 & 1;
            return n;
        }
        if (!c.stored) return take_decimals(x, c, s, at, (i32)bytes, most);
        n = (i32)min((i64)most, bytes / c.stored);
        ok = convert(x, c, {at, c.stored, 1}, n);
        break;
    case STREAM_SPLIT:
        if (bytes % c.stored || bytes / c.stored > most) return -1;
        n = (i32)(bytes / c.stored);
        ok = convert(x, c, {at, 1, n}, n);
        break;
    case DELTA_BINARY:
        if (first) {
            const u8* rest = delta(at, end, most, n, [&](i32 i, i64 v) {
                ok = store(x, c, i, v) && ok;
            });
            ok = ok && rest;
            if (threadIdx.x == 0) s.count = n;
        }
        break;
    case DELTA_LENGTH:
        if (first) {
            const u8* rest = delta(at, end, most, n, [&](i32 i, i64 v) {
                ok = ok && 0 <= v && v <= bytes;
                x.lengths[i] = (i32)v;
            });
            ok = ok && rest;
            if (threadIdx.x == 0) {
                s.count = n;
                s.rest = rest;
            }
        }
        if (!__syncthreads_and(ok)) return -1;
        ok = place_strings(x, c, s, s.rest, end - s.rest, s.count);
        break;
    case DELTA_BYTES:
        if (first) {
            const u8* strings = delta_bytes(x, c, s, at, end, most, n);
            ok = strings;
            if (threadIdx.x == 0) {
                s.count = n;
                s.rest = strings;
            }
        }
        if (!__syncthreads_and(ok)) return -1;
        if (!c.stored) ok = place_strings(x, c, s, s.rest, x.bytes + x.capacity - s.rest, s.count);
        else ok = convert(x, c, {s.rest, c.stored, 1}, s.count);
        break;
    default: // RUNS
        if (bytes < 4 || load32(at) > (u64)(bytes - 4)) return -1;
        if (first) {
            n = take_bits(x, at + 4, at + 4 + load32(at), most);
            if (threadIdx.x == 0) s.count = n;
        }
    }
    if (!__syncthreads_and(ok)) return -1;
    return x.encoding == PLAIN || x.encoding == STREAM_SPLIT ? n : s.count;
}

KERNEL_BOUNDS(pages_convert, ConvertArgs, PAGE_THREADS, 4) {
    __shared__ ConvertShared s;
    Conversion& x = a.list[blockIdx.x];
    Page& p = a.pages[x.page];
    PageStatus& status = a.status[p.column];
    if (threadIdx.x == 0) {
        s.ok = (atomicOr(&status.bad, 0u) & PAGES_BAD) == 0; // otherwise some pages are not decompressed
        s.full = false;
    }
    __syncthreads();
    if (!s.ok) return;
    __syncthreads();
    i32 n = convert_page(x, p, a.columns[p.column], s);
    if (threadIdx.x) return;
    p.entries = max(n, 0);
    if (n < 0) atomicOr(&status.bad, s.full ? PAGES_FULL : PAGES_BAD);
}
