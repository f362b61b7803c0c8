// Compresses bodies of pages as blocks of LZ4.
//
//   encode_lz4         a warp a piece of a body: its sequences, checksums
//   encode_lz4_joints  a thread a piece: the run of literals that begins in it
//   encode_lz4_gather  a block a piece: moves it to its place in the output
//
// A sequence is a token with two lengths, literals, and a match. So literals after the last match of a piece and those
// before the first match of a later one are one run, and only the joints of pieces have its length. A piece that has
// begun to write a run, or is the first one, has its token: the output of a piece is its `front`, that token, and the
// literals after its last match.
#include "encode_match.cuh"

constexpr u32 HISTORY = 64 << 10; // offsets have 16 bits

// more_size returns the number of bytes of a length after its token, which has up to 15 of it.
DEVICE u32 more_size(u32 length) { return length < 15 ? 0 : (length - 15) / 255 + 1; }

// more_byte returns one of these bytes.
DEVICE u8 more_byte(u32 length, u32 k) { return k + 1 < more_size(length) ? 255 : (length - 15) % 255; }

DEVICE u8 token(u32 literals, u32 match) { return min(literals, 15) << 4 | match; }

KERNEL_BOUNDS(encode_lz4, EncodeArgs, PIECE_WARPS * 32, 4) {
    __shared__ Checksums checksums;
    __shared__ u16 tables[PIECE_WARPS][1 << HASH_LOG];
    load_checksums(checksums, a.checksums);
    for (i32 i = next_piece(a); i < a.count; i = next_piece(a)) {
        const Piece piece = a.pieces[i];
        const EncodePage& p = a.pages[piece.page];
        u32 raw = a.results[piece.page].raw, at = piece.index * PIECE;
        Joint j = {0, 0, 0, ALL, 0, 0, 0, ALL};
        if (at < raw) {
            const u8* in = p.body + at;
            u8* out = (u8*)a.packed + (i64)i * a.slot;
            u32 left = raw - at, n = min(left, PIECE), op = 0;
            auto put_more = [&](u32 length) {
                u32 size = more_size(length);
                for (u32 k = lane_id(); k < size; k += 32) out[op + k] = more_byte(length, k);
                op += size;
            };
            // The last match of a block starts 12 bytes before its end, and the last five bytes are literals.
            u32 starts = left < 12 ? 0 : min(most_starts(n), left - 11), ends = left < 12 ? 0 : min(n, left - 5);
            const Prices prices = {256 * 8, 256 * 24, 256 * 24, false};
            u32 end = find_matches<true>(prices, in, n, min(at, HISTORY), starts, ends, tables[warp_id()],
                                         a.chunks[p.chunk].width, [&](u32 from, u32 start, u32 offset, u32 length) {
                u32 literals = start - from, match = min(length - 4, 15);
                if (j.match == ALL) {
                    j.lead = literals;
                    j.match = match;
                }
                if (from > 0 || at == 0) {
                    if (lane_id() == 0) out[op] = token(literals, match);
                    op++;
                    put_more(literals);
                }
                copy_bytes(out + op, in + from, literals);
                op += literals;
                if (lane_id() == 0) {
                    out[op] = offset;
                    out[op + 1] = offset >> 8;
                }
                op += 2;
                put_more(length - 4);
            });
            if (j.match == ALL) j.lead = n;
            j.tail = n - end;
            j.front = op;
            if (lane_id() == 0) clear_after(out + op);
            __syncwarp();
            j.front_sum = remainder_of(checksums, out, op);
            j.tail_sum = remainder_of(checksums, in + end, j.tail);
        }
        if (lane_id() == 0) a.joints[i] = j;
    }
}

// head_remainder is the remainder of the token and the length of a run.
DEVICE u32 head_remainder(const Checksums& t, u32 run, u32 next) {
    u32 r = next_remainder(t, 0, token(run, next)), more = more_size(run);
    if (more == 0) return r;
    u32 full = more - 1, ones = 0, n = 0; // the remainder of n bytes of 255
    for (i32 k = 31 - __clz(full); k >= 0; k--) {
        ones ^= moved(t, ones, n);
        n *= 2;
        if (full >> k & 1) {
            ones = next_remainder(t, ones, 255);
            n++;
        }
    }
    return next_remainder(t, moved(t, r, full) ^ ones, more_byte(run, full));
}

KERNEL_BOUNDS(encode_lz4_joints, EncodeArgs, ENCODE_THREADS, 4) {
    __shared__ Checksums checksums;
    load_checksums(checksums, a.checksums);
    i32 i = (i32)global_thread();
    if (i >= a.count) return;
    const Piece piece = a.pieces[i];
    const EncodePage& p = a.pages[piece.page];
    Joint& j = a.joints[i];
    u32 size = j.front, sum = j.front_sum;
    if (piece.index > 0 && j.match == ALL) { // all literals, of a run that began before
        size = j.tail;
        sum = j.tail_sum;
    } else {
        u32 run = j.tail, next = ALL;
        for (i32 k = i + 1; k < p.piece + p.pieces && next == ALL; k++) {
            run += a.joints[k].lead;
            next = a.joints[k].match;
        }
        j.run = run;
        j.next = next == ALL ? 0 : next;
        u32 head = 1 + more_size(run);
        sum = moved(checksums, sum, head) ^ head_remainder(checksums, run, j.next);
        sum = moved(checksums, sum, j.tail) ^ j.tail_sum;
        size += head + j.tail;
    }
    a.ends[i].size = size;
    a.ends[i].checksum = sum;
}

KERNEL_BOUNDS(encode_lz4_gather, EncodeArgs, ENCODE_THREADS, 4) {
    const Piece piece = a.pieces[blockIdx.x];
    const EncodePage& p = a.pages[piece.page];
    i64 place = a.places[piece.page];
    u32 raw = a.results[piece.page].raw, at = piece.index * PIECE;
    if (place < 0 || at >= raw) return;
    const Joint& j = a.joints[blockIdx.x];
    u8* out = a.out + place + a.ends[blockIdx.x].at;
    put_values(out, a.packed + (i64)blockIdx.x * a.slot, j.front);
    out += j.front;
    if (j.next != ALL) {
        u32 more = more_size(j.run);
        if (threadIdx.x == 0) out[0] = token(j.run, j.next);
        out++;
        for (u32 k = threadIdx.x; k < more; k += ENCODE_THREADS) out[k] = more_byte(j.run, k);
        out += more;
    }
    put_values(out, p.body + min(at + PIECE, raw) - j.tail, j.tail);
}
