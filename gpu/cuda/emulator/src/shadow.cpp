// Shadow memory: who read and wrote what in a launch, and what was ever written to.
// Kernels that are compiled with -fsanitize=thread report their accesses. They report
// them here and not to the compiler's own library, which knows nothing of blocks and
// warps. Other kernels report nothing, and nothing is recorded for them.
//
// Two accesses to the same bytes, one of which is a write, are a race unless both are
// deliberate (atomic, volatile, __ldcg or __ldcv), or a barrier of the block or a
// __syncwarp is between them. Shuffles and votes do not order memory.
#include "execute.h"
#include <dlfcn.h>
#include <sys/mman.h>

namespace emulator {

bool deliberate;

namespace {

typedef uint64_t Address;

struct Access {
    uint32_t thread;          // number in the grid, with 1,024 for each block
    uint32_t barriers, syncs; // of its block and warp before it
    uint8_t bytes;            // bytes of the cell, one bit each; 0: none
    bool deliberate;
    void* code;
};

// Cell is four bytes. It keeps two reads by different threads, so that one of them is not by the thread that writes.
struct Cell {
    uint32_t launch; // of the accesses
    uint8_t written; // bytes that were ever written
    Access write, reads[2];
};

constexpr Address page = 4096, region = 1 << 30;
struct Page { Cell cells[page / 4]; };
struct Region { Page* pages[region / page]; };

bool on; // a kernel reports its accesses
Region** regions;
Page* const untouched = reinterpret_cast<Page*>(1); // memory that nobody has accessed yet

uint32_t launches, barriers, syncs[32];
const char* kernel;
Address dynamic_from, dynamic_to, static_from, static_to; // shared memory
std::set<std::string> said;

template <class T>
T* zeroed(size_t n = 1) {
    void* p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("emulator: no shadow memory");
        abort();
    }
    return static_cast<T*>(p);
}

Page*& slot(Address a) {
    if (!regions) regions = zeroed<Region*>((1ull << 47) / region);
    Region*& r = regions[a / region];
    if (!r) r = zeroed<Region>();
    return r->pages[a % region / page];
}

// cell returns the cell of an address, or null for memory that is not watched.
Cell* cell(Address a) {
    if (a >> 47) return nullptr;
    Page*& p = slot(a);
    if (!p) return nullptr;
    if (p == untouched) p = zeroed<Page>();
    return &p->cells[a % page / 4];
}

void set_pages(Address a, size_t n, Page* to) {
    for (Address p = a / page * page; p < a + n; p += page) {
        Page*& s = slot(p);
        if (s && s != untouched) munmap(s, sizeof(Page));
        s = to;
    }
}

// each calls f with the cells of a range, and which of their bytes are in the range.
template <class F>
void each(Address a, size_t n, F f) {
    while (n > 0) {
        unsigned first = a % 4, count = n < 4 - first ? n : 4 - first;
        if (Cell* c = cell(a)) f(*c, uint8_t(((1 << count) - 1) << first));
        a += count;
        n -= count;
    }
}

bool ordered(const Access& before, const Access& now, bool shared) {
    if (before.thread == now.thread) return true;
    if (before.thread / 1024 != now.thread / 1024) return shared; // blocks take turns with it
    if (before.barriers < now.barriers) return true;
    return before.thread / 32 == now.thread / 32 && before.syncs < now.syncs;
}

// place returns the position of code in the library, for addr2line.
std::string place(void* code) {
    Dl_info i;
    if (!dladdr(code, &i)) return "?";
    char s[32];
    snprintf(s, sizeof s, "+%#lx", (unsigned long)(static_cast<char*>(code) - static_cast<char*>(i.dli_fbase) - 1));
    return i.dli_fname + std::string(s);
}

void race(const Access& before, const Access& now, bool shared, const char* what) {
    std::string who = before.thread / 1024 != now.thread / 1024 ? "blocks" : before.thread / 32 != now.thread / 32 ? "warps" : "lanes of a warp";
    std::string s = std::string("race of ") + who + " for " + (shared ? "shared" : "global") + " memory, " + what + ", at " + place(before.code) + " and " + place(now.code);
    if (shared) trap(s.c_str());
    if (said.insert(kernel + s).second) fprintf(stderr, "emulator: kernel %s: %s\n", kernel, s.c_str());
}

void check(Cell& c, const Access& now, bool shared, bool writes) {
    if (c.launch != launches) {
        c.launch = launches;
        c.write.bytes = c.reads[0].bytes = c.reads[1].bytes = 0;
    }
    auto conflicts = [&](const Access& before) {
        return (before.bytes & now.bytes) && !(before.deliberate && now.deliberate) && !ordered(before, now, shared);
    };
    if (conflicts(c.write)) race(c.write, now, shared, writes ? "written by both" : "written, then read");
    if (!writes) {
        bool first = !c.reads[0].bytes || ordered(c.reads[0], now, shared);
        c.reads[first ? 0 : 1] = now;
        if (!shared && (now.bytes & ~c.written)) trap(("read of memory that nothing was written to, at " + place(now.code)).c_str());
        return;
    }
    for (auto& r : c.reads)
        if (conflicts(r)) race(r, now, shared, "read, then written");
    c.write = now;
    c.written |= now.bytes;
}

void access(void* address, size_t n, bool writes, bool is_deliberate, void* code) {
    Address a = reinterpret_cast<Address>(address);
    bool shared = (a >= dynamic_from && a < dynamic_to) || (a >= static_from && a < static_to);
    Access now = {blockIdx.x * 1024 + threadIdx.x, barriers, syncs[threadIdx.x / 32], 0, is_deliberate, code};
    each(a, n, [&](Cell& c, uint8_t bytes) {
        now.bytes = bytes;
        check(c, now, shared, writes);
    });
}

} // namespace

