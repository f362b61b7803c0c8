// The threads of a block are fibers that take turns. A thread runs until it waits for
// others, at a barrier or at a collective of its warp. Then the next thread that can
// continue does. Threads that never wait run one after the other on one fiber.
#include "execute.h"
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

// --- Kernels by name ---

static std::map<std::string, Kernel*>& kernels() {
    static std::map<std::string, Kernel*> all;
    return all;
}

Kernel::Kernel(const char* name, size_t arguments, int threads, void (*body)(const void*))
    : name(name), arguments(arguments), threads(threads), body(body) {
    for (const Resources* r = resources; r->kernel; r++)
        if (!strcmp(r->kernel, name)) static_shared = r->static_shared, registers = r->registers;
    dynamic_shared = default_shared - static_shared;
    if (!kernels().emplace(name, this).second) {
        fprintf(stderr, "emulator: two kernels are called %s\n", name);
        abort();
    }
}

Kernel* find(const std::string& name) {
    auto k = kernels().find(name);
    return k == kernels().end() ? nullptr : k->second;
}

// --- Fibers ---

constexpr size_t page = 4096, stack_bytes = 128 << 10;

#ifdef __x86_64__
using Stack = void*;
// switch_stack is no function of its own, and jumps: a processor predicts a return that follows another thread's call
// wrongly. The lanes of a warp mostly jump to the same address one after the other, which it predicts well.
__attribute__((always_inline)) static inline void switch_stack(Stack* from, Stack* to) {
    Stack next = *to;
    asm volatile(R"(
        leaq -128(%%rsp), %%rsp
        pushq %%rbp
        leaq 1f(%%rip), %%rax
        pushq %%rax
        movq %%rsp, (%0)
        movq %1, %%rsp
        popq %%rax
        jmp *%%rax
    1:
        popq %%rbp
        leaq 128(%%rsp), %%rsp
    )"
                 : "+D"(from), "+S"(next)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3",
                   "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}
static void make_stack(Stack* s, char* low, char* high, void (*entry)()) {
    (void)low;
    void** top = reinterpret_cast<void**>(high);
    *--top = nullptr; // entry sees the stack as after a call
    *--top = reinterpret_cast<void*>(entry);
    *s = top;
}
#else
using Stack = ucontext_t;
static void switch_stack(Stack* from, Stack* to) { swapcontext(from, to); }
static void make_stack(Stack* s, char* low, char* high, void (*entry)()) {
    getcontext(s);
    s->uc_stack.ss_sp = low;
    s->uc_stack.ss_size = high - low;
    s->uc_link = nullptr;
    makecontext(s, entry, 0);
}
#endif

// Fiber runs threads, one at a time.
struct Fiber {
    Stack stack;
    char* low;
    char* high;
    unsigned thread;        // the thread that it runs
    uint64_t value, result; // of the collective in which the thread waits
    unsigned source;
};

// Rendezvous is a collective in which some lanes of a warp wait.
struct Rendezvous {
    Collective kind;
    unsigned mask, arrived;
    Fiber* lanes[32];
};

struct Warp {
    unsigned exited, waiting;
    Rendezvous pending[32]; // the first `waiting` are in use: each has a lane that waits
};

// Ready is a queue of fibers that can continue, at most one for each thread of a block.
struct Ready {
    static constexpr unsigned most = 1024;
    Fiber* fibers[most];
    unsigned head = 0, size = 0;

    Fiber*& at(unsigned i) { return fibers[(head + i) % most]; }
    void push_back(Fiber* f) { at(size++) = f; }
    void push_front(Fiber* f) {
        head = (head + most - 1) % most, size++;
        at(0) = f;
    }
    Fiber* pop_front() {
        Fiber* f = at(0);
        head = (head + 1) % most, size--;
        return f;
    }
};

// The launch in progress.
static struct {
    Kernel* kernel;
    const void* arguments;
    void* shared;
    Result result;
    std::string message;

    unsigned threads, next, live; // of the block: in total, to be started, not returned
    std::vector<unsigned> order;  // the order in which they start
    Ready ready;
    std::vector<Fiber*> idle;
    Warp warps[32];
    std::vector<Fiber*> barrier; // fibers that wait at a barrier of the block
    Barrier barrier_kind;
    int barrier_sum, barrier_result;
    long yields;         // since the last progress
    unsigned collectives; // that were completed

    Fiber* current;
    Stack main;
    uint64_t random; // state of the schedule's generator, 0 for the plain order
} run;

static std::vector<Fiber*> fibers;
// seed of the order in which threads take turns, 0 for the plain one.
static uint64_t seed = getenv("GSTREAM_EMULATOR_SEED") ? strtoull(getenv("GSTREAM_EMULATOR_SEED"), nullptr, 10) : 0;

static uint64_t draw() {
    run.random ^= run.random << 13;
    run.random ^= run.random >> 7;
    run.random ^= run.random << 17;
    return run.random;
}

static void fiber_main();

static void reset(Fiber* f) { make_stack(&f->stack, f->low, f->high, fiber_main); }

static Fiber* take_fiber() {
    if (run.idle.empty()) {
        size_t bytes = stack_bytes + page;
        char* low = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (low == MAP_FAILED) {
            perror("emulator: no memory for the stack of a thread");
            abort();
        }
        mprotect(low, page, PROT_NONE);
        // Stacks that all begin at the same position of a page
        // would share cache sets.
        Fiber* f = new Fiber{{}, low + page, low + bytes - fibers.size() % 32 * 128, 0, 0, 0, 0};
        fibers.push_back(f);
        reset(f);
        return f;
    }
    Fiber* f = run.idle.back();
    run.idle.pop_back();
    return f;
}

static void go_to(Fiber* f) {
    Fiber* from = run.current;
    run.current = f;
    threadIdx.x = f->thread;
    switch_stack(from ? &from->stack : &run.main, &f->stack);
}

static void go_to_main() {
    Fiber* from = run.current;
    run.current = nullptr;
    switch_stack(&from->stack, &run.main);
}

// fail ends the launch. The fibers are never resumed.
static void fail(Result result, const std::string& message) {
    run.result = result;
    run.message = message;
    go_to_main();
    __builtin_unreachable();
}

static const char* name(Collective kind) {
    static const char* names[] = {"__syncwarp", "__shfl_sync", "__ballot_sync", "__any_sync", "__all_sync", "__match_any_sync",
                                  "__match_all_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                  "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"};
    return names[static_cast<int>(kind)];
}

static std::string list_threads(const std::vector<Fiber*>& waiting) {
    std::string s = std::to_string(waiting.size()) + " threads (";
    for (size_t i = 0; i < waiting.size() && i < 8; i++) s += (i ? ", " : "") + std::to_string(waiting[i]->thread);
    return s + (waiting.size() > 8 ? ", ...)" : ")");
}

// waiting describes which threads wait for what.
static std::string waiting() {
    std::string s;
    if (!run.barrier.empty()) s += "\n  at __syncthreads: " + list_threads(run.barrier);
    for (unsigned w = 0; w < (run.threads + 31) / 32; w++)
        for (unsigned i = 0; i < run.warps[w].waiting; i++) {
            const Rendezvous& r = run.warps[w].pending[i];
            std::vector<Fiber*> lanes;
            for (int l = 0; l < 32; l++)
                if (r.arrived >> l & 1) lanes.push_back(r.lanes[l]);
            char mask[16];
            snprintf(mask, sizeof mask, "%08x", r.mask);
            s += std::string("\n  at ") + name(r.kind) + " of lanes " + mask + " of warp " + std::to_string(w) + ": " + list_threads(lanes);
        }
    return s;
}

// leave continues with another thread. It returns when the caller's fiber is resumed.
static void leave() {
    unsigned ready = run.ready.size;
    bool fresh = run.next < run.threads;
    if (ready > 0 && !(run.random && fresh && draw() % 4 == 0)) {
        if (run.random) std::swap(run.ready.at(0), run.ready.at(draw() % ready));
        Fiber* f = run.ready.pop_front();
        if (f != run.current) go_to(f);
        return;
    }
    if (fresh) return go_to(take_fiber());
    if (run.live > 0) fail(LaunchFailed, "deadlock: no thread can go on" + waiting());
    go_to_main();
}

static void complete_barrier() {
    if (run.live < run.threads)
        fail(LaunchFailed, std::to_string(run.threads - run.live) + " threads of the block returned before a __syncthreads that others wait at" + waiting());
    run.barrier_result = run.barrier_kind == Barrier::Or    ? run.barrier_sum != 0
                         : run.barrier_kind == Barrier::And ? run.barrier_sum == (int)run.threads
                                                            : run.barrier_sum;
    run.barrier_sum = 0;
    run.yields = 0;
    shadow::barrier();
    for (Fiber* f : run.barrier)
        if (f != run.current) run.ready.push_back(f);
    run.barrier.clear();
}

int barrier(Barrier kind, int predicate) {
    if (run.barrier.empty())
        run.barrier_kind = kind;
    else if (run.barrier_kind != kind)
        fail(LaunchFailed, "thread " + std::to_string(threadIdx.x) + " is at another kind of __syncthreads than others" + waiting());
    run.barrier_sum += predicate != 0;
    run.barrier.push_back(run.current);
    if (run.barrier.size() == run.live)
        complete_barrier();
    else
        leave();
    return run.barrier_result;
}

// own_result returns the result of a collective whose lanes have results of their own.
static uint64_t own_result(const Rendezvous& r, int lane) {
    uint64_t own = r.lanes[lane]->value, equal = 0;
    if (r.kind == Collective::Shuffle) {
        unsigned from = r.lanes[lane]->source;
        return r.arrived >> from & 1 ? r.lanes[from]->value : poison * 0x0101010101010101u;
    }
    for (unsigned rest = r.arrived; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        equal |= (uint64_t)(r.lanes[l]->value == own) << l;
    }
    return r.kind == Collective::Match ? equal : equal == r.arrived ? r.mask : 0;
}

// common_result returns the result of a collective that gives all lanes the same one.
static uint64_t common_result(const Rendezvous& r) {
    uint64_t out = r.lanes[__builtin_ctz(r.arrived)]->value;
    if (r.kind == Collective::Ballot) out <<= __builtin_ctz(r.arrived);
    for (unsigned rest = r.arrived & (r.arrived - 1); rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        uint64_t v = r.lanes[l]->value;
        switch (r.kind) {
        case Collective::Ballot: out |= v << l; break;
        case Collective::All: out &= v; break;
        case Collective::Add: out = (unsigned)(out + v); break;
        case Collective::UMin: out = std::min(out, v); break;
        case Collective::UMax: out = std::max(out, v); break;
        case Collective::SMin: out = (unsigned)std::min((int)out, (int)v); break;
        case Collective::SMax: out = (unsigned)std::max((int)out, (int)v); break;
        case Collective::And: out &= v; break;
        case Collective::Any:
        case Collective::Or: out |= v; break;
        default: out ^= v; break;
        }
    }
    return out;
}

// complete gives the lanes of a rendezvous their results. They continue before other threads, while what they use is
// in a cache. A warp that waits in a loop for another one lets it run now and then.
static void complete(Warp& w, unsigned at) {
    Rendezvous& r = w.pending[at];
    run.yields = 0;
    switch (r.kind) {
    case Collective::Sync:
        shadow::sync_warp(unsigned(&w - run.warps));
        break;
    case Collective::Shuffle:
    case Collective::Match:
    case Collective::MatchAll:
        for (unsigned rest = r.arrived; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            r.lanes[l]->result = own_result(r, l);
        }
        break;
    default:
        uint64_t result = common_result(r);
        for (unsigned rest = r.arrived; rest; rest &= rest - 1) r.lanes[__builtin_ctz(rest)]->result = result;
    }
    bool first = ++run.collectives % 64 != 0;
    for (int l = first ? 31 : 0; l >= 0 && l < 32; l += first ? -1 : 1) {
        if (!(r.arrived >> l & 1) || r.lanes[l] == run.current) continue;
        if (first)
            run.ready.push_front(r.lanes[l]);
        else
            run.ready.push_back(r.lanes[l]);
    }
    if (at != --w.waiting) r = w.pending[w.waiting];
}

static bool is_complete(const Warp& w, const Rendezvous& r) { return ((r.arrived | w.exited) & r.mask) == r.mask; }

uint64_t collective(Collective kind, unsigned mask, uint64_t value, unsigned source) {
    Fiber* self = run.current;
    unsigned bit = 1u << lane();
    if (!(mask & bit)) fail(LaunchFailed, "thread " + std::to_string(self->thread) + " is not in the mask that it gives to " + name(kind));
    Warp& w = run.warps[self->thread / 32];
    self->value = value;
    self->source = source & 31;
    unsigned at = 0;
    while (at < w.waiting && (w.pending[at].kind != kind || w.pending[at].mask != mask)) at++;
    Rendezvous& r = w.pending[at];
    if (at == w.waiting) w.waiting++, r.kind = kind, r.mask = mask, r.arrived = 0;
    r.arrived |= bit;
    r.lanes[lane()] = self;
    if (is_complete(w, r))
        complete(w, at);
    else
        leave();
    return self->result;
}

void yield() {
    if (++run.yields > 10000000) fail(LaunchFailed, "threads wait in a loop for something that never happens");
    run.ready.push_back(run.current);
    leave();
}

void trap(const char* message) {
    fail(LaunchFailed, message);
    __builtin_unreachable();
}

// finish handles the return of a thread.
static void finish(unsigned thread) {
    run.live--;
    run.yields = 0;
    Warp& w = run.warps[thread / 32];
    w.exited |= 1u << thread % 32;
    for (unsigned i = w.waiting; i-- > 0;)
        if (is_complete(w, w.pending[i])) complete(w, i);
    if (run.live > 0 && run.barrier.size() == run.live) complete_barrier();
}

static void fiber_main() {
    for (;;) {
        while (run.next < run.threads) {
            unsigned thread = run.order[run.next++];
            run.current->thread = threadIdx.x = thread;
            run.kernel->body(run.arguments);
            finish(thread);
        }
        run.idle.push_back(run.current);
        leave();
    }
}

// --- Faults ---

static sigjmp_buf fault;
static volatile bool catching;
static pthread_t catcher;
static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction previous[4];
static int fault_signal;
static void* fault_address;

static void on_fault(int signal, siginfo_t* info, void* context) {
    if (catching && pthread_equal(pthread_self(), catcher)) {
        fault_signal = signal;
        fault_address = info->si_addr;
        siglongjmp(fault, 1);
    }
    for (int i = 0; i < 4; i++) {
        if (signals[i] != signal) continue;
        struct sigaction& p = previous[i];
        if (p.sa_flags & SA_SIGINFO)
            p.sa_sigaction(signal, info, context);
        else if (p.sa_handler != SIG_DFL && p.sa_handler != SIG_IGN)
            p.sa_handler(signal);
        else
            sigaction(signal, &p, nullptr); // the fault recurs and ends the process
    }
}

static void catch_faults(bool on) {
    struct sigaction a = {};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&a.sa_mask);
    if (on) catcher = pthread_self();
    catching = on;
    for (int i = 0; i < 4; i++) sigaction(signals[i], on ? &a : &previous[i], on ? &previous[i] : nullptr);
}

static void note_fault() {
    run.result = LaunchFailed;
    switch (fault_signal) {
    case SIGILL: // the compiler's checks raise it
        run.result = MisalignedAddress;
        run.message = "misaligned access, index outside of an array, or shift by the width of the type or more";
        break;
    case SIGFPE:
        run.message = "division by zero, or of the smallest integer by -1";
        break;
    default:
        run.result = IllegalAddress;
        run.message = "illegal address " + describe(fault_address);
        for (Fiber* f : fibers)
            if (fault_address >= f->low - page && fault_address < f->low) run.message = "a thread's stack of 128 KiB is too small";
    }
}

// --- Shared memory ---

void* dynamic_shared() { return run.shared; }

static thread_local char in_shared; // makes sure that there is thread-local storage

// poison_shared overwrites the shared variables of all kernels.
static void poison_shared() {
    volatile char* touch = &in_shared;
    *touch = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void*) {
            for (int i = 0; i < info->dlpi_phnum; i++) {
                auto& p = info->dlpi_phdr[i];
                auto tls = static_cast<char*>(info->dlpi_tls_data);
                if (p.p_type == PT_TLS && tls && &in_shared >= tls && &in_shared < tls + p.p_memsz) {
                    memset(tls, poison, p.p_memsz);
                    shadow::static_shared(tls, p.p_memsz);
                    return 1;
                }
            }
            return 0;
        },
        nullptr);
}

