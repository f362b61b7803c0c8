// Decompresses pages with ZSTD (RFC 8878). The host has walked over the headers of frames and blocks, so that all
// blocks of all pages are known. pages_zstd_blocks decodes the literals and the sequences of each block. Both depend
// on other blocks only by their tables, which are built again. Sequences are stored with the positions that they have
// in the output of their block. A distance that repeats one of an earlier block stays a symbol. pages_zstd_copy then
// goes through the blocks of a page. pages_zstd_check compares the checksums of frames.
//
// What the CPU would reject, or might, marks the column.
#include "pages_copy.cuh"
#include "zstd.cuh"

// The layouts of pages_zstd.go.
struct ZstdBlock {
    u8* literals;      // space for compressed ones; otherwise null
    u64* sequences;    // space for them
    i32 page;
    i32 first;         // of a frame
    i32 frame;
    i32 window;        // of the frame
    i32 literal_kind;
    i32 literals_at, literals_size, literals_raw;  // position in the body of the page; bytes, and bytes of output
    i32 streams;       // of compressed literals: there are four
    i32 tree;          // the block that has the tree of the literals
    i32 count;         // of sequences
    i32 sequences_at, sequences_size;
    i32 tables[3];     // the blocks that have the tables of literal lengths, offsets, and match lengths
    i32 repeats[3];    // recent offsets after the block: written by pages_zstd_blocks
};

struct ZstdFrame {
    i32 page;
    i32 content;     // bytes of output, or -1
    i32 check_at;    // position of the checksum in the body, or -1: pages_zstd_copy writes that if the page is wrong
    u32 from, to;    // its output: written by pages_zstd_copy, 0 if that fails
};

struct ZstdPage {
    i32 page;
    i32 first, count;  // blocks
};

struct ZstdArgs {
    const Page* pages;
    PageStatus* status;
    ZstdBlock* blocks;
    ZstdFrame* frames;
    const ZstdPage* list;
    const i32* work;  // 2 × block for literals, and 1 more for sequences
    u32* next;        // position in work
    i32 works, frame_count;
};

constexpr i32 REPEATED = 1;  // the kind of literals that are all the same byte

constexpr int ZSTD_WARPS = 4, ZSTD_THREADS = ZSTD_WARPS * 32;
constexpr u32 ZSTD_MOST = 128 << 10;  // bytes of output of a block
constexpr u32 MOST_OFFSET_CODE = 26;

// A sequence is one word: from bit 0 on the end of its output in the block, from bit 18 on the end of its literals,
// from bit 36 on its distance. A distance with bit SYMBOL is the recent offset in bits 25 and 26 at the start of the
// block, less the number in the bits below.
constexpr u32 SYMBOL = 1u << 27, SYMBOL_SHIFT = 25;

DEVICE u64 sequence_of(u32 end, u32 literals, u32 back) { return end | (u64)literals << 18 | (u64)back << 36; }
DEVICE u32 sequence_end(u64 s) { return s & 0x3ffff; }
DEVICE u32 sequence_literals(u64 s) { return (u32)(s >> 18) & 0x3ffff; }
DEVICE u32 sequence_back(u64 s) { return (u32)(s >> 36); }

// --- Bits -----------------------------------------------------------------------------

// Backward reads bits from the end of a stream to its beginning. Positions count bits from a word's beginning.
struct Backward {
    const u32* words;
    u64 value;  // the bits from base on
    i32 base;
    i32 at;     // bits from here on have been read
    i32 first;  // position of the first bit of the stream
    __device__ i32 left() const { return at - first; }
};

// backward starts to read n bytes. The highest bit of the last one ends the stream.
DEVICE bool backward(Backward& b, const u8* in, i32 n) {
    if (n < 1) return false;
    u32 last = in[n - 1];
    if (last == 0) return false;
    i32 shift = (i32)((u64)in & 3);
    b.words = (const u32*)(in - shift);
    b.first = shift * 8;
    b.at = (shift + n - 1) * 8 + 31 - __clz(last);
    b.base = max(0, ((b.at + 31) & ~31) - 64);
    b.value = b.words[b.base >> 5] | (u64)b.words[(b.base >> 5) + 1] << 32;
    return true;
}

