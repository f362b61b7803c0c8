// Compresses bodies of pages with ZSTD (RFC 8878), as one frame each.
//
//   encode_zstd  a warp a piece of a body: a block of the frame, checksum
//
// A warp finds the sequences of a piece, and stores them and the literals between matches in its own memory. Then it
// writes the literals, in a code of Huffman that it makes for the piece, and the sequences, each of whose three fields
// has a table of finite state entropy. Blocks refer to earlier ones only by matches, not by tables or repeated offsets,
// so that all pieces of a page are compressed at the same time.
#include "encode_match.cuh"
#include "zstd.cuh"

constexpr u32 ZSTD_HISTORY = (64 << 10) - 1, ZSTD_SCRATCH = 128 << 10;
constexpr u32 MOST_CODES = 53, BIT_WORDS = 96;
constexpr u32 SEQUENCE_BYTES = 512; // more than 32 sequences, or 128 literals, take in a stream

// The kinds of blocks and of literals.
enum ZstdKind { KIND_RAW, KIND_REPEATED, KIND_COMPRESSED };

// Stream collects bits in shared memory, the first one lowest, and writes full words.
struct Stream {
    u32* words;  // BIT_WORDS: zero above the first `filled` bits
    u8* out;
    u32 size;    // bytes written
    u32 filled;  // less than 32
};

// or_bits adds n ≤ 64 bits to words at a position.
DEVICE void or_bits(u32* words, u32 at, u64 bits, u32 n) {
    if (n == 0) return;
    u32 *w = words + (at >> 5), shift = at & 31;
    u64 low = bits << shift;
    u32 high = shift ? (u32)(bits >> (64 - shift)) : 0;
    if ((u32)low) atomicOr(w, (u32)low);
    if (low >> 32) atomicOr(w + 1, (u32)(low >> 32));
    if (high) atomicOr(w + 2, high);
}

// append adds two numbers of bits of each lane, those of lower lanes first.
DEVICE void append(Stream& s, u64 first, u32 n, u64 second, u32 m) {
    u32 end = warp_inclusive(n + m), total = s.filled + __shfl_sync(ALL, end, 31), at = s.filled + end - n - m;
    or_bits(s.words, at, first, n);
    or_bits(s.words, at + n, second, m);
    __syncwarp();
    u32 full = total >> 5, rest = s.words[full];
    for (u32 i = lane_id(); i < full; i += 32) put32(s.out + s.size + 4 * i, s.words[i]);
    __syncwarp();
    for (u32 i = lane_id(); i <= full; i += 32) s.words[i] = i == 0 ? rest : 0;
    __syncwarp();
    s.size += 4 * full;
    s.filled = total & 31;
}

// begin_stream starts a stream.
DEVICE Stream begin_stream(u32* words, u8* out) {
    for (u32 i = lane_id(); i < BIT_WORDS; i += 32) words[i] = 0;
    __syncwarp();
    return {words, out, 0, 0};
}

// end_stream writes the bit that ends a stream, and returns its bytes.
DEVICE u32 end_stream(Stream& s) {
    append(s, 1, lane_id() == 0, 0, 0);
    u32 bytes = (s.filled + 7) / 8;
    if (lane_id() < bytes) s.out[s.size + lane_id()] = s.words[0] >> 8 * lane_id();
    __syncwarp(); // the words may be those of the next stream
    return s.size + bytes;
}

// Bits writes bits, the first one lowest. One lane uses it.
struct Bits {
    u8* out;
    u64 value;
    u32 size, filled;
    __device__ void put(u32 v, u32 n) {
        value |= (u64)v << filled;
        for (filled += n; filled >= 8; filled -= 8, value >>= 8) out[size++] = (u8)value;
    }
    __device__ u32 end() {
        if (filled) out[size++] = (u8)value;
        return size;
    }
};

// --- Tables of finite state entropy ------------------------------------------------------

