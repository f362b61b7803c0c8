// Decompresses pages with GZIP: members of RFC 1952, whose bytes are blocks of RFC 1951. A block of threads takes a
// page. The first lane of a warp decodes symbols while another warp writes the output of the symbols before. Both warps
// check the checksum of a member.
//
// What the CPU would reject, or might, marks the column.
#include "checksum.cuh"
#include "pages_copy.cuh"

// The layout of pages_gzip.go.
struct GzipArgs {
    const Page* pages;
    PageStatus* status;
    const i32* list;
    const Checksums* checksums;
};

constexpr int GZIP_THREADS = 64;
constexpr u32 GZIP_COPIES = 128, GZIP_LITERALS = 512, GZIP_TILE = 1024;  // of a window
constexpr u32 MOST_LITERALS = GZIP_LITERALS - 6;                         // if more are decoded
constexpr u32 MOST_BITS = 15;                                            // of a code
constexpr u32 LITERAL_LOG = 10, DISTANCE_LOG = 8, LENGTH_LOG = 7;        // bits that tables decode
constexpr u32 LITERALS = 286, DISTANCES = 30, LENGTHS = 19;              // symbols
constexpr u32 INPUT = 128, FETCHED = 32;  // words of the input in shared memory, and that are fetched at a time

// --- Codes ----------------------------------------------------------------------------

// Code is a canonical Huffman code. Its first bits are the highest of a number of MOST_BITS bits.
struct Code {
    u32 limit[MOST_BITS + 1];  // codes of at most n bits are below limit[n]
    u32 base[MOST_BITS + 1];   // what, added to a code of n bits, is its position in symbols
    u16 symbols[288];          // by code
};

// make_code makes a code of n symbols from the bits of each, at most MOST_BITS. It returns false if the code is not
// complete. Complete ones include a code without symbols, and one of a single bit. A warp calls it.
DEVICE bool make_code(Code& c, const u8* bits, u32 n) {
    u32 lane = lane_id(), count = 0;
    bool mine = lane >= 1 && lane <= MOST_BITS; // each lane finds the codes of as many bits
    for (u32 i = 0; i < n && mine; i++) count += bits[i] == lane;
    u32 share = mine ? count << (MOST_BITS - lane) : 0;
    u32 limit = warp_inclusive(share), at = warp_inclusive(count);
    u32 total = __shfl_sync(ALL, limit, 31), symbols = __shfl_sync(ALL, at, 31);
    at -= count;
    if (lane <= MOST_BITS) {
        c.limit[lane] = limit;
        c.base[lane] = at - ((limit - share) >> (MOST_BITS - lane));
    }
    for (u32 i = 0; i < n && mine; i++)
        if (bits[i] == lane) c.symbols[at++] = i;
    __syncwarp();
    return total == 1u << MOST_BITS || symbols == 0 || (symbols == 1 && total == 1u << (MOST_BITS - 1));
}

// symbol_of decodes the symbol that begins with the lowest of some bits. It returns the number of its bits, which is at
// least `least`, or 0 if there is no such symbol.
DEVICE u32 symbol_of(const Code& c, u32 bits, u32 least, u32 most, u32& symbol) {
    u32 v = __brev(bits) >> (32 - MOST_BITS), n = least;
    while (n <= most && v >= c.limit[n]) n++;
    if (n > most) return 0;
    symbol = c.symbols[(v >> (MOST_BITS - n)) + c.base[n]];
    return n;
}

// Entries of the table of literals have the bits to read in the lowest 5 bits, and a kind in the next 3. Then come one
// or two literals, or what makes a length of bits. The highest bit is set for literals. An entry is 0 if the code has
// more bits than the table.
enum EntryKind { NO_ENTRY, ONE_LITERAL, TWO_LITERALS, MATCH, BLOCK_END };
constexpr u32 IS_LITERAL = 1u << 31;

DEVICE u32 entry_kind(u32 e) { return e >> 5 & 7; }
DEVICE u32 entry_length(u32 e, u64 bits) {
    return (e >> 8 & 511) + ((u32)(bits >> (e >> 20)) & ((1u << (e >> 17 & 7)) - 1));
}