// peek returns the next n ≤ 32 bits. Bits before the first one are anything.
DEVICE u32 peek(Backward& b, u32 n) {
    i32 from = b.at - (i32)n;
    if (from < b.base) {
        b.base -= 32;
        b.value = b.value << 32 | (b.base >= 0 ? b.words[b.base >> 5] : 0);
    }
    return (u32)(b.value >> ((from - b.base) & 63)) & (u32)((1ull << n) - 1); // 64 for no bits
}

DEVICE u32 take(Backward& b, u32 n) {
    u32 v = peek(b, n);
    b.at -= n;
    return v;
}

// --- Tables of finite state entropy ------------------------------------------------------

// An entry has the bits to read in its lowest byte, its symbol in the next one, and then what is added to these bits.
DEVICE u32 entry_bits(u32 e) { return e & 255; }
DEVICE u32 entry_symbol(u32 e) { return e >> 8 & 255; }
DEVICE u32 entry_next(u32 e) { return e >> 16; }

// read_counts reads the counts of at most `most` symbols, and returns the bytes that they take, or -1.
DEVICE i32 read_counts(const u8* in, i32 n, i16* counts, i32 most, u32 most_log, u32& log, i32& symbols) {
    if (n < 4) return -1;
    i32 at = 0, end = 8 * n;
    auto bits = [&](u32 k) { return at < end ? load32(in + at / 8) >> at % 8 & ((1u << k) - 1) : 0; };
    log = bits(4) + 5;
    at = 4;
    if (log > most_log) return -1;
    i32 left = (1 << log) + 1, threshold = 1 << log;
    u32 width = log + 1;
    symbols = 0;
    while (left > 1) {
        if (symbols >= most || at >= end) return -1;
        i32 low = 2 * threshold - 1 - left, v = bits(width), count = v & (threshold - 1);
        if (count < low) {
            at += width - 1;
        } else {
            count = v;
            if (count >= threshold) count -= low;
            at += width;
        }
        count--;
        left -= count < 0 ? 1 : count;
        if (left < 1) return -1;
        counts[symbols++] = count;
        if (count == 0) {
            for (u32 zeros = 3; zeros == 3;) {
                zeros = bits(2);
                at += 2;
                if (symbols + (i32)zeros > most) return -1;
                for (u32 i = 0; i < zeros; i++) counts[symbols++] = 0;
            }
        }
        while (left < threshold) {
            width--;
            threshold >>= 1;
        }
    }
    return symbols < 2 || at > end ? -1 : (at + 7) / 8;
}

// build_table makes a table of 2^log entries. The counts become scratch.
DEVICE bool build_table(u32* table, i16* counts, i32 symbols, u32 log) {
    u32 size = 1u << log, high = size, at = 0, step = (size >> 1) + (size >> 3) + 3;
    for (i32 s = 0; s < symbols; s++)
        if (counts[s] < 0) table[--high] = s;
    for (i32 s = 0; s < symbols; s++) {
        for (i32 i = 0; i < counts[s]; i++) {
            table[at] = s;
            do at = (at + step) & (size - 1);
            while (at >= high);
        }
        if (counts[s] < 0) counts[s] = 1;
    }
    if (at != 0) return false;
    for (u32 i = 0; i < size; i++) {
        u32 s = table[i], state = (u16)counts[s]++, bits = log - (31 - __clz(state));
        table[i] = bits | s << 8 | ((state << bits) - size) << 16;
    }
    return true;
}

// --- Literals -------------------------------------------------------------------------

struct Tree {
    u16 table[1 << TREE_LOG];  // bits of the code in the lower byte, and the symbol
    u16 start[256];
    u8 weight[256];
    u32 states[1 << WEIGHT_LOG];
    i16 counts[16];
};