// Entropy is a table by which symbols become states. next has 2^log states.
struct Entropy {
    u16* next;
    u32* bits;   // of each symbol: 2^16 times the bits of a state, less the least state that has one bit more
    i32* start;  // of each symbol: what is added to a state without its bits to find the next one
    i32 log;     // negative: all symbols are the same, and states have no bits
};

// log_of is 256 times the logarithm of x > 0, by less than one off.
DEVICE u32 log_of(u32 x) {
    u32 e = 31 - __clz(x), part = (u32)(((u64)x << 8) >> e) - 256;
    return 256 * e + part + (part * (256 - part) * 88 >> 16);
}

DEVICE u32 ceil_log(u32 n) { return n < 2 ? 0 : 32 - __clz(n - 1); }

// normalize makes counts of symbols that add up to 2^log. There are at most 2^log symbols with a count. One lane calls
// it, and the next ones.
DEVICE void normalize(const u32* counts, i32 symbols, u32 total, u32 log, i16* out) {
    i32 left = 1 << log, largest = 0;
    for (i32 s = 0; s < symbols; s++) {
        u32 c = counts[s];
        out[s] = c ? max(1u, (u32)((((u64)c << log) + total / 2) / total)) : 0;
        left -= out[s];
        if (out[s] > out[largest]) largest = s;
    }
    if (left > 0) out[largest] += left;
    while (left < 0) { // the largest count is two at least, because there are not more symbols than their sum
        for (i32 s = 0; s < symbols; s++)
            if (out[s] > out[largest]) largest = s;
        i32 less = min(-left, out[largest] / 2);
        out[largest] -= less;
        left += less;
    }
}

// put_counts writes the counts of a table, and returns their bytes.
DEVICE u32 put_counts(u8* out, const i16* counts, i32 symbols, u32 log) {
    Bits b = {out, 0, 0, 0};
    b.put(log - 5, 4);
    i32 left = (1 << log) + 1, threshold = 1 << log;
    u32 width = log + 1;
    for (i32 s = 0; s < symbols && left > 1;) {
        i32 count = counts[s++], low = 2 * threshold - 1 - left;
        left -= count;
        i32 v = count + 1;
        if (v >= threshold) v += low;
        b.put(v, v < low ? width - 1 : width);
        if (count == 0) { // how many more zeros follow
            u32 zeros = 0;
            while (s + (i32)zeros < symbols && counts[s + zeros] == 0) zeros++;
            s += zeros;
            for (; zeros >= 3; zeros -= 3) b.put(3, 2);
            b.put(zeros, 2);
        }
        while (left < threshold && width > 1) {
            width--;
            threshold >>= 1;
        }
    }
    return b.end();
}

// build makes a table. cells is scratch of 2^log bytes, places of a number for each symbol.
DEVICE void build(Entropy& t, const i16* counts, i32 symbols, u32 log, u8* cells, u16* places) {
    u32 size = 1u << log, high = size, at = 0, step = (size >> 1) + (size >> 3) + 3, total = 0;
    t.log = log;
    for (i32 s = 0; s < symbols; s++)
        if (counts[s] < 0) cells[--high] = s;
    for (i32 s = 0; s < symbols; s++) {
        i32 count = counts[s];
        for (i32 i = 0; i < count; i++) {
            cells[at] = s;
            do at = (at + step) & (size - 1);
            while (at >= high);
        }
        if (count < 0) count = 1;
        places[s] = total;
        if (count == 0) continue;
        u32 most = count == 1 ? log : log - (31 - __clz(count - 1));
        t.bits[s] = (most << 16) - ((u32)count << most);
        t.start[s] = (i32)total - count;
        total += count;
    }
    for (u32 u = 0; u < size; u++) t.next[places[cells[u]]++] = size + u;
}

// first_state returns the state of the symbol that is decoded last.
DEVICE u32 first_state(const Entropy& t, u32 symbol) {
    u32 bits = (t.bits[symbol] + (1 << 15)) >> 16;
    return t.next[(i32)(((bits << 16) - t.bits[symbol]) >> bits) + t.start[symbol]];
}

