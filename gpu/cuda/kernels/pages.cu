// Decodes pages of Parquet files: Snappy, definition levels, codes of a dictionary, and
// PLAIN values and strings.
//
// Pages are untrusted. Each kernel checks every length, offset, code and run against the
// bytes that the page has, and each loop makes progress in these bytes. A page that is
// wrong marks its column, and the CPU decodes this column again to say what is wrong.
#include "pages.cuh"

// --- Snappy ---------------------------------------------------------------------------
//
// A block of Snappy is a sequence of elements: literals, and copies of earlier output. Encoders
// start afresh after each 64 KiB of output: no element lies across such a boundary, and no copy
// reaches behind it. The format does not promise this. pages_split finds where the parts of large pages begin, so
// that pages_snappy can decompress them at the same time. If a page turns out to be of another encoder,
// pages_whole decompresses it from the beginning.

// Element is a literal or a copy.
struct Element {
    u32 header;  // bytes before the bytes of a literal
    u32 length;  // bytes of output
    u32 offset;  // of a copy; 0 for a literal
    bool literal;
    __device__ u32 size() const { return header + (literal ? length : 0); }
};

// element decodes the element that begins with the bytes of v. Lengths of 2^31 and more are cut,
// because no page has as many bytes.
DEVICE Element element(u64 v) {
    u32 tag = v & 255, kind = tag & 3, rest = (u32)(v >> 8);
    if (kind == 0) {
        u32 more = tag >> 2 < 60 ? 0 : (tag >> 2) - 59;
        u32 length = more ? rest & (ALL >> (32 - 8 * more)) : tag >> 2;
        return {1 + more, min(length, 0x7ffffffeu) + 1, 0, true};
    }
    if (kind == 1) return {2, (tag >> 2 & 7) + 4, (tag >> 5) << 8 | (rest & 255), false};
    return {kind == 2 ? 3u : 5u, (tag >> 2) + 1, kind == 2 ? rest & 0xffff : rest, false};
}

// Tag is an element that begins in a window of 32 bytes. Byte i of the window's output is byte i + literal of the
// block, or a copy of byte i - offset of the output.
struct __align__(8) Tag {
    u32 offset;   // 0 for a literal
    u32 literal;
};

using Tags = Tag[32];

// Window is 256 bytes of input, in the registers of a warp: words from word 32 × chunk on.
struct Window {
    const u32* words;
    u32 last;   // the last word that may be read
    u32 chunk;
    u32 now, next;
};

DEVICE u32 window_word(const Window& w, u32 chunk) { return w.words[min(chunk * 32 + lane_id(), w.last)]; }

// window_at returns the bytes from byte at + lane of the words on, of which five are right.
DEVICE u64 window_at(Window& w, u32 at) {
    u32 chunk = at >> 7;
    if (chunk != w.chunk) {
        w.now = chunk == w.chunk + 1 ? w.next : window_word(w, chunk);
        w.next = window_word(w, chunk + 1);
        w.chunk = chunk;
    }
    u32 byte = at + lane_id(), word = (byte >> 2) - chunk * 32;
    u32 a = __shfl_sync(ALL, w.now, word & 31), b = __shfl_sync(ALL, w.next, word & 31);
    u32 c = __shfl_sync(ALL, w.now, (word + 1) & 31), d = __shfl_sync(ALL, w.next, (word + 1) & 31);
    u64 low = word < 32 ? a : b, high = word + 1 < 32 ? c : d;
    return (low | high << 32) >> (byte & 3) * 8;
}

// Output is 64 bytes of output that a warp has begun to read, and that it has not yet written. Byte lane and byte
// lane + 32 are copies of bytes from and from2 of these 64 bytes.
struct Output {
    u8* to;
    u32 size;
    u32 from, from2;
    u32 low, high;  // what was read for bytes that are no copies
};