// read_weights reads the weights of a tree. Returned are the bytes that they take, or -1. One lane calls it.
DEVICE i32 read_weights(Tree& t, const u8* in, i32 n, i32& symbols) {
    if (n < 2) return -1;
    i32 size = *in++;
    n--;
    if (size >= 128) {
        symbols = size - 127;
        size = (symbols + 1) / 2;
        if (size > n) return -1;
        for (i32 i = 0; i < symbols; i++) t.weight[i] = i & 1 ? in[i / 2] & 15 : in[i / 2] >> 4;
        return size + 1;
    }
    if (size > n) return -1;
    u32 log;
    i32 kinds, used = read_counts(in, size, t.counts, 16, WEIGHT_LOG, log, kinds);
    Backward b;
    if (used < 0 || !build_table(t.states, t.counts, kinds, log) || !backward(b, in + used, size - used)) return -1;
    u32 now = t.states[take(b, log)], other = t.states[take(b, log)];
    symbols = 0;
    while (b.left() >= 0 && symbols < 254) {
        t.weight[symbols++] = entry_symbol(now);
        if (b.left() == 0 && entry_bits(now) > 0) {
            t.weight[symbols++] = entry_symbol(other);
            return size + 1;
        }
        u32 next = t.states[entry_next(now) + take(b, entry_bits(now))];
        now = other;
        other = next;
    }
    return -1;
}

// read_tree reads a tree and makes its table. It returns the bytes that the tree takes, or -1. A warp calls it.
DEVICE i32 read_tree(Tree& t, const u8* in, i32 n, u32& log) {
    i32 symbols = 0, used = -1;
    u32 lane = lane_id();
    log = 0;
    if (lane == 0) {
        used = read_weights(t, in, n, symbols);
        u32 ranks[TREE_LOG + 2] = {}, total = 0;
        for (i32 s = 0; s < symbols && used >= 0; s++) {
            u32 w = t.weight[s];
            if (w > TREE_LOG) used = -1;
            else {
                ranks[w]++;
                total += (1u << w) >> 1;
            }
        }
        log = total == 0 ? TREE_LOG + 1 : 32 - __clz(total);
        u32 rest = (1u << log) - total;
        if (log > TREE_LOG || (rest & (rest - 1))) used = -1;
        if (used >= 0) {
            u32 w = 32 - __clz(rest), next = 0;
            t.weight[symbols++] = w;
            ranks[w]++;
            if (ranks[1] < 2 || (ranks[1] & 1)) used = -1;
            for (u32 w = 1; w <= log; w++) {
                u32 first = next;
                next += ranks[w] << (w - 1);
                ranks[w] = first;
            }
            for (i32 s = 0; s < symbols; s++) {
                u32 w = t.weight[s];
                t.start[s] = ranks[w];
                ranks[w] += (1u << w) >> 1;
            }
        }
    }
    __syncwarp();
    used = __shfl_sync(ALL, used, 0);
    symbols = __shfl_sync(ALL, symbols, 0);
    log = __shfl_sync(ALL, log, 0);
    if (used < 0) return -1;
    for (i32 s = lane; s < symbols; s += 32) {
        u32 w = t.weight[s], from = t.start[s], length = (1u << w) >> 1;
        for (u32 i = 0; i < length; i++) t.table[from + i] = (u16)(log + 1 - w) | s << 8;
    }
    __syncwarp();
    return used;
}

// decode_stream decodes n literals from one stream. Other lanes decode other streams.
DEVICE bool decode_stream(const Tree& t, u32 log, const u8* in, i32 size, u8* out, i32 n) {
    Backward b;
    if (!backward(b, in, size)) return false;
    auto next = [&] {
        u32 e = t.table[peek(b, log)];
        b.at -= e & 255;
        return e >> 8;
    };
    u8* end = out + n;
    while (out < end && ((u64)out & 3)) *out++ = next();
    for (; end - out >= 4 && b.left() >= 0; out += 4) {
        u32 word = next();
        word |= next() << 8;
        word |= next() << 16;
        *(u32*)out = word | next() << 24;
    }
    while (out < end && b.left() >= 0) *out++ = next();
    return out == end && b.left() == 0;
}