// next_state returns the state before, and the number of its lowest bits that must be written first.
DEVICE u32 next_state(const Entropy& t, u32 state, u32 symbol, u32& bits) {
    bits = (state + t.bits[symbol]) >> 16;
    return t.next[(i32)(state >> bits) + t.start[symbol]];
}

// --- Literals -------------------------------------------------------------------------

struct Tree {
    u32 counts[256], nodes[256];
    u32 number[TREE_LOG + 1];     // of codes of each length
    u16 codes[256];
    u8 lengths[256], order[256];  // order has the symbols by their counts, the least first
    u8 parent[256], leaves[256], depth[256];
    u8 weights[256];
    u32 most;                     // bits of a code
    i32 symbols;                  // the last one has the next lower number
    u32 size;                     // bytes of the description; 0 if there is none
    u32 distinct;
    u32 bits[16];
    i32 start[16];
    i16 norm[16];
    u16 next[1 << WEIGHT_LOG], places[16];
    u8 cells[1 << WEIGHT_LOG];
    u32 words[BIT_WORDS];
};

// make_lengths finds the lengths of the codes of `distinct` symbols, which are in order. One lane calls it.
DEVICE void make_lengths(Tree& t) {
    u32 n = t.distinct, leaf = 0, node = 0;
    for (u32 i = 0; i + 1 < n; i++) { // joins the two least ones
        u32 sum = 0;
        t.leaves[i] = 0;
        for (u32 k = 0; k < 2; k++) {
            if (leaf < n && (node >= i || t.counts[t.order[leaf]] <= t.nodes[node])) {
                sum += t.counts[t.order[leaf++]];
                t.leaves[i]++;
            } else {
                t.parent[node] = i;
                sum += t.nodes[node++];
            }
        }
        t.nodes[i] = sum;
    }
    for (u32 k = 0; k <= TREE_LOG; k++) t.number[k] = 0;
    for (i32 i = (i32)n - 2; i >= 0; i--) {
        t.depth[i] = i == (i32)n - 2 ? 0 : t.depth[t.parent[i]] + 1;
        t.number[min((u32)t.depth[i] + 1, TREE_LOG)] += t.leaves[i];
    }
    // Codes that would be longer are cut, and others made longer until all have room.
    u32 total = 0;
    for (u32 k = 1; k <= TREE_LOG; k++) total += t.number[k] << (TREE_LOG - k);
    for (; total > 1u << TREE_LOG; total--) {
        t.number[TREE_LOG]--;
        u32 k = TREE_LOG - 1;
        while (k > 1 && t.number[k] == 0) k--;
        t.number[k]--;
        t.number[k + 1] += 2;
    }
    u32 length = TREE_LOG, given = 0;
    while (length > 1 && t.number[length] == 0) length--;
    t.most = length;
    for (u32 i = 0; i < n; i++, given++) {
        while (length > 1 && given == t.number[length]) {
            length--;
            given = 0;
        }
        t.lengths[t.order[i]] = length;
    }
    u32 code = 0, codes[TREE_LOG + 1];
    for (u32 k = TREE_LOG; k > 0; k--) {
        codes[k] = code;
        code = (code + t.number[k]) >> 1;
    }
    for (i32 s = 0; s < t.symbols; s++)
        if (t.lengths[s]) t.codes[s] = codes[t.lengths[s]]++;
}