// write_output writes the output. Reads after it see what all lanes have written.
DEVICE void write_output(const Output& o) {
    u32 lane = lane_id(), low = __shfl_sync(ALL, o.low, o.from);
    u32 a = __shfl_sync(ALL, o.low, o.from2 & 31), b = __shfl_sync(ALL, o.high, o.from2 & 31);
    if (lane < o.size) o.to[lane] = (u8)low;
    if (lane + 32 < o.size) o.to[lane + 32] = (u8)(o.from2 < 32 ? a : b);
    __syncwarp();
}

// snappy decompresses n bytes of elements to raw bytes. All lanes of a warp take part. Each lane decodes the
// element that would begin at one of the next 32 bytes. The lanes find by pointer doubling which elements do begin
// there, and which of 64 bytes of output each of these is a copy of. The bytes are written when the next ones are known,
// so that the time of reading them passes meanwhile.
DEVICE bool snappy(const u8* in, u32 n, u8* out, u32 raw, Tags& tags) {
    u32 ip = 0, op = 0, lane = lane_id(), shift = (u64)in & 3;
    Window w = {(const u32*)(in - shift), (shift + n) >> 2, 0, 0, 0};
    w.now = window_word(w, 0);
    w.next = window_word(w, 1);
    Output o = {out, 0, lane, lane + 32, 0, 0};
    while (ip < n) {
        u32 limit = min(32u, n - ip);
        Element e = element(window_at(w, ip + shift));
        u32 used = lane + e.size(), real = 1u << lane;
        for (int step = 0; step < 4; step++) { // an element has two bytes or more, so 16 of them are enough
            u32 more = __shfl_sync(ALL, real, used & 31), past = __shfl_sync(ALL, used, used & 31);
            if (used >= limit) continue;
            real |= more;
            used = past;
        }
        real = __shfl_sync(ALL, real, 0);
        used = __shfl_sync(ALL, used, 0);
        if (used > n - ip) return false;
        bool mine = real >> lane & 1;
        u32 end = warp_inclusive(mine ? e.length : 0), start = end - e.length;
        u32 total = __shfl_sync(ALL, end, 31);
        if (total > raw - op) return false;
        if (__any_sync(ALL, mine && !e.literal && (e.offset == 0 || e.offset > op + start))) return false;
        if (mine) tags[__popc(real & lanes_below())] = {e.offset, ip + lane + e.header - start};
        __syncwarp();
        u32 before = 0, upto = ALL >> (31 - lane); // before counts elements that begin before byte base
        for (u32 base = 0; base < total; base += 64) {
            u32 low = __reduce_or_sync(ALL, mine && start - base < 32 ? 1u << (start - base) : 0);
            u32 high = __reduce_or_sync(ALL, mine && start - base - 32 < 32 ? 1u << (start - base - 32) : 0);
            Tag a = tags[before + __popc(low & upto) - 1];
            before += __popc(low);
            Tag b = tags[before + __popc(high & upto) - 1];
            before += __popc(high);
            u32 i = base + lane, j = i + 32;
            u32 from = a.offset - 1 < lane ? lane - a.offset : lane;
            u32 from2 = b.offset - 1 < lane + 32 ? lane + 32 - b.offset : lane + 32;
            bool reads = from == lane && i < total, reads2 = from2 == lane + 32 && j < total;
            for (bool more = from != lane || from2 != lane + 32; __any_sync(ALL, more);) {
                u32 x = __shfl_sync(ALL, from, from);
                u32 y = __shfl_sync(ALL, from, from2 & 31), z = __shfl_sync(ALL, from2, from2 & 31);
                if (from2 >= 32) y = z;
                more = x != from || y != from2;
                from = x;
                from2 = y;
            }
            write_output(o);
            u8* to = out + op + base;
            o = {to, min(total - base, 64u), from, from2, 0, 0};
            if (reads) o.low = a.offset ? to[(i64)lane - a.offset] : in[a.literal + i];
            if (reads2) o.high = b.offset ? to[(i64)lane + 32 - b.offset] : in[b.literal + j];
        }
        op += total;
        ip += used;
    }
    write_output(o);
    return op == raw;
}