// A warp decodes the literals of a block.
DEVICE bool zstd_literals(const ZstdArgs& a, const ZstdBlock& b, const u8* body, Tree& t) {
    const ZstdBlock& from = a.blocks[b.tree];
    u32 log;
    i32 used = read_tree(t, body + from.literals_at, from.literals_size, log);
    if (used < 0) return false;
    const u8* in = body + b.literals_at;
    i32 size = b.literals_size, n = b.literals_raw;
    if (&from == &b) {
        in += used;
        size -= used;
    }
    bool ok = true;
    i32 lane = lane_id();
    if (!b.streams) {
        if (lane == 0) ok = decode_stream(t, log, in, size, b.literals, n);
    } else {
        if (size < 10 || n < 6) return false;
        i32 each = (n + 3) / 4, at = 6, mine = 0, length = 0;
        for (i32 k = 0; k < 4; k++) {
            i32 bytes = k < 3 ? in[2 * k] | in[2 * k + 1] << 8 : size - at;
            if (bytes > size - at) return false;
            if (k == lane) {
                mine = at;
                length = bytes;
            }
            at += bytes;
        }
        if (lane < 4) {
            i32 from = lane * each;
            ok = decode_stream(t, log, in + mine, length, b.literals + from, min(each, n - from));
        }
    }
    return __all_sync(ALL, ok);
}

// --- Sequences ------------------------------------------------------------------------

struct Decoder {
    u32 literals[1 << SEQUENCE_LOG], offsets[1 << OFFSET_LOG], matches[1 << SEQUENCE_LOG];
    i16 counts[3][53];
};

// skip_table returns the bytes of a table in the sequences of a block, or -1.
DEVICE i32 skip_table(const u8* in, i32 n, u32 mode, i16* counts, i32 most, u32 most_log) {
    u32 log;
    i32 symbols;
    if (mode == MODE_REPEATED) return n < 1 ? -1 : 1;
    return mode == MODE_COMPRESSED ? read_counts(in, n, counts, most, most_log, log, symbols) : 0;
}

DEVICE i32 most_symbols(u32 table) { return table == TABLE_LITERALS ? 36 : table == TABLE_OFFSETS ? 31 : 53; }
DEVICE u32 most_table_log(u32 table) { return table == TABLE_OFFSETS ? OFFSET_LOG : SEQUENCE_LOG; }

// read_table makes one of the tables of a block that has it. It returns false if it is wrong. One lane calls it.
DEVICE bool read_table(const ZstdBlock& from, const u8* body, u32 table, u32* states, i16* counts, u32& log) {
    const u8* in = body + from.sequences_at;
    i32 n = from.sequences_size, symbols;
    if (n < 1) return false;
    u32 modes = *in++, mode = 0;
    n--;
    for (u32 k = 0; k <= table; k++) {
        mode = modes >> (6 - 2 * k) & 3;
        if (k == table) break;
        i32 used = skip_table(in, n, mode, counts, most_symbols(k), most_table_log(k));
        if (used < 0) return false;
        in += used;
        n -= used;
    }
    if (mode == MODE_REPEATED) {
        log = 0;
        if (n < 1 || *in >= most_symbols(table)) return false;
        states[0] = (u32)*in << 8;
        return true;
    }
    if (mode == MODE_PREDEFINED) {
        symbols = table == TABLE_LITERALS ? 36 : table == TABLE_OFFSETS ? 29 : 53;
        log = table == TABLE_OFFSETS ? 5 : 6;
        const i16* known =
            table == TABLE_LITERALS ? literal_counts : table == TABLE_OFFSETS ? offset_counts : match_counts;
        for (i32 i = 0; i < symbols; i++) counts[i] = known[i];
    } else {
        if (mode == MODE_AGAIN) return false;
        if (read_counts(in, n, counts, most_symbols(table), most_table_log(table), log, symbols) < 0) return false;
    }
    return build_table(states, counts, symbols, log);
}