// literal_entry is the entry of a literal, a length or the end of a block, whose code has n bits.
DEVICE u32 literal_entry(u32 symbol, u32 n) {
    if (symbol < 256) return n | ONE_LITERAL << 5 | symbol << 8 | IS_LITERAL;
    if (symbol == 256) return n | BLOCK_END << 5;
    u32 k = symbol - 257, extra = k < 8 || k == 28 ? 0 : (k >> 2) - 1;
    if (symbol >= LITERALS) return n;
    u32 length = k == 28 ? 258 : k < 8 ? 3 + k : 3 + ((4 + (k & 3)) << extra);
    return (n + extra) | MATCH << 5 | length << 8 | extra << 17 | n << 20;
}

// distance_entry is the entry of a distance, with the bits to read in the lowest 5 bits. The distance is 0 if the
// symbol means none.
DEVICE u32 distance_entry(u32 symbol, u32 n) {
    if (symbol >= DISTANCES) return n;
    u32 extra = symbol < 4 ? 0 : (symbol >> 1) - 1;
    u32 distance = symbol < 4 ? 1 + symbol : 1 + ((2 + (symbol & 1)) << extra);
    return (n + extra) | extra << 5 | n << 9 | distance << 13;
}

DEVICE u32 entry_distance(u32 e, u64 bits) {
    return (e >> 13) + ((u32)(bits >> (e >> 9 & 15)) & ((1u << (e >> 5 & 15)) - 1));
}

// --- Input ----------------------------------------------------------------------------

// Bits are the next bits of the input.
struct Bits {
    u64 value;
    u32 count;  // of bits of value
    u32 word;   // the next word
};

enum GzipState { MEMBER, HEADER, CODES, SYMBOLS, TRAILER, DONE, WRONG };

// Gzip is a position in a page. One lane changes it.
struct Gzip {
    const u8* in;
    u32 size, raw;   // bytes of the input and of the page
    u32 at;          // the next byte, before a member, a trailer, and after bytes that are stored
    u32 out;         // bytes of output that are known
    u32 member;      // where the output of the member begins
    u32 literals, distances;  // symbols of the codes of a block
    Bits bits;
    u32 loaded;      // words before this one are in input, unless they are too old
    u8 state;
    bool last;       // block of a member
    bool seek;       // the next bits are at byte at
    u32 input[INPUT];
    u8 lengths[288 + 32];     // bits of codes
    Code literal, distance;
    u32 literal_table[1 << LITERAL_LOG], distance_table[1 << DISTANCE_LOG];
};

// Window is output that a warp writes while another one decodes the next one: of sequences, then of bytes that are
// stored.
struct GzipWindow {
    Copies<GZIP_COPIES> copies;
    __align__(4) u8 literals[GZIP_LITERALS];
    u32 from, count, letters;     // positions of its output; sequences; literals
    u32 stored, stored_at;        // bytes, and their position in the input
    bool check;                   // it ends a member
    u32 member, checksum;         // of this member
};

// Ahead are the words after those in shared memory, one a lane.
struct Ahead {
    const u32* words;
    u32 last;  // word that may be read
    u32 word;
};

DEVICE u32 shift_of(const Gzip& z) { return (u32)((u64)z.in & 3); }

// fetch brings the input to shared memory: at least the next INPUT - FETCHED words. A warp calls it.
DEVICE void fetch(Gzip& z, Ahead& ahead) {
    u32 lane = lane_id(), loaded = z.loaded, word = z.bits.word;
    bool seek = z.seek;
    if (seek) {
        word = (shift_of(z) + z.at) >> 2;
        loaded = word & ~(FETCHED - 1);
        ahead.word = ahead.words[min(loaded + lane, ahead.last)];
    }
    __syncwarp();
    while (loaded + FETCHED - word <= INPUT) {
        z.input[(loaded + lane) % INPUT] = ahead.word;
        loaded += FETCHED;
        ahead.word = ahead.words[min(loaded + lane, ahead.last)];
    }
    __syncwarp();
    if (lane == 0) {
        if (seek) {
            u32 skip = (shift_of(z) + z.at) % 4 * 8;
            z.bits = {(u64)(z.input[word % INPUT] >> skip), 32 - skip, word + 1};
            z.seek = false;
        }
        z.loaded = loaded;
    }
    __syncwarp();
}