// snappy_body returns the elements of a page, which follow its length, or null if that is wrong. A page of
// nulls may have no bytes at all.
DEVICE const u8* snappy_body(const Page& p, u32& n) {
    const u8 *at = p.src + max(p.levels, 0), *end = p.src + p.size;
    u32 raw;
    n = 0;
    if (at == end && p.raw == 0) return at;
    if (!uvarint(at, end, raw) || raw != (u32)p.raw) return nullptr;
    n = (u32)(end - at);
    return at;
}

constexpr u32 PART = 64 << 10;  // bytes of output of a part
constexpr u32 SEGMENT = 1024;   // bytes of input of a walk
constexpr u32 WALKS = 64;       // that begin in a segment
constexpr u32 FAR = 32 << 10;   // bytes from the beginning of a segment on that are far away
constexpr int SPLIT_SEGMENTS = 64; // that a block has in shared memory

// Work is a page, or a part of a page, that a warp decompresses.
struct Work {
    i32 page;
    i32 part;  // -1: the whole page
};

// Split is a page that has parts.
struct Split {
    i64 walk;   // the position in walks of those of its first segment
    i32 page;
    i32 start;  // the position in starts of its first part
};

// Walk is a walk from element to element through a segment.
struct Walk {
    u32 past;    // the first element behind the segment; 0 if that is far away
    u32 output;  // bytes of output of the elements of the segment
};

struct SnappyArgs {
    const Page* pages;
    PageStatus* status;
    const Work* work;      // the largest pages first
    u32* next;             // the position in work of the next one
    const Split* split;
    const i32* of;         // of each page, its position in split
    Walk* walks;           // of each segment, by the byte from which a walk begins
    u32* starts;           // where parts begin in the bytes of a page, and where the last one ends
    u32* whole;            // of each page in split: it must be decompressed as a whole
    i32 count;             // of work
    i32 walkers;           // blocks that walk through a page
};

using SnappyGroup = Group<SnappyArgs>;

// tag_steps writes for each tag its bytes of input, and from bit 8 on those of output; 0 for long literals.
DEVICE void tag_steps(u16* steps) {
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) {
        Element e = element(i);
        steps[i] = (i & 3) == 0 && i >= 240 ? 0 : (u16)(e.size() | e.length << 8);
    }
}

// Where the elements of a segment begin depends on all bytes before it. So a warp finds for each byte of the
// segment where a walk ends that begins there. It goes from the last bytes to the first: a walk goes on as the walk
// from the element after the first one does, which is known, or begins at one of the same 32 bytes.
KERNEL_BOUNDS(pages_walk, SnappyGroup, PAGE_THREADS, 4) {
    u32 block;
    const SnappyArgs& g = member(a, block);
    __shared__ __align__(4) u8 tiles[PAGE_WARPS][SEGMENT + 16];
    __shared__ u32 ends[PAGE_WARPS][SEGMENT]; // of each byte: the end of its walk, and from bit 16 on the output
    __shared__ u16 steps[256];
    const Split& split = g.split[block / g.walkers];
    u32 n, first = (block % g.walkers * PAGE_WARPS + warp_id()) * SEGMENT;
    tag_steps(steps);
    __syncthreads();
    const u8* in = snappy_body(g.pages[split.page], n);
    u8* tile = tiles[warp_id()];
    u32* walk = ends[warp_id()];
    if (!in) return;
    for (u32 base = first; base < n; base += g.walkers * PAGE_WARPS * SEGMENT) {
        u32 size = min(n - base, SEGMENT);
        __syncwarp();
        for (u32 i = lane_id() * 4; i < size + 8; i += 128) *(u32*)(tile + i) = load32(in + base + i);
        __syncwarp();
        for (u32 above = (size + 31) & ~31u; above; above -= 32) {
            u32 i = above - 32 + lane_id(), step = i < size ? steps[tile[i]] : 0;
            u32 end = i + (step & 255) | step >> 8 << 16;
            if (i < size && !step) {
                Element e = element(load64(tile + i));
                end = e.length < FAR - SEGMENT - 5 ? i + e.size() | e.length << 16 : FAR;
            }
            for (int k = 0; k < 4; k++) { // an element has two bytes or more, so 16 of them are enough
                u32 to = end & 0xffff, more = __shfl_sync(ALL, end, to & 31);
                if (to < min(above, size)) end = (end & 0xffff0000) + more;
            }
            u32 to = end & 0xffff;
            if (to < size && i < size) end = (end & 0xffff0000) + walk[to];
            walk[i] = end;
            __syncwarp();
        }
        Walk* walks = g.walks + split.walk + base / SEGMENT * WALKS;
        for (u32 i = lane_id(); i < WALKS; i += 32) {
            u32 end = i < size ? walk[i] : FAR, past = end & 0xffff; // an element may end behind the page
            walks[i] = past >= FAR ? Walk{0, 0} : Walk{base + min(past, n - base + 1), end >> 16};
        }
    }
}