// put_weights describes the tree, by the weights of all symbols but the last one. One lane calls it. It returns the
// bytes that it has written, at most 129, or 0 if there is no description.
DEVICE u32 put_weights(Tree& t, u8* out) {
    i32 n = t.symbols - 1;
    u32 counts[TREE_LOG + 2], distinct = 0, direct = n <= 128 ? 1 + (n + 1) / 2 : ALL;
    for (u32 k = 0; k < TREE_LOG + 2; k++) counts[k] = 0;
    for (i32 s = 0; s < n; s++) {
        t.weights[s] = t.lengths[s] ? t.most + 1 - t.lengths[s] : 0;
        counts[t.weights[s]]++;
    }
    for (u32 k = 0; k < TREE_LOG + 2; k++) distinct += counts[k] > 0;
    if (n > 2 && distinct > 1) {
        u32 log = min(WEIGHT_LOG, max(5u, ceil_log(n) - 1));
        i32 symbols = TREE_LOG + 2;
        while (counts[symbols - 1] == 0) symbols--;
        Entropy e = {t.next, t.bits, t.start, 0};
        normalize(counts, symbols, n, log, t.norm);
        u32 head = put_counts(out + 1, t.norm, symbols, log);
        build(e, t.norm, symbols, log, t.cells, t.places);
        // Two states take turns, the last symbols first.
        u32 states[2];
        Bits b = {out + 1 + head, 0, 0, 0};
        for (i32 s = n - 1; s >= 0 && b.size < 160; s--) {
            u32& state = states[s & 1];
            if (s >= n - 2) {
                state = first_state(e, t.weights[s]);
                continue;
            }
            u32 bits, before = state;
            state = next_state(e, state, t.weights[s], bits);
            b.put(before & ((1u << bits) - 1), bits);
        }
        b.put(states[1] & ((1u << log) - 1), log);
        b.put(states[0] & ((1u << log) - 1), log);
        b.put(1, 1);
        u32 size = head + b.end();
        if (size < 128 && 1 + size < direct) {
            out[0] = size;
            return 1 + size;
        }
    }
    if (direct == ALL) return 0;
    out[0] = 127 + n;
    for (i32 s = 0; s < n; s += 2) out[1 + s / 2] = t.weights[s] << 4 | (s + 1 < n ? t.weights[s + 1] : 0);
    return direct;
}

// put_stream writes literals in their codes, and returns the bytes. The last one is written first.
DEVICE u32 put_stream(Tree& t, u8* out, const u8* literals, u32 n) {
    Stream s = begin_stream(t.words, out);
    for (u32 base = 0; base < n; base += 128) {
        u64 value = 0;
        u32 bits = 0;
        for (u32 k = 0; k < 4; k++) {
            u32 i = base + 4 * lane_id() + k;
            if (i >= n) break;
            u8 symbol = literals[n - 1 - i];
            value |= (u64)t.codes[symbol] << bits;
            bits += t.lengths[symbol];
        }
        append(s, value, bits, 0, 0);
    }
    return end_stream(s);
}

DEVICE void put_number(u8* out, u64 v, u32 bytes) {
    for (u32 k = 0; k < bytes; k++) out[k] = v >> 8 * k;
}

// put_plain_literals writes literals as they are, or one byte for all, and returns the bytes of the section.
DEVICE u32 put_plain_literals(u8* out, const u8* literals, u32 n, ZstdKind kind) {
    u32 head = n < 32 ? 1 : n < 4096 ? 2 : 3, bytes = kind == KIND_REPEATED ? 1 : n;
    if (lane_id() == 0) put_number(out, head == 1 ? n << 3 | kind : n << 4 | (head == 2 ? 1 : 3) << 2 | kind, head);
    copy_bytes(out + head, literals, bytes);
    return head + bytes;
}

// count_bytes counts each value of a byte.
DEVICE void count_bytes(u32* counts, const u8* in, u32 n) {
    for (u32 i = lane_id(); i < 256; i += 32) counts[i] = 0;
    __syncwarp();
    for (u32 i = lane_id(); i < n; i += 32) atomicAdd(&counts[in[i]], 1u);
    __syncwarp();
}