// bits_at returns the position of a block's sequences after its tables, or -1.
DEVICE i32 bits_at(const ZstdBlock& b, const u8* body, i16* counts) {
    const u8* in = body + b.sequences_at;
    i32 at = 1, n = b.sequences_size;
    if (n < 1) return -1;
    for (u32 k = 0; k < 3; k++) {
        i32 used = skip_table(in + at, n - at, *in >> (6 - 2 * k) & 3, counts, most_symbols(k), most_table_log(k));
        if (used < 0) return -1;
        at += used;
    }
    return at;
}

// decode_sequences decodes the sequences of a block, whose tables are made. One lane calls it.
DEVICE bool decode_sequences(ZstdBlock& b, const u8* in, i32 n, const Decoder& d, u32 literal_log, u32 offset_log,
                             u32 match_log) {
    Backward r;
    if (!backward(r, in, n)) return false;
    u32 most = min((u32)b.window, ZSTD_MOST), end = 0, used = 0;
    u32 recent = SYMBOL, second = SYMBOL | 1u << SYMBOL_SHIFT, third = SYMBOL | 2u << SYMBOL_SHIFT;
    if (b.first) {
        recent = 1;
        second = 4;
        third = 8;
    }
    u32 literal = d.literals[take(r, literal_log)], offset = d.offsets[take(r, offset_log)];
    u32 match = d.matches[take(r, match_log)];
    for (i32 i = 0; i < b.count; i++) {
        u32 code = entry_symbol(offset);
        if (code > MOST_OFFSET_CODE) return false;
        u32 back = (1u << code) + take(r, code);
        u32 match_code = entry_symbol(match), literal_code = entry_symbol(literal);
        u32 length = match_bases[match_code] + take(r, match_bits[match_code]);
        u32 literals = literal_bases[literal_code] + take(r, literal_bits[literal_code]);
        if (back > 3) {
            back -= 3;
            third = second;
            second = recent;
        } else {
            u32 which = back - (literals ? 1 : 0);
            if (which == 0) {
                back = recent;
            } else {
                if (which == 1) {
                    back = second;
                } else {
                    back = third;
                    if (which == 3) back = recent & SYMBOL ? recent + 1 : recent - 1;
                    third = second;
                }
                second = recent;
            }
        }
        recent = back;
        used += literals;
        end += literals + length;
        if (r.left() < 0 || back == 0 || used > (u32)b.literals_raw || end > most) return false;
        b.sequences[i] = sequence_of(end, used, back);
        if (i == b.count - 1) break;
        literal = d.literals[entry_next(literal) + take(r, entry_bits(literal))];
        match = d.matches[entry_next(match) + take(r, entry_bits(match))];
        offset = d.offsets[entry_next(offset) + take(r, entry_bits(offset))];
    }
    b.repeats[0] = recent;
    b.repeats[1] = second;
    b.repeats[2] = third;
    return r.left() == 0 && end + (b.literals_raw - used) <= most;
}

// A warp decodes the sequences of a block.
DEVICE bool zstd_sequences(const ZstdArgs& a, ZstdBlock& b, const u8* body, Decoder& d) {
    u32 lane = lane_id(), log = 0;
    bool ok = true;
    if (lane < 3) {
        u32* states = lane == TABLE_LITERALS ? d.literals : lane == TABLE_OFFSETS ? d.offsets : d.matches;
        ok = read_table(a.blocks[b.tables[lane]], body, lane, states, d.counts[lane], log);
    }
    __syncwarp();
    if (!__all_sync(ALL, ok)) return false;
    u32 offset_log = __shfl_sync(ALL, log, TABLE_OFFSETS), match_log = __shfl_sync(ALL, log, TABLE_MATCHES);
    if (lane == 0) {
        i32 at = bits_at(b, body, d.counts[0]);
        ok = at >= 0 && decode_sequences(b, body + b.sequences_at + at, b.sequences_size - at, d, log, offset_log,
                                         match_log);
    }
    return __all_sync(ALL, ok);
}