// A block finds the parts of a page. One thread goes from segment to segment, and finds the segment in which each
// part begins. Then each thread walks through the segment of one part.
KERNEL_BOUNDS(pages_split, SnappyGroup, PAGE_THREADS, 4) {
    u32 block;
    const SnappyArgs& g = member(a, block);
    __shared__ Walk walks[SPLIT_SEGMENTS * WALKS];
    __shared__ u32 at, op, k; // the next element, its output, the next part
    __shared__ bool ok;
    const Split& split = g.split[block];
    const Page& p = g.pages[split.page];
    u32* starts = g.starts + split.start;
    u32 n, raw = p.raw, parts = (raw + PART - 1) / PART;
    u32* outputs = starts + parts + 1; // of the elements at starts, until the second step
    const u8* in = snappy_body(p, n);
    if (threadIdx.x == 0) {
        starts[0] = 0;
        at = op = 0;
        k = 1;
        ok = in != nullptr;
    }
    for (u32 base = 0; base < n; base += SPLIT_SEGMENTS * SEGMENT) {
        u32 size = min(n - base, SPLIT_SEGMENTS * SEGMENT);
        __syncthreads();
        if (!ok) break;
        if (at >= base + size) continue; // a long literal
        const Walk* from = g.walks + split.walk + base / SEGMENT * WALKS;
        for (u32 i = threadIdx.x; i < (size + SEGMENT - 1) / SEGMENT * WALKS; i += PAGE_THREADS) walks[i] = from[i];
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 i = at, sum = op, part = k;
            while (i < base + size && ok) {
                u32 segment = (i - base) / SEGMENT, first = base + segment * SEGMENT, end = min(first + SEGMENT, n);
                u32 next = i, output = 0;
                Walk w = i - first < WALKS ? walks[segment * WALKS + i - first] : Walk{0, 0};
                if (w.past) {
                    next = w.past;
                    output = w.output;
                } else {
                    while (next < end) {
                        Element e = element(load64(in + next));
                        next += min(e.size(), n + 1 - next);
                        output += e.length;
                    }
                }
                if (output > raw - sum) ok = false;
                for (; ok && part < parts && part * PART <= sum + output; part++) {
                    starts[part] = i;
                    outputs[part] = sum;
                }
                i = next;
                sum += output;
            }
            at = i;
            op = sum;
            k = part;
        }
    }
    __syncthreads();
    bool good = ok && at == n && op == raw && k == parts;
    for (u32 i = 1 + threadIdx.x; good && i < parts; i += PAGE_THREADS) {
        u32 from = starts[i], sum = outputs[i];
        while (sum < i * PART) {
            Element e = element(load64(in + from));
            from += e.size();
            sum += e.length;
        }
        if (sum > i * PART) good = false;
        starts[i] = from;
    }
    good = __syncthreads_and(good);
    if (threadIdx.x == 0) {
        starts[parts] = n;
        g.whole[block] = !good;
    }
}