// more makes sure that there are 32 bits.
DEVICE void more(const Gzip& z, Bits& b) {
    if (b.count >= 32) return;
    b.value |= (u64)z.input[b.word % INPUT] << b.count;
    b.count += 32;
    b.word++;
}

DEVICE u32 take(Bits& b, u32 n) {
    u32 v = (u32)b.value & ((1u << n) - 1);
    b.value >>= n;
    b.count -= n;
    return v;
}

// bits_read returns the number of bits of the input before the next one.
DEVICE u64 bits_read(const Gzip& z, const Bits& b) { return (u64)b.word * 32 - b.count - shift_of(z) * 8; }

// overrun reports whether more bits were read than the input has.
DEVICE bool overrun(const Gzip& z, const Bits& b) { return bits_read(z, b) > (u64)z.size * 8; }

// --- Members and blocks ---------------------------------------------------------------

// skip_string skips a name or a comment, of which the CPU reads at most 512 bytes.
DEVICE bool skip_string(const Gzip& z, u32& at) {
    for (u32 n = 0; n < 512 && at < z.size; n++)
        if (z.in[at++] == 0) return true;
    return false;
}

// member_header reads the header of a member. One lane calls it.
DEVICE bool member_header(Gzip& z, const Checksums& sums) {
    const u8* p = z.in;
    u32 from = z.at, at = from + 10;
    if (z.size - from < 10 || p[from] != 0x1f || p[from + 1] != 0x8b || p[from + 2] != 8) return false;
    u32 flags = p[from + 3];
    if (flags >> 5) return false;
    if (flags & 4) {
        if (z.size - at < 2) return false;
        u32 n = p[at] | p[at + 1] << 8;
        at += 2;
        if (n > z.size - at) return false;
        at += n;
    }
    if (flags & 8 && !skip_string(z, at)) return false;
    if (flags & 16 && !skip_string(z, at)) return false;
    if (flags & 2) {
        u32 r = ALL;
        for (u32 i = from; i < at; i++) r = next_remainder(sums, r, p[i]);
        if (z.size - at < 2 || (u16)~r != (p[at] | p[at + 1] << 8)) return false;
        at += 2;
    }
    z.at = at;
    z.member = z.out;
    return true;
}

// trailer reads the trailer of a member, and ends the window. One lane calls it.
DEVICE bool trailer(Gzip& z, GzipWindow& w) {
    if (z.size - z.at < 8) return false;
    const u8* p = z.in + z.at;
    w.check = true;
    w.member = z.member;
    w.checksum = load32(p);
    z.at += 8;
    return load32(p + 4) == z.out - z.member;
}

// fixed_bits writes the bits of the codes of blocks that have none. A warp calls it.
DEVICE void fixed_bits(Gzip& z) {
    for (u32 i = lane_id(); i < 288; i += 32) z.lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    z.lengths[288 + lane_id()] = 5;
}