// shared_block returns n bytes that end at an inaccessible page.
static void* shared_block(size_t n) {
    static char* end = [] {
        size_t bytes = (most_shared + page - 1) / page * page;
        auto p = static_cast<char*>(mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(p + bytes, page, PROT_NONE);
        return p + bytes;
    }();
    return end - (n + 15) / 16 * 16;
}

// --- Launches ---

static void start_block(unsigned block) {
    blockIdx.x = block;
    shadow::begin_block();
    run.next = 0;
    run.live = run.threads;
    for (unsigned w = 0; w < (run.threads + 31) / 32; w++) {
        unsigned lanes = std::min(32u, run.threads - w * 32);
        run.warps[w].exited = lanes == 32 ? 0 : ~0u << lanes;
    }
    if (run.random)
        for (unsigned i = run.threads; i > 1; i--) std::swap(run.order[i - 1], run.order[draw() % i]);
}

Result launch(Kernel& kernel, unsigned grid, unsigned block, unsigned shared, const void* arguments) {
    run.kernel = &kernel;
    run.arguments = arguments;
    run.shared = shared_block(shared);
    run.result = Success;
    run.threads = block;
    run.random = seed;
    run.yields = 0;
    run.order.resize(block);
    for (unsigned i = 0; i < block; i++) run.order[i] = i;
    blockDim = dim3(block);
    gridDim = dim3(grid);
    shadow::begin_launch(kernel.name, run.shared, shared);
    poison_shared();
    catch_faults(true);
    if (sigsetjmp(fault, 1))
        note_fault();
    else
        for (unsigned b = 0; b < grid && run.result == Success; b++) {
            memset(run.shared, poison, shared);
            start_block(b);
            go_to(take_fiber());
        }
    catch_faults(false);
    if (run.result != Success) {
        fprintf(stderr, "emulator: kernel %s, block %u of %u, thread %u of %u: %s\n", kernel.name, blockIdx.x, grid, threadIdx.x, block,
                run.message.c_str());
        deliberate = false;
        run.current = nullptr;
        run.ready.size = 0;
        run.barrier.clear();
        run.barrier_sum = 0;
        for (auto& w : run.warps) w.waiting = 0;
        run.idle = fibers;
        for (Fiber* f : fibers) reset(f);
    }
    return run.result;
}

} // namespace emulator

// emulatorSchedule makes the threads of a block take turns in a random order that is
// drawn from seed. 0 restores the plain order.
extern "C" void emulatorSchedule(uint64_t seed) { emulator::seed = seed; }