// Warps take the next part or page until there is none.
KERNEL_BOUNDS(pages_snappy, SnappyGroup, PAGE_THREADS, 4) {
    u32 block;
    const SnappyArgs& g = member(a, block);
    __shared__ Tags tags[PAGE_WARPS];
    for (;;) {
        u32 i = 0;
        if (lane_id() == 0) i = atomicAdd(g.next, 1u);
        i = __shfl_sync(ALL, i, 0);
        if (i >= (u32)g.count) return;
        Work w = g.work[i];
        const Page& p = g.pages[w.page];
        u32 n, raw = p.raw;
        const u8* in = snappy_body(p, n);
        // Kernels read behind the body.
        if (w.part <= 0 && lane_id() < SLACK) p.body[raw + lane_id()] = 0;
        if (w.part < 0) {
            if ((!in || !snappy(in, n, p.body, raw, tags[warp_id()])) && lane_id() == 0) g.status[p.column].bad = 1;
            continue;
        }
        i32 s = g.of[w.page];
        if (g.whole[s]) continue;
        const u32* starts = g.starts + g.split[s].start + w.part;
        u32 at = starts[0], to = starts[1], done = w.part * PART;
        if (!snappy(in + at, to - at, p.body + done, min(PART, raw - done), tags[warp_id()]) && lane_id() == 0)
            g.whole[s] = 1; // a copy reaches behind the part
        __syncwarp();
    }
}

// A warp decompresses a page that could not be split.
KERNEL_BOUNDS(pages_whole, SnappyGroup, 32, 1) {
    u32 block;
    const SnappyArgs& g = member(a, block);
    __shared__ Tags tags;
    if (!g.whole[block]) return;
    const Page& p = g.pages[g.split[block].page];
    u32 n;
    const u8* in = snappy_body(p, n);
    if ((!in || !snappy(in, n, p.body, p.raw, tags)) && lane_id() == 0) g.status[p.column].bad = 1;
}

// --- Values ---------------------------------------------------------------------------

// Runs is a position in levels or codes: repeated values and packed ones, in runs.
struct Runs {
    const u8* at;      // the next run
    const u8* end;
    const u8* packed;  // values of the current run
    u32 width;         // bits of a value
    u32 value;         // the repeated value
    i64 left;          // values left in the current run
    i64 done;          // values taken from the current run
    bool repeat;
};

constexpr int LIST = 128;      // runs that one thread finds before all threads decode them

struct Run {
    const u8* packed;  // null for a repeated value
    i64 from;          // position in packed of the first value
    i32 start;         // position in the chunk of the first value
    u32 value;
};

struct DecodeShared : Strings {
    Runs levels, codes;
    Run list[LIST];
    i32 listed, covered;
    u32 bits[CHUNK / 32];   // validity of the rows of the chunk
    i32 before_rows[CHUNK / 32]; // values before these rows
};

// start_run begins the next run that has values. It accepts what the host accepts: the last run
// may be cut short.
DEVICE bool start_run(Runs& r) {
    while (r.left == 0) {
        u32 head;
        if (!uvarint(r.at, r.end, head)) return false;
        if (!(head & 1)) {
            i32 size = (i32)(r.width + 7) / 8;
            if (r.end - r.at < size) return false;
            r.value = 0;
            for (i32 i = 0; i < size; i++) r.value |= (u32)r.at[i] << (8 * i);
            if ((u64)r.value >> r.width) return false;
            r.at += size;
            r.left = head >> 1;
            r.repeat = true;
            continue;
        }
        u64 groups = head >> 1, size = groups * r.width;
        if (groups > 1u << 28) return false;
        r.left = groups * 8;
        if (size > (u64)(r.end - r.at)) {
            if (r.width == 0) return false;
            size = r.end - r.at;
            r.left = (i64)size * 8 / r.width;
            if (r.left == 0) return false;
        }
        r.packed = r.at;
        r.done = 0;
        r.at += size;
        r.repeat = false;
    }
    return true;
}