// Warps take the literals or the sequences of the next block until there is none.
KERNEL_BOUNDS(pages_zstd_blocks, ZstdArgs, ZSTD_THREADS, 8) {
    union Scratch {
        Tree tree;
        Decoder decoder;
    };
    __shared__ Scratch scratch[ZSTD_WARPS];
    Scratch& mine = scratch[warp_id()];
    for (;;) {
        u32 i = 0;
        if (lane_id() == 0) i = atomicAdd(a.next, 1u);
        i = __shfl_sync(ALL, i, 0);
        if (i >= (u32)a.works) return;
        ZstdBlock& b = a.blocks[a.work[i] >> 1];
        const Page& p = a.pages[b.page];
        const u8* body = p.src + max(p.levels, 0);
        bool ok = a.work[i] & 1 ? zstd_sequences(a, b, body, mine.decoder) : zstd_literals(a, b, body, mine.tree);
        if (!ok && lane_id() == 0) mark_bad(a.status[p.column]);
        __syncwarp();
    }
}

// --- Output ---------------------------------------------------------------------------

// resolve returns the distance of a sequence, where recent are the offsets at the start of its block. 0 is wrong.
DEVICE u32 resolve(u32 back, const u32* recent) {
    if (!(back & SYMBOL)) return back;
    u32 from = recent[back >> SYMBOL_SHIFT & 3], less = back & ((1u << SYMBOL_SHIFT) - 1);
    return from > less ? from - less : 0;
}

// A block of threads writes the output of a page.
KERNEL_BOUNDS(pages_zstd_copy, ZstdArgs, COPY_THREADS, 8) {
    __shared__ Copies<> c;
    __shared__ Copied<> copied;
    __shared__ bool stop;
    const ZstdPage& z = a.list[blockIdx.x];
    const Page& p = a.pages[z.page];
    PageStatus& status = a.status[p.column];
    if (threadIdx.x < SLACK) p.body[p.raw + threadIdx.x] = 0; // kernels read behind the body
    if (threadIdx.x == 0) stop = atomicOr(&status.bad, 0u) != 0; // some blocks have no sequences or literals
    __syncthreads();
    if (stop) return;
    const u8* body = p.src + max(p.levels, 0);
    u32 at = 0, raw = p.raw, frame_from = 0, recent[3] = {1, 4, 8};
    bool ok = true;
    for (i32 k = 0; k < z.count && ok; k++) {
        const ZstdBlock& b = a.blocks[z.first + k];
        if (b.first) {
            frame_from = at;
            recent[0] = 1;
            recent[1] = 4;
            recent[2] = 8;
        }
        u32 block_from = at, last = 0;
        Literals l = {b.literals ? b.literals : body + b.literals_at, (u32)b.literals_raw, b.literal_kind != REPEATED};
        for (i32 from = 0; from < b.count; from += COPIES) {
            i32 n = min(b.count - from, COPIES);
            u32 start = block_from + (from ? sequence_end(b.sequences[from - 1]) : 0);
            u64 final = b.sequences[from + n - 1];
            if (block_from + sequence_end(final) > raw) ok = false;
            for (i32 i = threadIdx.x; i < n && ok; i += COPY_THREADS) {
                u64 s = b.sequences[from + i], before = from + i ? b.sequences[from + i - 1] : 0;
                u32 literals = sequence_literals(before), begin = block_from + sequence_end(before);
                u32 match = begin + sequence_literals(s) - literals, back = resolve(sequence_back(s), recent);
                c.match[i] = match;
                c.end[i] = block_from + sequence_end(s);
                c.literal[i] = literals - begin;
                c.back[i] = back;
                ok = back - 1 < match - frame_from && back <= (u32)b.window;
            }
            ok = __syncthreads_and(ok);
            if (!ok) break;
            copy_window(c, n, start, l, p.body, copied, false, [] {});
            at = block_from + sequence_end(final);
            last = sequence_literals(final);
        }
        if (!ok) break;
        u32 rest = b.literals_raw - last;
        if (rest > raw - at) {
            ok = false;
            break;
        }
        copy_literals(p.body, at, {l.source(last), rest, l.stride});
        __syncthreads();
        at += rest;
        if (b.count > 0) {
            u32 after[3];
            for (i32 i = 0; i < 3; i++) after[i] = resolve(b.repeats[i], recent);
            for (i32 i = 0; i < 3; i++) recent[i] = after[i];
        }
        if (k + 1 < z.count && !a.blocks[z.first + k + 1].first) continue;
        ZstdFrame& f = a.frames[b.frame];
        if (f.content >= 0 && at - frame_from != (u32)f.content) ok = false;
        if (threadIdx.x == 0) {
            f.from = frame_from;
            f.to = at;
        }
    }
    if (threadIdx.x > 0 || (ok && at == raw)) return;
    mark_bad(status);
    for (i32 k = 0; k < z.count; k++) a.frames[a.blocks[z.first + k].frame].check_at = -1; // output is missing
}