// put_literals writes the literals of a block, and returns the bytes of the section.
DEVICE u32 put_literals(Tree& t, u8* out, const u8* literals, u32 n) {
    u32 lane = lane_id();
    for (u32 i = lane; i < 256; i += 32) t.lengths[i] = 0;
    count_bytes(t.counts, literals, n);
    u32 distinct = 0, last = 0;
    for (u32 k = 0; k < 8; k++) {
        u32 found = __ballot_sync(ALL, t.counts[32 * k + lane] > 0);
        distinct += __popc(found);
        if (found) last = 32 * k + 31 - __clz(found);
    }
    if (distinct == 1 && n > 3) return put_plain_literals(out, literals, n, KIND_REPEATED);
    if (distinct < 2 || n < 32) return put_plain_literals(out, literals, n, KIND_RAW);
    for (u32 k = 0; k < 8; k++) { // ranks
        u32 symbol = 32 * k + lane, count = t.counts[symbol], rank = 0;
        for (u32 other = 0; other < 256; other++) {
            u32 c = t.counts[other];
            rank += c > 0 && (c < count || (c == count && other < symbol));
        }
        if (count) t.order[rank] = symbol;
    }
    __syncwarp();
    const u32 head = n < 1024 ? 3 : n < 16384 ? 4 : 5;
    bool four = n >= 256;
    if (lane == 0) {
        t.distinct = distinct;
        t.symbols = last + 1;
        make_lengths(t);
        t.size = put_weights(t, out + head);
    }
    __syncwarp();
    u32 bits = 0, size = t.size;
    for (u32 i = lane; i < 256; i += 32) bits += t.counts[i] * t.lengths[i];
    bits = warp_sum(bits);
    if (size == 0 || head + size + bits / 8 + 8 >= n) return put_plain_literals(out, literals, n, KIND_RAW);
    if (four) {
        u32 jumps = head + size, part = (n + 3) / 4;
        size += 6;
        for (u32 k = 0; k < 4; k++) {
            u32 from = k * part, stream = put_stream(t, out + head + size, literals + from, min(part, n - from));
            if (k < 3 && lane == 0) put_number(out + jumps + 2 * k, stream, 2);
            size += stream;
        }
    } else {
        size += put_stream(t, out + head + size, literals, n);
    }
    u32 width = head == 3 ? 10 : head == 4 ? 14 : 18, form = four ? head - 2 : 0;
    u64 number = KIND_COMPRESSED | form << 2 | n << 4 | (u64)size << (4 + width);
    if (lane == 0) put_number(out, number, head);
    return head + size;
}

// --- Sequences ------------------------------------------------------------------------

// A sequence has the number of its literals, from bit 17 on the length of its match, and from bit 34 on its offset:
// a recent one, 1 to 3, or three more than its bytes.
DEVICE u64 sequence_of(u32 literals, u32 length, u32 offset) {
    return literals | (u64)length << 17 | (u64)offset << 34;
}

// Field is a number of a sequence, as a code and bits after it.
struct Field {
    u32 code, bits, value;
};

DEVICE Field field_of(u64 sequence, u32 table) {
    if (table == TABLE_OFFSETS) {
        u32 v = (u32)(sequence >> 34), code = 31 - __clz(v);
        return {code, code, v - (1u << code)};
    }
    if (table == TABLE_LITERALS) {
        u32 v = (u32)sequence & 0x1ffff, code = v;
        if (v >= 64) code = 31 - __clz(v) + 19;
        else if (v >= 48) code = 24;
        else if (v >= 32) code = 22 + (v - 32) / 8;
        else if (v >= 24) code = 20 + (v - 24) / 4;
        else if (v >= 16) code = 16 + (v - 16) / 2;
        return {code, literal_bits[code], v - literal_bases[code]};
    }
    u32 v = (u32)(sequence >> 17) & 0x1ffff, m = v - 3, code = m;
    if (m >= 128) code = 31 - __clz(m) + 36;
    else if (m >= 96) code = 42;
    else if (m >= 64) code = 40 + (m - 64) / 16;
    else if (m >= 48) code = 38 + (m - 48) / 8;
    else if (m >= 40) code = 36 + (m - 40) / 4;
    else if (m >= 32) code = 32 + (m - 32) / 2;
    return {code, match_bits[code], v - match_bases[code]};
}