// take_runs writes the next n ≤ CHUNK values to s.value. All threads of the block take part.
DEVICE bool take_runs(DecodeShared& s, Runs& r, i32 n) {
    for (i32 got = 0; got < n;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            i32 k = 0, at = got;
            s.ok = true;
            Runs x = r; // in registers
            while (at < n && k < LIST) {
                if (x.left == 0 && !start_run(x)) {
                    s.ok = false;
                    break;
                }
                i32 m = (i32)min((i64)(n - at), x.left);
                s.list[k++] = {x.repeat ? nullptr : x.packed, x.done, at, x.value};
                x.left -= m;
                x.done += m;
                at += m;
            }
            r = x;
            s.listed = k;
            s.covered = at;
        }
        __syncthreads();
        if (!s.ok) return false;
        i32 to = s.covered, listed = s.listed;
        u32 width = r.width, mask = width == 32 ? ALL : (1u << width) - 1;
        for (i32 i = got + threadIdx.x; i < to; i += PAGE_THREADS) {
            i32 k = 0;
            for (i32 d = LIST / 2; d; d >>= 1)
                if (k + d < listed && s.list[k + d].start <= i) k += d;
            const Run& run = s.list[k];
            u32 v = run.value;
            if (run.packed) {
                i64 bit = (run.from + i - run.start) * width;
                v = width == 0 ? 0 : (u32)(load64(run.packed + bit / 8) >> (bit % 8)) & mask;
            }
            s.value[i] = v;
        }
        got = to;
    }
    __syncthreads();
    return true;
}

// taken has a bit for each of 32 rows of a page, from row g of the page on, that the column takes.
DEVICE u32 taken(const Page& p, i32 g) {
    i32 before = p.skip - g, after = g + 32 - (p.skip + p.rows);
    u32 bits = before >= 32 || after >= 32 ? 0 : ALL;
    if (before > 0 && before < 32) bits &= ALL << before;
    if (after > 0 && after < 32) bits &= ALL >> after;
    return bits;
}

// set_valid sets bits of 32 rows that are taken, from row g of the page on, in the column's bitmap.
DEVICE void set_valid(const PageColumn& c, const Page& p, i32 g, u32 bits) {
    if (bits == 0) return;
    i64 at = p.row + g - p.skip, word = at >> 5; // of the first bit, which may be before the column
    u32 shift = at & 31, low = bits << shift, high = shift ? bits >> (32 - shift) : 0;
    if (low) atomicOr(&c.valid[word], low);
    if (high) atomicOr(&c.valid[word + 1], high);
}