namespace shadow {

void allocated(Address a, size_t n) {
    if (on) set_pages(a, n, untouched);
}

void freed(Address a, size_t n) {
    if (on) set_pages(a, n, nullptr);
}

void written(Address a, size_t n) {
    if (on) each(a, n, [](Cell& c, uint8_t bytes) { c.written |= bytes; });
}

void copied(Address to, Address from, size_t n) {
    for (size_t i = 0; on && i < n; i++) {
        Cell *c = cell(to + i), *d = cell(from + i);
        bool written = !d || d->written >> ((from + i) % 4) & 1;
        if (c) c->written = (c->written & ~(1 << (to + i) % 4)) | written << (to + i) % 4;
    }
}

bool all_written(Address a, size_t n) {
    bool all = true;
    if (on) each(a, n, [&](Cell& c, uint8_t bytes) { all &= (c.written & bytes) == bytes; });
    return all;
}

static void watch(Address a, size_t n) {
    for (Address p = a / page * page; on && p < a + n; p += page)
        if (!slot(p)) slot(p) = untouched;
}

void begin_launch(const char* name, void* dynamic, size_t n) {
    launches++;
    kernel = name;
    dynamic_from = reinterpret_cast<Address>(dynamic);
    dynamic_to = dynamic_from + n;
    watch(dynamic_from, n);
}

void static_shared(void* from, size_t n) {
    static_from = reinterpret_cast<Address>(from);
    static_to = static_from + n;
    watch(static_from, n);
}

void begin_block() {
    barriers++;
    for (auto& s : syncs) s++;
}

void barrier() { barriers++; }
void sync_warp(unsigned warp) { syncs[warp]++; }

} // namespace shadow
} // namespace emulator

// The compiler calls these before an access. GCC has separate ones for volatile accesses.
#define ACCESSES(n)                                                                                                      \
    void __tsan_read##n(void* p) { emulator::access(p, n, false, emulator::deliberate, __builtin_return_address(0)); }    \
    void __tsan_write##n(void* p) { emulator::access(p, n, true, emulator::deliberate, __builtin_return_address(0)); }    \
    void __tsan_unaligned_read##n(void* p) { emulator::access(p, n, false, emulator::deliberate, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##n(void* p) { emulator::access(p, n, true, emulator::deliberate, __builtin_return_address(0)); } \
    void __tsan_volatile_read##n(void* p) { emulator::access(p, n, false, true, __builtin_return_address(0)); }           \
    void __tsan_volatile_write##n(void* p) { emulator::access(p, n, true, true, __builtin_return_address(0)); }
extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t n) { emulator::access(p, n, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t n) { emulator::access(p, n, true, false, __builtin_return_address(0)); }
void __tsan_init() { emulator::on = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