struct Tables {
    u16 next[3][1 << SEQUENCE_LOG];
    u32 bits[3][MOST_CODES];
    i32 start[3][MOST_CODES];
    u32 counts[3][MOST_CODES + 11];
    i16 norm[3][MOST_CODES + 11];
    u16 places[3][MOST_CODES];
    i32 logs[3];
    u32 size;                  // bytes of the description
    u8 cells[3][1 << SEQUENCE_LOG];
    u8 codes[3][32];           // of 32 sequences
    u8 widths[3][32];          // of what their states add
    u16 states[3][32];
    u32 words[BIT_WORDS];
};

DEVICE i32 predefined_count(u32 table, u32 symbol) {
    return table == TABLE_LITERALS  ? (symbol < 36 ? literal_counts[symbol] : 0)
           : table == TABLE_OFFSETS ? (symbol < 29 ? offset_counts[symbol] : 0)
                                    : match_counts[symbol];
}

// cost_of is about 256 times the bits of the states of all symbols.
DEVICE u64 cost_of(const u32* counts, const i16* norm, i32 symbols, u32 log) {
    u64 cost = 0;
    for (i32 s = 0; s < symbols; s++)
        if (counts[s]) cost += (u64)counts[s] * (256 * log - log_of(max(1, norm[s])));
    return cost;
}

// put_tables chooses and describes the tables of a block of n sequences. One lane calls it.
DEVICE u32 put_tables(Tables& t, u32 n, u8* out) {
    u32 size = 1, modes = 0;
    for (u32 k = 0; k < 3; k++) {
        i32 symbols = MOST_CODES, distinct = 0;
        while (symbols > 1 && t.counts[k][symbols - 1] == 0) symbols--;
        for (i32 s = 0; s < symbols; s++) distinct += t.counts[k][s] > 0;
        u32 mode = MODE_COMPRESSED, most = k == TABLE_OFFSETS ? OFFSET_LOG : SEQUENCE_LOG;
        u32 log = min(most, max(max(5u, ceil_log(distinct) + 1), ceil_log(n) - min(ceil_log(n), 2u)));
        if (distinct == 1) {
            mode = MODE_REPEATED;
            out[size++] = symbols - 1;
            t.logs[k] = -1;
        } else {
            i16* norm = t.norm[k];
            normalize(t.counts[k], symbols, n, log, norm);
            u32 bytes = put_counts(out + size, norm, symbols, log);
            u64 cost = cost_of(t.counts[k], norm, symbols, log) + 8 * 256 * bytes;
            i32 all = k == TABLE_LITERALS ? 36 : k == TABLE_OFFSETS ? 29 : 53;
            u32 usual = k == TABLE_OFFSETS ? 5 : 6;
            for (i32 s = 0; s < all; s++) norm[s] = predefined_count(k, s);
            if (cost_of(t.counts[k], norm, symbols, usual) <= cost) {
                mode = MODE_PREDEFINED;
                log = usual;
                symbols = all;
            } else {
                normalize(t.counts[k], symbols, n, log, norm);
                size += bytes;
            }
            Entropy e = {t.next[k], t.bits[k], t.start[k], 0};
            build(e, norm, symbols, log, t.cells[k], t.places[k]);
            t.logs[k] = log;
        }
        modes |= mode << (6 - 2 * k);
    }
    out[0] = modes;
    return size;
}