// decode_page decodes one page. All threads of the block take part.
DEVICE bool decode_page(DecodeShared& s, const Page& p, const PageColumn& c, PageStatus& status) {
    const u8 *body = p.body, *end = body + p.raw;
    bool leveled = p.levels != 0;
    if (threadIdx.x == 0) s.levels = {p.src, p.src + max(p.levels, 0), nullptr, 1, 0, 0, 0, false};
    if (p.levels == LEVELS_IN_BODY) {
        if (p.raw < 4) return false;
        u32 n = load32(body);
        if (n > (u32)(p.raw - 4)) return false;
        body += 4;
        if (threadIdx.x == 0) {
            s.levels.at = body;
            s.levels.end = body + n;
        }
        body += n;
    }
    u32 width = 0;
    bool coded = p.coded == PAGE_CODED, array = p.coded > PAGE_CODED;
    if (coded && body < end) {
        width = *body++;
        if (width > 32) return false;
    }
    if (threadIdx.x == 0) {
        s.codes = {body, end, nullptr, width, 0, 0, 0, false};
        s.at = 0;
    }
    if (leveled) {
        __syncthreads();
        if (threadIdx.x == 0) { // are there nulls at all?
            Runs r = s.levels;
            s.ok = start_run(r) && r.repeat && r.value == 1 && r.left >= p.values;
        }
        __syncthreads();
        leveled = !s.ok;
    }
    i32 bytes = (i32)(end - body), first = 0, last = p.skip + p.rows, nulls = 0, used = 0;
    if (p.coded == PAGE_ALL && leveled) last = p.values; // to count them
    if (!leveled && !coded && (array || c.form != FORM_STRINGS)) { // values that need no others before them
        first = used = p.skip;
        i64 before = (i64)first * c.stored;
        if (!array) {
            if (before > bytes) return false;
            body += before;
            bytes -= before;
        }
    }
    u64 total = 0; // bytes of the strings of this thread
    bool fits = true;
    for (i32 done = first; done < last; done += CHUNK) {
        i32 n = min(CHUNK, last - done), m = n;
        if (leveled) {
            if (!take_runs(s, s.levels, n)) return false;
            for (i32 i = threadIdx.x; i < CHUNK; i += PAGE_THREADS) {
                u32 v = i < n ? s.value[i] : 0;
                fits = fits && v <= 1;
                u32 word = __ballot_sync(ALL, v != 0);
                if (lane_id() == 0) {
                    s.bits[i >> 5] = word;
                    u32 rows = taken(p, done + i);
                    if (c.valid) set_valid(c, p, done + i, word & rows);
                    nulls += __popc(~word & rows);
                }
            }
            __syncthreads();
            i32 in_word = threadIdx.x < CHUNK / 32 ? __popc(s.bits[threadIdx.x]) : 0;
            i32 before = block_exclusive(in_word, s.sums, m);
            if (threadIdx.x < CHUNK / 32) s.before_rows[threadIdx.x] = before;
            __syncthreads();
        } else if (c.valid) {
            for (i32 i = threadIdx.x * 32; i < n; i += PAGE_THREADS * 32)
                set_valid(c, p, done + i, taken(p, done + i));
        }
        if (array) {
            if (m > p.entries - used) return false;
        } else if (m > 0 && coded) {
            // A page of nulls may omit the width of its codes; codes of no bits follow.
            if (p.entries == 0 || !take_runs(s, s.codes, m)) return false;
        } else if (m > 0 && c.form == FORM_STRINGS) {
            if (!take_strings(s, body, bytes, m)) return false;
        } else if ((i64)m * c.stored > bytes) {
            return false;
        }
        for (i32 i = threadIdx.x; i < n; i += PAGE_THREADS) {
            i32 row = done + i, j = i; // j is the position of the row's value
            bool valid = true;
            if (leveled) {
                u32 word = s.bits[i >> 5], below = (1u << (i & 31)) - 1;
                valid = word >> (i & 31) & 1;
                j = s.before_rows[i >> 5] + __popc(word & below);
            }
            bool take = row >= p.skip && row < p.skip + p.rows;
            i64 to = p.row + row - p.skip;
            u32 code = 0;
            if (valid && p.coded) {
                code = array ? used + j : s.value[j];
                if (code >= (u32)p.entries) {
                    fits = false;
                    valid = false;
                }
            }
            if (c.form == FORM_CODES) {
                if (take) ((i32*)c.out)[to] = valid ? (i32)code + p.base : 0;
                continue;
            }
            if (c.form == FORM_STRINGS) {
                u64 address = 0;
                i32 length = 0;
                if (valid && p.coded) {
                    address = ((const u64*)p.dict)[code];
                    length = p.lengths[code];
                } else if (valid) {
                    address = (u64)(body + s.value[j]);
                    length = s.length[j];
                    if (c.text && s.wide) fits = fits && valid_utf8(body + s.value[j], length);
                }
                if (take) {
                    c.strings[to] = address;
                    ((i32*)c.out)[to] = length;
                    total += length;
                }
                continue;
            }
            i64 v = 0, high = 0;
            if (valid && p.coded) {
                switch (c.width) {
                case 16:
                    v = ((const i64*)p.dict)[2 * (i64)code];
                    high = ((const i64*)p.dict)[2 * (i64)code + 1];
                    break;
                case 1: v = p.dict[code]; break;
                case 2: v = ((const u16*)p.dict)[code]; break;
                case 4: v = ((const u32*)p.dict)[code]; break;
                default: v = ((const i64*)p.dict)[code];
                }
            } else if (valid) {
                const u8* from = body + (i64)j * c.stored;
                v = c.stored == 4 ? (i64)(i32)load32(from) : (i64)load64(from);
                fits = fits && c.least <= v && v <= c.most;
            }
            if (!take) continue;
            if (c.form == FORM_BITS) {
                if (v) atomicOr((u32*)c.out + (to >> 5), 1u << (to & 31));
                continue;
            }
            switch (c.width) {
            case 16:
                ((i64*)c.out)[2 * to] = v;
                ((i64*)c.out)[2 * to + 1] = high;
                break;
            case 1: c.out[to] = (u8)v; break;
            case 2: ((u16*)c.out)[to] = (u16)v; break;
            case 4: ((u32*)c.out)[to] = (u32)v; break;
            default: ((i64*)c.out)[to] = v;
            }
        }
        if (!p.coded && c.form == FORM_VALUES) {
            body += (i64)m * c.stored;
            bytes -= m * c.stored;
        }
        used += m;
        __syncthreads();
    }
    if (p.coded == PAGE_ALL && p.entries != (leveled ? used : p.values)) return false;
    if (nulls) atomicAdd(&status.nulls, (u32)nulls);
    total = warp_sum(total);
    if (total && lane_id() == 0) atomicAdd(&status.bytes, total);
    return fits;
}

