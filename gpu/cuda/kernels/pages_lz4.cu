// Decompresses pages with LZ4: a block of it, or the frames that Hadoop puts around blocks. A block of threads takes a
// page. One thread reads sequences while the others write the output of the sequences before.
#include "pages_copy.cuh"

// The layout of pages_lz4.go.
struct Lz4Args {
    const Page* pages;
    PageStatus* status;
    const i32* list;
    i32 hadoop;  // pages may have Hadoop's frames
    i32 unused;
};

// Lz4 is a position in a page.
struct Lz4 {
    const u8* in;
    u32 at, size;     // the next byte, and the number of bytes
    u32 out, raw;     // bytes of output that are known, and of the page
    u32 end;          // of the current block in the input
    u32 history;      // position of the first byte of output of the current block
    u32 frame;        // where the output of the current frame ends
    bool framed, ok;
};

struct Lz4Window {
    Copies<> copies;
    u32 from, count;
};

DEVICE u32 big_endian(const u8* p) { return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

// next_block goes to the next block in frames. The size of the output of a frame comes before its blocks, each of which
// follows its size.
DEVICE bool next_block(Lz4& z) {
    if (z.end > 0 && z.out == z.history) return false; // a block without output
    if (z.out == z.frame) {
        if (z.size - z.at < 4) return false;
        u32 raw = big_endian(z.in + z.at);
        z.at += 4;
        if (raw > z.raw - z.out) return false;
        z.frame = z.out + raw;
        if (raw == 0) {
            z.end = z.at;
            return true;
        }
    }
    if (z.size - z.at < 4) return false;
    u32 size = big_endian(z.in + z.at);
    z.at += 4;
    if (size == 0 || size > z.size - z.at) return false;
    z.end = z.at + size;
    z.history = z.out;
    return true;
}

// length adds the bytes after a length of 15 in a token.
DEVICE bool length(Lz4& z, u32& n) {
    for (;;) {
        if (z.at >= z.end) return false;
        u32 more = z.in[z.at++];
        n += more;
        if (n > z.raw) return false;
        if (more != 255) return true;
    }
}

// sequence reads the next sequence. One thread calls it.
DEVICE bool sequence(Lz4& z, Copies<>& c, u32 k) {
    u32 limit = z.framed ? z.frame : z.raw, token = z.in[z.at++], literals = token >> 4, match = token & 15, back = 1;
    if (literals == 15 && !length(z, literals)) return false;
    if (literals > z.end - z.at || literals > limit - z.out) return false;
    c.literal[k] = z.at - z.out;
    z.at += literals;
    z.out += literals;
    c.match[k] = z.out;
    if (z.at < z.end) {
        if (z.end - z.at < 2) return false;
        back = z.in[z.at] | z.in[z.at + 1] << 8;
        z.at += 2;
        if (match == 15 && !length(z, match)) return false;
        match += 4;
        if (back == 0 || back > z.out - z.history || match > limit - z.out) return false;
        z.out += match;
    } else if (match != 0) {
        return false;
    }
    c.end[k] = z.out;
    c.back[k] = back;
    return true;
}

// fill reads the sequences of a window. One thread calls it.
DEVICE void fill(Lz4& z, Lz4Window& w) {
    w.from = z.out;
    w.count = 0;
    while (z.ok && w.count < COPIES && z.at < z.size) {
        if (z.at == z.end && !(z.framed && next_block(z))) z.ok = false;
        else if (z.at < z.end) z.ok = sequence(z, w.copies, w.count++);
    }
}

// lz4 decompresses a page. A block of threads calls it.
DEVICE bool lz4(const Page& p, bool framed, Lz4& z, Lz4Window* windows, Copied<>& copied) {
    const u8* in = p.src + max(p.levels, 0);
    u32 size = p.size - max(p.levels, 0);
    Literals literals = {in, size, 1};
    if (threadIdx.x == 0) {
        z = {in, 0, size, 0, (u32)p.raw, framed ? 0 : size, 0, 0, framed, true};
        fill(z, windows[0]);
    }
    __syncthreads();
    for (u32 k = 0;; k ^= 1) {
        bool ok = z.ok;
        u32 count = windows[k].count;
        __syncthreads();
        if (!ok) return false;
        if (count == 0) break;
        const Lz4Window& w = windows[k];
        copy_window(w.copies, count, w.from, literals, p.body, copied, true, [&] {
            if (threadIdx.x == 0) fill(z, windows[k ^ 1]);
        });
    }
    return z.out == (u32)p.raw && (!framed || z.out == z.frame);
}

KERNEL_BOUNDS(pages_lz4, Lz4Args, COPY_THREADS, 8) {
    __shared__ Lz4 z;
    __shared__ Lz4Window windows[2];
    __shared__ Copied<> copied;
    const Page& p = a.pages[a.list[blockIdx.x]];
    if (threadIdx.x < SLACK) p.body[p.raw + threadIdx.x] = 0; // kernels read behind the body
    bool ok = a.hadoop && lz4(p, true, z, windows, copied);
    __syncthreads();
    if (!ok) ok = lz4(p, false, z, windows, copied);
    if (!ok && threadIdx.x == 0) mark_bad(a.status[p.column]);
}