// put_sequences writes the n sequences that end before `end`, the first one last, and returns the bytes of the section,
// or ALL if they are more than `most`.
DEVICE u32 put_sequences(Tables& t, u8* out, const u64* end, u32 n, u32 most) {
    u32 lane = lane_id(), head = n < 128 ? 1 : 2;
    if (lane == 0) put_number(out, n < 128 ? n : (n >> 8) + 128 | (n & 255) << 8, head);
    if (n == 0) return head;
    for (u32 k = 0; k < 3; k++)
        for (u32 s = lane; s < MOST_CODES; s += 32) t.counts[k][s] = 0;
    __syncwarp();
    for (u32 i = lane; i < n; i += 32)
        for (u32 k = 0; k < 3; k++) atomicAdd(&t.counts[k][field_of(end[-1 - (i32)i], k).code], 1u);
    __syncwarp();
    if (lane == 0) t.size = put_tables(t, n, out + head);
    __syncwarp();
    u32 size = head + t.size, state = 0;
    Stream s = begin_stream(t.words, out + size);
    Entropy e = {nullptr, nullptr, nullptr, -1};
    if (lane < 3) e = {t.next[lane], t.bits[lane], t.start[lane], t.logs[lane]};
    for (u32 base = 0; base < n; base += 32) { // from the last one to the first
        if (size + s.size + SEQUENCE_BYTES > most) return ALL;
        u32 count = min(n - base, 32);
        Field fields[3] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
        if (lane < count) {
            u64 sequence = end[-(i32)(n - base - lane)];
            for (u32 k = 0; k < 3; k++) {
                fields[k] = field_of(sequence, k);
                t.codes[k][lane] = fields[k].code;
            }
        }
        __syncwarp();
        if (lane < 3) { // each table has states of its own
            for (u32 i = 0; i < count; i++) {
                u32 symbol = t.codes[lane][i], bits = 0, before = state;
                if (e.log >= 0)
                    state = base + i == 0 ? first_state(e, symbol) : next_state(e, state, symbol, bits);
                t.widths[lane][i] = bits;
                t.states[lane][i] = before & ((1u << bits) - 1);
            }
        }
        __syncwarp();
        u64 first = 0, second = 0;
        u32 bits = 0, more = 0;
        if (lane < count) {
            for (u32 k = 0; k < 3; k++) {
                u32 table = k == 0 ? TABLE_OFFSETS : k == 1 ? TABLE_MATCHES : TABLE_LITERALS;
                first |= (u64)t.states[table][lane] << bits;
                bits += t.widths[table][lane];
            }
            for (u32 k = 0; k < 3; k++) {
                const Field& f = fields[k == 0 ? TABLE_LITERALS : k == 1 ? TABLE_MATCHES : TABLE_OFFSETS];
                second |= (u64)f.value << more;
                more += f.bits;
            }
        }
        append(s, first, bits, second, more);
    }
    // The states with which decoding begins: matches, offsets, literals.
    u32 order = lane == 0 ? TABLE_MATCHES : lane == 1 ? TABLE_OFFSETS : TABLE_LITERALS;
    u32 last = __shfl_sync(ALL, state, order), width = lane < 3 ? max(0, t.logs[order]) : 0;
    append(s, last & ((1u << width) - 1), width, 0, 0);
    return size + end_stream(s);
}

// --- Blocks ---------------------------------------------------------------------------

// put_frame_head writes what a frame of raw bytes begins with, and returns its bytes. Matches reach back 64 KiB.
DEVICE u32 put_frame_head(u8* out, u32 raw) {
    u32 flag = raw < 256 ? 0 : raw <= PIECE ? 1 : 2, bytes = 1 << flag;
    bool single = flag < 2; // the window is the frame
    if (lane_id() == 0) {
        put32(out, 0xfd2fb528u);
        out[4] = flag << 6 | single << 5;
        if (!single) out[5] = 6 << 3;
        put_number(out + 6 - single, flag == 1 ? raw - 256 : raw, bytes);
    }
    return 6 - single + bytes;
}

struct Zstd {
    union {
        u16 table[1 << HASH_LOG];
        Tree tree;
        Tables tables;
    };
};

// price_of returns the bits that a byte would take without matches, times 256.
DEVICE u32 price_of(u32* counts, const u8* in, u32 n) {
    count_bytes(counts, in, n);
    u64 sum = 0;
    for (u32 i = lane_id(); i < 256; i += 32)
        if (counts[i]) sum += (u64)counts[i] * log_of(counts[i]);
    sum = warp_sum(sum);
    __syncwarp();
    return max(64u, log_of(n) - (u32)(sum / n));
}