// A block decodes a page.
KERNEL_BOUNDS(pages_decode, PagesGroup, PAGE_THREADS, 4) {
    u32 block;
    const PagesArgs& g = member(a, block);
    __shared__ DecodeShared s;
    const Page& p = g.pages[g.first + block];
    PageStatus& status = g.status[p.column];
    // Otherwise some pages are not decompressed, or the dictionary is not complete.
    if (threadIdx.x == 0) s.ok = status.bad == 0 && g.status[p.dictionary].bad == 0;
    __syncthreads();
    if (!s.ok) return;
    if (!decode_page(s, p, g.columns[p.column], status)) mark_bad(status);
}

// --- Characters -----------------------------------------------------------------------

struct CharactersArgs {
    const u64* strings;  // address of each string
    const i32* offsets;  // n + 1
    u8* out;
    i64 n;
};

// A warp copies 32 strings, 32 bytes of their common output at a time.
KERNEL_BOUNDS(pages_characters, CharactersArgs, PAGE_THREADS, 4) {
    i64 first = (global_thread() >> 5) * 32;
    if (first >= a.n) return;
    u32 lane = lane_id();
    i64 row = min(first + lane, a.n - 1);
    i32 from = a.offsets[row], to = a.offsets[row + 1];
    if (first + lane >= a.n) from = to;
    const u8* src = (const u8*)a.strings[row];
    i32 begin = __shfl_sync(ALL, from, 0), end = __shfl_sync(ALL, to, 31);
    for (i32 base = begin; base < end; base += 32) {
        i32 at = base + lane;
        // The last string that begins at or before the byte, and has bytes.
        u32 k = 0;
        for (u32 d = 16; d; d >>= 1)
            if (__shfl_sync(ALL, from, (k + d) & 31) <= at && k + d < 32) k += d;
        u64 address = __shfl_sync(ALL, (u64)src, k);
        i32 start = __shfl_sync(ALL, from, k);
        if (at < end) a.out[at] = ((const u8*)address)[at - start];
    }
}