__constant__ u8 length_order[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

// block_header reads what a block begins with. One lane calls it.
DEVICE GzipState block_header(Gzip& z, GzipWindow& w) {
    Bits b = z.bits;
    more(z, b);
    z.last = take(b, 1);
    u32 kind = take(b, 2);
    if (overrun(z, b) || kind == 3) return WRONG;
    if (kind == 0) {
        u32 at = (u32)((bits_read(z, b) + 7) / 8);
        if (z.size - at < 4) return WRONG;
        u32 n = load32(z.in + at), size = n & 0xffff;
        at += 4;
        if ((n >> 16 ^ size) != 0xffff || size > z.size - at || size > z.raw - z.out) return WRONG;
        w.stored = size;
        w.stored_at = at;
        z.out += size;
        z.at = at + size;
        z.seek = true;
        return z.last ? TRAILER : HEADER;
    }
    z.literals = z.distances = 0;
    if (kind == 2) {
        z.literals = take(b, 5) + 257;
        z.distances = take(b, 5) + 1;
        u32 n = take(b, 4) + 4;
        if (z.literals > LITERALS || z.distances > DISTANCES) return WRONG;
        for (u32 i = 0; i < LENGTHS; i++) {
            more(z, b);
            z.lengths[length_order[i]] = i < n ? take(b, 3) : 0;
        }
    }
    z.bits = b;
    return CODES;
}

// read_lengths reads the bits of the codes of a block. One lane calls it.
DEVICE bool read_lengths(Gzip& z) {
    Bits b = z.bits;
    u32 n = z.literals + z.distances, last = 0;
    for (u32 i = 0; i < n;) {
        more(z, b);
        u32 e = z.distance_table[(u32)b.value % (1 << LENGTH_LOG)];
        if (e == 0) return false;
        take(b, e & 15);
        u32 symbol = e >> 4, repeat = 1;
        if (symbol == 16) {
            if (i == 0) return false;
            repeat = 3 + take(b, 2);
        } else {
            last = symbol < 16 ? symbol : 0;
            if (symbol == 17) repeat = 3 + take(b, 3);
            if (symbol == 18) repeat = 11 + take(b, 7);
        }
        if (repeat > n - i) return false;
        for (; repeat; repeat--) z.lengths[i++] = last;
    }
    z.bits = b;
    return !overrun(z, b);
}

// read_codes reads the codes of a block, and makes their tables. A warp calls it.
DEVICE bool read_codes(Gzip& z) {
    u32 lane = lane_id(), literals = z.literals, distances = z.distances, symbol;
    if (literals == 0) {
        literals = 288;
        distances = 32;
        __syncwarp();
        fixed_bits(z);
    } else {
        if (!make_code(z.distance, z.lengths, LENGTHS)) return false;
        for (u32 i = lane; i < 1 << LENGTH_LOG; i += 32) {
            u32 n = symbol_of(z.distance, i, 1, LENGTH_LOG, symbol);
            z.distance_table[i] = n ? n | symbol << 4 : 0;
        }
        __syncwarp();
        bool ok = lane > 0 || read_lengths(z);
        if (!__all_sync(ALL, ok)) return false;
    }
    __syncwarp();
    bool ok = make_code(z.literal, z.lengths, literals);
    ok = make_code(z.distance, z.lengths + literals, distances) && ok;
    if (!ok) return false;
    for (u32 i = lane; i < 1 << LITERAL_LOG; i += 32) {
        u32 n = symbol_of(z.literal, i, 1, LITERAL_LOG, symbol), e = n ? literal_entry(symbol, n) : 0, second;
        if (entry_kind(e) == ONE_LITERAL && n < LITERAL_LOG) {
            u32 more = symbol_of(z.literal, i >> n, 1, LITERAL_LOG - n, second);
            if (more && second < 256) e = (n + more) | TWO_LITERALS << 5 | symbol << 8 | second << 16 | IS_LITERAL;
        }
        z.literal_table[i] = e;
    }
    for (u32 i = lane; i < 1 << DISTANCE_LOG; i += 32) {
        u32 n = symbol_of(z.distance, i, 1, DISTANCE_LOG, symbol);
        z.distance_table[i] = n ? distance_entry(symbol, n) : 0;
    }
    __syncwarp();
    return true;
}

// --- Symbols --------------------------------------------------------------------------

// long_literal and long_distance return the entry of a code that has more bits than the table, or 0.
DEVICE u32 long_literal(const Gzip& z, u32 bits) {
    u32 symbol, n = symbol_of(z.literal, bits, LITERAL_LOG + 1, MOST_BITS, symbol);
    return n ? literal_entry(symbol, n) : 0;
}

DEVICE u32 long_distance(const Gzip& z, u32 bits) {
    u32 symbol, n = symbol_of(z.distance, bits, DISTANCE_LOG + 1, MOST_BITS, symbol);
    return n ? distance_entry(symbol, n) : 0;
}

// end_sequence ends sequence k of the window with a copy of length bytes, or with none. letters is the number of
// literals before it.
DEVICE void end_sequence(GzipWindow& w, u32 k, u32 letters, u32 out, u32 length, u32 back) {
    w.copies.literal[k] = letters - out;
    w.copies.match[k] = out;
    w.copies.end[k] = out + length;
    w.copies.back[k] = back;
}

// read_symbols decodes symbols until the block ends, or the window or the input in shared memory does. One lane calls
// it. Each round begins with at least 32 bits: enough for three entries of literals, or for one and a length.
DEVICE GzipState read_symbols(Gzip& z, GzipWindow& w) {
    Bits b = z.bits;
    u32 out = z.out, raw = z.raw, member = z.member, loaded = z.loaded, letters = w.letters, count = w.count;
    u32 next = z.input[b.word % INPUT];
    auto refill = [&] {
        if (b.count >= 32) return;
        b.value |= (u64)next << b.count;
        b.count += 32;
        b.word++;
        next = z.input[b.word % INPUT];
    };
    auto put = [&](u32 e) { // a second literal that is none is written again
        w.literals[letters] = (u8)(e >> 8);
        w.literals[letters + 1] = (u8)(e >> 16);
        letters += entry_kind(e);
        out += entry_kind(e);
    };
    GzipState state = SYMBOLS;
    while (b.word + 4 <= loaded && letters <= MOST_LITERALS && count + 1 < GZIP_COPIES) {
        refill();
        u32 v = (u32)b.value, used = 0;
        u32 e = z.literal_table[v % (1 << LITERAL_LOG)];
        if (e & IS_LITERAL) {
            put(e);
            used = e & 31;
            e = z.literal_table[(v >> used) % (1 << LITERAL_LOG)];
            bool more = e & IS_LITERAL;
            if (more) {
                put(e);
                used += e & 31;
                e = z.literal_table[(v >> used) % (1 << LITERAL_LOG)];
                if (e & IS_LITERAL) {
                    put(e);
                    used += e & 31;
                }
            }
            b.value >>= used;
            b.count -= used;
            if (out > raw) return WRONG;
            if (more) continue;
        }
        if (e == 0) e = long_literal(z, (u32)b.value);
        u32 kind = entry_kind(e);
        u64 bits = b.value;
        b.value >>= e & 31;
        b.count -= e & 31;
        if (e & IS_LITERAL) {
            put(e);
            if (out > raw) return WRONG;
            continue;
        }
        if (kind != MATCH) {
            state = kind == NO_ENTRY ? WRONG : z.last ? TRAILER : HEADER;
            break;
        }
        u32 length = entry_length(e, bits);
        refill();
        u32 d = z.distance_table[(u32)b.value % (1 << DISTANCE_LOG)];
        if (d == 0) d = long_distance(z, (u32)b.value);
        u32 back = entry_distance(d, b.value);
        b.value >>= d & 31;
        b.count -= d & 31;
        if (back - 1 >= out - member || length > raw - out) return WRONG;
        end_sequence(w, count++, letters, out, length, back);
        out += length;
    }
    if (overrun(z, b)) return WRONG;
    w.letters = letters;
    w.count = count;
    z.out = out;
    z.bits = b;
    if (state == TRAILER) z.at = (u32)((bits_read(z, b) + 7) / 8);
    return state;
}

// fill decodes the next window. A window without output or the end of a member is the last one. A warp calls it.
DEVICE void fill(Gzip& z, GzipWindow& w, Ahead& ahead, const Checksums& sums) {
    u32 lane = lane_id();
    if (lane == 0) {
        w.from = z.out;
        w.count = w.letters = w.stored = 0;
        w.check = false;
    }
    for (bool full = false; !full;) {
        __syncwarp();
        if (z.state < TRAILER && z.state != MEMBER) fetch(z, ahead);
        u32 state = z.state;
        bool ok = state != CODES || read_codes(z);
        __syncwarp();
        if (lane == 0) {
            switch (state) {
            case MEMBER:
                z.seek = true;
                if (z.at == z.size) z.state = DONE;
                else z.state = member_header(z, sums) ? HEADER : WRONG;
                break;
            case HEADER: z.state = block_header(z, w); break;
            case CODES: z.state = ok ? SYMBOLS : WRONG; break;
            case SYMBOLS: z.state = read_symbols(z, w); break;
            case TRAILER: z.state = trailer(z, w) ? MEMBER : WRONG;
            }
            full = z.state >= DONE || w.stored || w.check || w.letters > MOST_LITERALS ||
                   w.count + 1 >= GZIP_COPIES;
            // The literals after the last copy come before bytes that are stored.
            u32 out = z.out - w.stored;
            if (full && out > (w.count ? w.copies.end[w.count - 1] : w.from))
                end_sequence(w, w.count++, w.letters, out, 0, 1);
        }
        full = __shfl_sync(ALL, (i32)full, 0);
    }
    __syncwarp();
}

// --- Pages ----------------------------------------------------------------------------

// right reports whether the output of a member has its checksum. A block calls it.
DEVICE bool right(const GzipWindow& w, const u8* out, u32 to, const Checksums& sums, u32* remainders) {
    u32 n = to - w.member, part = (n + GZIP_THREADS / 32 - 1) / (GZIP_THREADS / 32), at = min(warp_id() * part, n);
    u32 end = min(at + part, n), r = moved(sums, remainder_of(sums, out + w.member + at, end - at), n - end);
    if (lane_id() == 0) remainders[warp_id()] = r;
    __syncthreads();
    u32 sum = moved(sums, ALL, n);
    for (u32 k = 0; k < GZIP_THREADS / 32; k++) sum ^= remainders[k];
    __syncthreads();
    return ~sum == w.checksum;
}

// gzip decompresses a page. A block of threads calls it.
DEVICE bool gzip(const Page& p, Gzip& z, GzipWindow* windows, Copied<GZIP_TILE>& copied, u32* remainders,
                 const Checksums& sums) {
    const u8* in = p.src + max(p.levels, 0);
    u32 size = p.size - max(p.levels, 0), shift = (u64)in & 3;
    bool first = warp_id() == 0;
    Ahead ahead = {(const u32*)(in - shift), (shift + size) >> 2, 0};
    if (size == 0) return p.raw == 0; // a page of nulls has no bytes
    if (threadIdx.x == 0) {
        z.in = in;
        z.size = size;
        z.raw = p.raw;
        z.at = z.out = z.loaded = 0;
        z.bits = {0, 0, 0};
        z.state = MEMBER;
        z.seek = false;
    }
    __syncthreads();
    if (first) fill(z, windows[0], ahead, sums);
    __syncthreads();
    for (u32 k = 0;; k ^= 1) {
        const GzipWindow& w = windows[k];
        bool ok = z.state != WRONG;
        u32 count = w.count, out = w.from;
        __syncthreads();
        if (!ok) return false;
        if (count == 0 && w.stored == 0 && !w.check) break;
        auto next = [&] { fill(z, windows[k ^ 1], ahead, sums); };
        if (count > 0) {
            out = w.copies.end[count - 1];
            copy_window<GZIP_THREADS>(w.copies, count, w.from, {w.literals, w.letters, 1}, p.body, copied, true, next);
        } else if (first) {
            next();
        }
        if (w.stored) copy_literals(p.body, out, {in + w.stored_at, w.stored, 1});
        __syncthreads();
        if (w.check && !right(w, p.body, out + w.stored, sums, remainders)) return false;
    }
    return z.out == (u32)p.raw;
}

KERNEL_BOUNDS(pages_gzip, GzipArgs, GZIP_THREADS, 12) {
    __shared__ Gzip z;
    __shared__ GzipWindow windows[2];
    __shared__ Copied<GZIP_TILE> copied;
    __shared__ u32 remainders[GZIP_THREADS / 32];
    const Page& p = a.pages[a.list[blockIdx.x]];
    if (threadIdx.x < SLACK) p.body[p.raw + threadIdx.x] = 0; // kernels read behind the body
    if (!gzip(p, z, windows, copied, remainders, *a.checksums) && threadIdx.x == 0) mark_bad(a.status[p.column]);
}