// compress writes the block of n bytes of input, and returns its bytes.
DEVICE u32 compress(Zstd& z, const u8* in, u32 n, u32 history, u32 width, bool last, u8* scratch, u8* out) {
    u8* literals = scratch;
    u64* end = (u64*)(scratch + ZSTD_SCRATCH);
    u32 kept = 0, count = 0, recent[3] = {0, 0, 0}; // recent offsets, as far as this block has them
    const u32 literal = price_of(z.tree.counts, in, n);
    const Prices prices = {literal, 256 * 8, 256 * 4, true};
    u32 rest = find_matches<true>(prices, in, n, history, most_starts(n), n, z.table, width,
                                  [&](u32 from, u32 start, u32 offset, u32 length) {
        u32 run = start - from, value = offset + 3;
        copy_bytes(literals + kept, in + from, run);
        kept += run;
        if (run > 0) {
            for (u32 k = 3; k > 0; k--)
                if (offset == recent[k - 1]) value = k;
        } else { // without literals before it, a match does not continue the last one
            if (offset == recent[0] - 1 && recent[0] > 0) value = 3;
            if (offset == recent[2]) value = 2;
            if (offset == recent[1]) value = 1;
        }
        u32 place = run > 0 ? value : value + 1; // 1: the offset stays the most recent one, 2: it was the second
        if (place != 1) {
            if (place != 2) recent[2] = recent[1];
            recent[1] = recent[0];
            recent[0] = offset;
        }
        if (lane_id() == 0) end[-1 - (i32)count] = sequence_of(run, length, value);
        count++;
    });
    copy_bytes(literals + kept, in + rest, n - rest);
    kept += n - rest;
    __syncwarp();
    u32 size = 3 + put_literals(z.tree, out + 3, literals, kept), kind = KIND_COMPRESSED;
    __syncwarp();
    if (size < n) {
        u32 more = put_sequences(z.tables, out + size, end, count, n + 3 + SEQUENCE_BYTES - size);
        size = more == ALL ? ALL : size + more;
    } else {
        size = ALL;
    }
    __syncwarp();
    if (size >= n + 3) {
        copy_bytes(out + 3, in, n);
        kind = KIND_RAW;
        size = n + 3;
    }
    if (lane_id() == 0) put_number(out, (u32)last | kind << 1 | (kind == KIND_RAW ? n : size - 3) << 3, 3);
    return size;
}

KERNEL_BOUNDS(encode_zstd, EncodeArgs, PIECE_WARPS * 32, 4) {
    __shared__ Checksums checksums;
    __shared__ Zstd shared[PIECE_WARPS];
    load_checksums(checksums, a.checksums);
    i32 worker = blockIdx.x * PIECE_WARPS + warp_id();
    u8* scratch = a.scratch + (i64)worker * ZSTD_SCRATCH;
    for (i32 i = next_piece(a); i < a.count; i = next_piece(a)) {
        const Piece piece = a.pieces[i];
        const EncodePage& p = a.pages[piece.page];
        u32 raw = a.results[piece.page].raw, at = piece.index * PIECE, size = 0, checksum = 0;
        if (at < raw) {
            u8* out = a.packed + (i64)i * a.slot;
            u32 n = min(raw - at, PIECE);
            if (at == 0) size = put_frame_head(out, raw);
            size += compress(shared[warp_id()], p.body + at, n, min(at, ZSTD_HISTORY), a.chunks[p.chunk].width,
                             at + n == raw, scratch, out + size);
            if (lane_id() == 0) clear_after(out + size);
            __syncwarp();
            checksum = remainder_of(checksums, out, size);
        }
        if (lane_id() == 0) {
            a.ends[i].size = size;
            a.ends[i].checksum = checksum;
        }
        __syncwarp();
    }
}