// --- Checksums ------------------------------------------------------------------------

constexpr u64 PRIME1 = 0x9e3779b185ebca87ull, PRIME2 = 0xc2b2ae3d27d4eb4full, PRIME3 = 0x165667b19e3779f9ull;
constexpr u64 PRIME4 = 0x85ebca77c2b2ae63ull, PRIME5 = 0x27d4eb2f165667c5ull;

DEVICE u64 rotate(u64 v, u32 n) { return v << n | v >> (64 - n); }
DEVICE u64 hash_round(u64 state, u64 v) { return rotate(state + v * PRIME2, 31) * PRIME1; }

// Four lanes compute XXH64 of the output of a frame.
KERNEL_BOUNDS(pages_zstd_check, ZstdArgs, ZSTD_THREADS, 8) {
    i64 i = global_thread() / 4;
    if (i >= a.frame_count) return;
    const ZstdFrame& f = a.frames[i];
    const Page& p = a.pages[f.page];
    u32 lane = threadIdx.x & 3, four = 15u << (lane_id() & 28);
    if (f.check_at < 0) return;
    const u8 *at = p.body + f.from, *end = p.body + f.to;
    u64 n = f.to - f.from, state = lane == 0 ? PRIME1 + PRIME2 : lane == 1 ? PRIME2 : lane == 2 ? 0 : 0 - PRIME1;
    if ((u64)at % 8 == 0) {
        for (; end - at >= 32; at += 32) state = hash_round(state, *(const u64*)(at + 8 * lane));
    } else {
        for (; end - at >= 32; at += 32) state = hash_round(state, load64(at + 8 * lane));
    }
    u64 all[4];
    for (int k = 0; k < 4; k++) all[k] = __shfl_sync(four, state, k, 4);
    if (lane) return;
    u64 h = PRIME5;
    if (n >= 32) {
        h = rotate(all[0], 1) + rotate(all[1], 7) + rotate(all[2], 12) + rotate(all[3], 18);
        for (int k = 0; k < 4; k++) h = (h ^ hash_round(0, all[k])) * PRIME1 + PRIME4;
    }
    h += n;
    for (; end - at >= 8; at += 8) h = rotate(h ^ hash_round(0, load64(at)), 27) * PRIME1 + PRIME4;
    for (; end - at >= 4; at += 4) h = rotate(h ^ load32(at) * PRIME1, 23) * PRIME2 + PRIME3;
    for (; at < end; at++) h = rotate(h ^ *at * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    h ^= h >> 32;
    if ((u32)h != load32(p.src + max(p.levels, 0) + f.check_at)) mark_bad(a.status[p.column]);
}
