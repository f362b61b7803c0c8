// The part of CUDA's driver API that gstream uses, over host memory. Everything is done
// when a call returns, except copies from and to page-locked memory. These are made as
// late as the driver may make them: when something waits for them. Arguments are checked
// as the driver checks them, and memory more strictly. Copies must be within one
// allocation, freed memory cannot be touched, and writes outside of an allocation are
// found when it is freed, at the latest.
#include "execute.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

using namespace emulator;

namespace {

constexpr size_t page = 4096, guard = 64 << 10; // inaccessible bytes around an allocation
constexpr int gpus = 8;    // of the machine
constexpr size_t device_memory = size_t(16) << 30; // of each GPU
constexpr size_t granularity = 2 << 20; // of mapped memory

typedef uint64_t Address;

// Allocation is memory that the driver knows.
struct Allocation {
    enum Kind { Device, Pinned, Registered, Mapped, Reserved } kind;
    Address start;
    size_t size;
    char* map; // including the pages around it
    size_t map_size;
    int gpu = -1; // the GPU that has the memory, -1 for the host
};

// Copy is a copy that is still to be made.
struct Copy {
    Address device;
    char* host;
    size_t size;
    bool up;
    Address peer = 0; // memory of another GPU, from which the copy is made instead
    int peer_gpu = 0;
    int to_gpu = 0; // that of device, for copies between GPUs
};

// Stream counts the copies that were queued on it, and the copies that were made.
struct Stream {
    int gpu;
    std::deque<Copy> waiting;
    uint64_t put = 0, made = 0;
};

struct Event {
    double milliseconds; // when it was recorded
    bool recorded, timed;
    void* stream;
    uint64_t put; // copies on the stream at that time
};

// Handle is memory that can be mapped to addresses: a file without a name.
struct Handle {
    int file;
    size_t size;
    int gpu, counted; // the GPU that has the memory, and the GPU for which it counts
};

// Function says which call of a function must fail, for tests.
struct Function {
    long calls = 0, fail_in = 0;
    int code = 0;
};

std::recursive_mutex lock;
bool initialised;
int sticky; // the error that every call returns until the context is destroyed
long contexts[gpus]; // references to the primary context of each GPU
std::map<Address, Allocation> allocations, reservations;
size_t device_used[gpus];
std::set<void*> streams, events, pools, modules;
std::map<Address, Handle> handles;
std::map<std::string, Function> functions;
pthread_key_t current_context;

// visible contains the numbers of the GPUs that CUDA_VISIBLE_DEVICES names, in its order, or else of all GPUs.
std::vector<int> visible;

bool is_gpu(int device) { return device >= 0 && device < (int)visible.size(); }

// look reads the environment, as the driver does when it starts.
void look() {
    const char* list = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; !list && i < gpus; i++) visible.push_back(i);
    while (list && *list) {
        char* end;
        long i = strtol(list, &end, 10);
        if (end == list || i < 0 || i >= gpus) return;
        visible.push_back((int)i);
        list = *end == ',' ? end + 1 : end;
    }
}

// current is the GPU whose context is current to the thread, or the GPU of the stream
// whose copies are being made.
int acting = -1;
int current() {
    if (acting >= 0) return acting;
    auto c = static_cast<long*>(pthread_getspecific(current_context));
    return c ? int(c - contexts) : -1;
}

std::string plain_name(std::string s) {
    return s.size() > 3 && s.compare(s.size() - 3, 3, "_v2") == 0 ? s.substr(0, s.size() - 3) : s;
}

int fail(int code, const std::string& message) {
    fprintf(stderr, "emulator: %s\n", message.c_str());
    return code;
}

bool is_sticky(int code) { return code >= 700 && code < 720 && code != LaunchOutOfResources && code != AlreadyRegistered && code != NotRegistered; }

// begin counts a call and returns the error that it must fail with.
int begin(const char* name, bool needs_context) {
    Function& f = functions[plain_name(name)];
    f.calls++;
    if (f.fail_in > 0 && --f.fail_in == 0) {
        if (is_sticky(f.code)) sticky = f.code;
        return f.code;
    }
    if (!initialised && strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0) return NotInitialized;
    if (needs_context && !pthread_getspecific(current_context)) return InvalidContext;
    return needs_context ? sticky : Success;
}

#define BEGIN(context)                                                       \
    std::lock_guard<std::recursive_mutex> held(lock);                       \
    if (int code = begin(__func__, context)) return code;

// API begins a function that needs a current context, FREE begins one that does not.
#define API BEGIN(true)
#define FREE BEGIN(false)
#define CHECK(condition, code) \
    if (!(condition)) return code;

// at returns the allocation that contains an address.
Allocation* at(Address a) {
    auto i = allocations.upper_bound(a);
    if (i == allocations.begin()) return nullptr;
    --i;
    return a < i->second.start + i->second.size ? &i->second : nullptr;
}

bool on_device(const Allocation* a) { return a && (a->kind == Allocation::Device || a->kind == Allocation::Mapped); }

// in_device reports whether [a, a+n) is within one allocation of the current GPU, or of
// the host if that is mapped.
bool in_device(const char* what, Address a, size_t n) {
    Allocation* m = at(a);
    if (on_device(m) && m->gpu >= 0 && m->gpu != current()) {
        fail(InvalidValue, std::string(what) + " of memory of GPU " + std::to_string(m->gpu) + " on GPU " + std::to_string(current()));
        return false;
    }
    if (on_device(m) && a + n <= m->start + m->size) return true;
    // Mapped memory may be used across the borders of its mappings.
    for (Address p = a; on_device(m) && m->kind == Allocation::Mapped; m = at(p))
        if ((p = m->start + m->size) >= a + n) return true;
    char s[160];
    snprintf(s, sizeof s, "%s of %zu bytes at %#llx: ", what, n, (unsigned long long)a);
    fail(InvalidValue, s + describe(reinterpret_cast<void*>(a)));
    return false;
}

// Canaries are the bytes between an allocation and the borders of its pages.
bool is_poison(const char* p, size_t n) {
    return n == 0 || ((unsigned char)p[0] == poison && memcmp(p, p + 1, n - 1) == 0); // all bytes equal the first
}
bool end_intact(const Allocation& a) {
    const char* end = reinterpret_cast<char*>(a.start + a.size);
    return is_poison(end, a.map + a.map_size - guard - end);
}
bool begin_intact(const Allocation& a) { return is_poison(a.map + guard, reinterpret_cast<char*>(a.start) - a.map - guard); }

// check_ends finds writes of a kernel directly behind an allocation.
int check_ends(const char* what) {
    for (auto& i : allocations)
        if (i.second.kind == Allocation::Device && !end_intact(i.second)) {
            auto a = reinterpret_cast<char*>(i.second.start + i.second.size);
            while ((unsigned char)*a == poison) a++;
            return fail(sticky = IllegalAddress, std::string(what) + " wrote behind " + describe(a));
        }
    return Success;
}

// Spare holds the pages of freed allocations by size. The pages are inaccessible. Mapping and unmapping would take
// longer than most kernels of a test. The pages that were freed first are reused first, so that a use after free is
// found for as long as possible.
struct Spare {
    static constexpr size_t most = 64 << 20; // bytes kept in total
    std::map<size_t, std::deque<char*>> maps;
    size_t bytes = 0;

    char* take(size_t size) {
        auto i = maps.find(size);
        if (i == maps.end() || i->second.empty()) return nullptr;
        char* map = i->second.front();
        i->second.pop_front();
        bytes -= size;
        return map;
    }
    void put(char* map, size_t size) {
        if (bytes + size > most || mprotect(map, size, PROT_NONE) != 0) {
            munmap(map, size);
            return;
        }
        maps[size].push_back(map);
        bytes += size;
    }
} spare;

int allocate(Address* out, size_t n, int gpu) {
    CHECK(out && n > 0, InvalidValue);
    if (n > device_memory - device_used[gpu]) return OutOfMemory;
    size_t inner = (n + 255) / 256 * 256, data = (inner + page - 1) / page * page;
    Allocation a = {Allocation::Device, 0, n, nullptr, data + 2 * guard, gpu};
    a.map = spare.take(a.map_size);
    if (!a.map) a.map = static_cast<char*>(mmap(nullptr, a.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (a.map == MAP_FAILED) return OutOfMemory;
    if (mprotect(a.map + guard, data, PROT_READ | PROT_WRITE) != 0) {
        munmap(a.map, a.map_size);
        return OutOfMemory;
    }
    memset(a.map + guard, poison, data);
    a.start = reinterpret_cast<Address>(a.map + guard + data - inner);
    allocations[a.start] = a;
    device_used[gpu] += n;
    shadow::allocated(a.start, n);
    *out = a.start;
    return Success;
}

int release(Address p, Allocation::Kind kind) {
    if (p == 0 && kind == Allocation::Device) return Success;
    auto i = allocations.find(p);
    if (i == allocations.end() || i->second.kind != kind) return fail(InvalidValue, "free of " + describe(reinterpret_cast<void*>(p)));
    Allocation a = i->second;
    int code = Success;
    if (kind == Allocation::Device) {
        if (!end_intact(a) || !begin_intact(a))
            code = fail(sticky = IllegalAddress, "bytes right " + std::string(end_intact(a) ? "before" : "behind") + " an allocation of " +
                                                     std::to_string(a.size) + " bytes were overwritten");
        device_used[a.gpu] -= a.size;
        shadow::freed(a.start, a.size);
    }
    allocations.erase(i);
    if (kind == Allocation::Device)
        spare.put(a.map, a.map_size);
    else
        munmap(a.map, a.map_size);
    return code;
}

// is_stream reports whether a stream belongs to the current GPU.
bool is_stream(void* s) { return reinterpret_cast<uintptr_t>(s) <= 2 || (streams.count(s) && static_cast<Stream*>(s)->gpu == current()); }

int copy_up(Address to, const void* from, size_t n);
int copy_down(void* to, Address from, size_t n);
int copy_peer(Address to, Address from, int gpu, size_t n);

// catch_up makes the first copies of a stream, up to the given number. A copy of memory
// that was freed in the meantime breaks the context.
int catch_up(void* stream, uint64_t number = UINT64_MAX) {
    if (!streams.count(stream)) return Success;
    auto s = static_cast<Stream*>(stream);
    for (; s->made < number && !s->waiting.empty(); s->made++) {
        Copy c = s->waiting.front();
        s->waiting.pop_front();
        acting = c.peer ? c.to_gpu : s->gpu;
        if (c.peer ? copy_peer(c.device, c.peer, c.peer_gpu, c.size) : c.up ? copy_up(c.device, c.host, c.size) : copy_down(c.host, c.device, c.size)) sticky = IllegalAddress;
        acting = -1;
    }
    return sticky;
}

int catch_up_all() {
    for (void* s : streams) catch_up(s);
    return sticky;
}

int catch_up_to(void* event) {
    auto e = static_cast<Event*>(event);
    return catch_up(e->stream, e->put);
}

// put queues a copy on a stream. A copy of memory that is not page-locked is made before the call returns.
int put(void* stream, Copy c) {
    CHECK(is_stream(stream), InvalidHandle);
    Allocation* host = at(reinterpret_cast<Address>(c.host));
    if (c.size > 0 && host && !on_device(host) && streams.count(stream)) {
        // A driver copies from and to one registration, even if another one follows it.
        CHECK(reinterpret_cast<Address>(c.host) + c.size <= host->start + host->size, InvalidValue);
        CHECK(in_device(c.up ? "copy up" : "copy down", c.device, c.size), InvalidValue);
        auto s = static_cast<Stream*>(stream);
        s->waiting.push_back(c);
        s->put++;
        return Success;
    }
    if (int code = catch_up(stream)) return code;
    return c.up ? copy_up(c.device, c.host, c.size) : copy_down(c.host, c.device, c.size);
}

template <class T>
int add(std::set<void*>& all, void** out, T* object) {
    CHECK(out, InvalidValue);
    *out = object;
    all.insert(object);
    return Success;
}

template <class T>
int drop(std::set<void*>& all, void* object) {
    CHECK(all.erase(object), InvalidHandle);
    delete static_cast<T*>(object);
    return Success;
}

int copy_up(Address to, const void* from, size_t n) {
    if (n == 0) return Success;
    CHECK(from && in_device("copy up", to, n), InvalidValue);
    if (on_device(at(reinterpret_cast<Address>(from)))) return fail(InvalidValue, "copy up from device memory");
    memcpy(reinterpret_cast<void*>(to), from, n);
    shadow::written(to, n);
    return Success;
}

int copy_down(void* to, Address from, size_t n) {
    if (n == 0) return Success;
    CHECK(to && in_device("copy down", from, n), InvalidValue);
    if (on_device(at(reinterpret_cast<Address>(to)))) return fail(InvalidValue, "copy down to device memory");
    if (!shadow::all_written(from, n)) return fail(sticky = IllegalAddress, "copy down of memory that nothing was written to");
    memcpy(to, reinterpret_cast<void*>(from), n);
    return Success;
}

// copy_peer copies from the memory of another GPU.
int copy_peer(Address to, Address from, int gpu, size_t n) {
    if (n == 0) return Success;
    CHECK(in_device("copy to", to, n), InvalidValue);
    int here = acting;
    acting = gpu;
    bool there = in_device("copy from a peer", from, n);
    acting = here;
    CHECK(there, InvalidValue);
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n);
    shadow::copied(to, from, n);
    return Success;
}

int copy_within(Address to, Address from, size_t n) {
    if (n == 0) return Success;
    CHECK(in_device("copy to", to, n) && in_device("copy from", from, n), InvalidValue);
    if (to < from + n && from < to + n) return fail(InvalidValue, "copy between ranges that overlap");
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n);
    shadow::copied(to, from, n);
    return Success;
}

template <class T>
int fill(Address to, T value, size_t n) {
    if (n == 0) return Success;
    CHECK(to % sizeof(T) == 0 && in_device("fill", to, n * sizeof(T)), InvalidValue);
    std::fill_n(reinterpret_cast<T*>(to), n, value);
    shadow::written(to, n * sizeof(T));
    return Success;
}

// reservation returns the reserved range of addresses that contains [p, p+n).
Allocation* reservation(Address p, size_t n) {
    auto i = reservations.upper_bound(p);
    if (i == reservations.begin()) return nullptr;
    Allocation& a = std::prev(i)->second;
    return p + n <= a.start + a.size ? &a : nullptr;
}

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

// context_of returns the GPU of a context, or -1.
int context_of(void* context) {
    for (int i = 0; i < gpus; i++)
        if (context == &contexts[i]) return i;
    return -1;
}

// leave_context drops a reference to the context of a GPU. The last reference of all ends
// a sticky error, and frees all memory.
int leave_context(int gpu) {
    CHECK(contexts[gpu] > 0, InvalidContext);
    contexts[gpu]--;
    for (long c : contexts)
        if (c > 0) return Success;
    if (!sticky) return Success;
    sticky = Success;
    while (!allocations.empty()) {
        Allocation a = allocations.begin()->second;
        if (a.kind != Allocation::Registered) munmap(a.map, a.map_size);
        allocations.erase(allocations.begin());
    }
    for (void* s : streams) delete static_cast<Stream*>(s);
    for (void* e : events) delete static_cast<Event*>(e);
    streams.clear();
    events.clear();
    std::fill_n(device_used, gpus, 0);
    return Success;
}

} // namespace

std::string emulator::describe(const void* address) {
    Address a = reinterpret_cast<Address>(address);
    char s[200];
    auto i = allocations.upper_bound(a);
    if (i != allocations.begin()) {
        auto& below = std::prev(i)->second;
        static const char* kinds[] = {"device", "page-locked", "registered", "mapped", "reserved"};
        if (a - below.start < below.size + (1 << 20)) {
            snprintf(s, sizeof s, "%#llx, byte %lld of %zu of %s memory", (unsigned long long)a, (long long)(a - below.start), below.size, kinds[below.kind]);
            return s;
        }
    }
    if (i != allocations.end() && i->second.start - a < (1 << 20)) {
        snprintf(s, sizeof s, "%#llx, %lld bytes before memory of %zu", (unsigned long long)a, (long long)(i->second.start - a), i->second.size);
        return s;
    }
    snprintf(s, sizeof s, "%#llx, which is not device memory", (unsigned long long)a);
    return s;
}

extern "C" {

// --- For tests ---

// emulatorFailAt makes the n-th call from now of a function fail with a code. An n of 0
// cancels that.
void emulatorFailAt(const char* function, long n, int code) {
    std::lock_guard<std::recursive_mutex> held(lock);
    Function& f = functions[plain_name(function)];
    f.fail_in = n;
    f.code = code;
}

// emulatorCalls returns the number of calls of a function so far.
long emulatorCalls(const char* function) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return functions[plain_name(function)].calls;
}

// emulatorLive returns the number of allocations, page-locked blocks, events and streams that were not released.
long emulatorLive(void) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return long(allocations.size() + reservations.size() + events.size() + streams.size() + handles.size());
}

// --- Devices and contexts ---

int cuInit(unsigned flags) {
    FREE
    CHECK(flags == 0, InvalidValue);
    if (!initialised) {
        look();
        if (visible.empty()) return NoDevice;
        pthread_key_create(&current_context, nullptr);
    }
    initialised = true;
    return Success;
}

int cuDriverGetVersion(int* version) {
    FREE
    CHECK(version, InvalidValue);
    *version = 13000;
    return Success;
}

int cuDeviceGetCount(int* count) {
    FREE
    CHECK(count, InvalidValue);
    *count = (int)visible.size();
    return Success;
}

int cuDeviceGet(int* device, int ordinal) {
    FREE
    CHECK(device, InvalidValue);
    CHECK(is_gpu(ordinal), InvalidDevice);
    *device = ordinal;
    return Success;
}

int cuDeviceGetName(char* name, int length, int device) {
    FREE
    CHECK(name && length > 0, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    snprintf(name, length, "emulated GPU");
    return Success;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
    FREE
    CHECK(uuid, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    memcpy(uuid, "gstream emulator", 16);
    uuid[15] += visible[device];
    return Success;
}

int cuDeviceGetPCIBusId(char* id, int length, int device) {
    FREE
    CHECK(id && length > 12, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    snprintf(id, length, "0000:%02x:00.0", visible[device] + 1);
    return Success;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    FREE
    CHECK(bytes, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    *bytes = device_memory;
    return Success;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    FREE
    CHECK(value, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    static const std::map<int, int> attributes = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64},             // threads a block
        {5, INT_MAX}, {6, 65535}, {7, 65535},                 // blocks a grid
        {8, 48 << 10}, {9, 64 << 10}, {10, 32}, {11, INT_MAX}, // shared and constant memory, warp, pitch
        {12, 65536}, {13, 1980000}, {14, 512}, {15, 1},       // registers, clock, texture alignment, overlap
        {16, 4}, {19, 1}, {31, 1}, {32, 1},                   // multiprocessors, mapped host memory, concurrent kernels, ECC
        {33, 1}, {34, 0}, {50, 0},                            // PCI bus, device, domain
        {36, 3201000}, {37, 6144}, {38, 1 << 20}, {39, 2048}, // memory clock and width, L2, threads a multiprocessor
        {40, 3}, {41, 1}, {75, 9}, {76, 0}, {78, 1},          // copy engines, unified addressing, compute capability
        {81, 228 << 10}, {82, 65536}, {97, most_shared},      // shared memory and registers a multiprocessor, opt-in shared memory
        {102, 1}, {106, 32}, {111, 1 << 10}, {115, 1},        // virtual memory, blocks a multiprocessor, reserved shared memory, pools
        {130, 0}, {131, -1}, {134, 0}, {141, 1},              // NUMA
    };
    auto a = attributes.find(attribute);
    *value = a == attributes.end() ? 0 : a->second;
    return Success;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    FREE
    CHECK(context, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    contexts[device]++;
    *context = &contexts[device];
    return Success;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    FREE
    CHECK(is_gpu(device), InvalidDevice);
    return leave_context(device);
}

int cuCtxCreate_v2(void** context, unsigned flags, int device) {
    (void)flags;
    FREE
    CHECK(context, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    contexts[device]++;
    *context = &contexts[device];
    pthread_setspecific(current_context, &contexts[device]);
    return Success;
}

int cuCtxDestroy_v2(void* context) {
    FREE
    int gpu = context_of(context);
    CHECK(gpu >= 0, InvalidContext);
    return leave_context(gpu);
}

int cuCtxSetCurrent(void* context) {
    FREE
    int gpu = context_of(context);
    CHECK(!context || (gpu >= 0 && contexts[gpu] > 0), InvalidContext);
    pthread_setspecific(current_context, context);
    return Success;
}

int cuCtxGetCurrent(void** context) {
    FREE
    CHECK(context, InvalidValue);
    *context = pthread_getspecific(current_context);
    return Success;
}

int cuCtxSynchronize(void) {
    API
    return catch_up_all();
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    API
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return Success;
}

// --- Device memory ---

int cuMemGetInfo_v2(size_t* free, size_t* total) {
    API
    CHECK(free && total, InvalidValue);
    *free = device_memory - device_used[current()];
    *total = device_memory;
    return Success;
}

int cuMemAlloc_v2(Address* p, size_t n) {
    API
    return allocate(p, n, current());
}

int cuMemFree_v2(Address p) {
    API
    return release(p, Allocation::Device);
}

int cuMemAllocAsync(Address* p, size_t n, void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    return allocate(p, n, current());
}

int cuMemAllocFromPoolAsync(Address* p, size_t n, void* pool, void* stream) {
    API
    CHECK(is_stream(stream) && pools.count(pool), InvalidHandle);
    return allocate(p, n, *static_cast<int*>(pool));
}

int cuMemFreeAsync(Address p, void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    if (int code = catch_up(stream)) return code;
    return release(p, Allocation::Device);
}

// The handle of a pool is the number of its GPU.
static void* default_pool(int gpu) {
    static int of[gpus];
    of[gpu] = gpu;
    pools.insert(&of[gpu]);
    return &of[gpu];
}

int cuDeviceGetDefaultMemPool(void** pool, int device) {
    FREE
    CHECK(pool, InvalidValue);
    CHECK(is_gpu(device), InvalidDevice);
    *pool = default_pool(device);
    return Success;
}

int cuDeviceGetMemPool(void** pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }

int cuMemPoolCreate(void** pool, const void* properties) {
    API
    CHECK(properties, InvalidValue);
    int gpu = static_cast<const int*>(properties)[3];
    CHECK(is_gpu(gpu), InvalidDevice);
    return add(pools, pool, new int(gpu));
}

int cuMemPoolDestroy(void* pool) {
    API
    for (int i = 0; i < gpus; i++) CHECK(pool != default_pool(i), InvalidValue);
    return drop<int>(pools, pool);
}

int cuMemPoolSetAttribute(void* pool, int attribute, void* value) {
    API
    CHECK(pools.count(pool), InvalidHandle);
    CHECK(value && attribute >= 1 && attribute <= 8, InvalidValue);
    return Success;
}

int cuMemPoolGetAttribute(void* pool, int attribute, void* value) {
    API
    CHECK(pools.count(pool), InvalidHandle);
    CHECK(value && attribute >= 1 && attribute <= 8, InvalidValue);
    if (attribute <= 3)
        *static_cast<int*>(value) = 1;
    else
        *static_cast<uint64_t*>(value) = attribute == 4 ? 0 : device_used[*static_cast<int*>(pool)];
    return Success;
}

// AccessDescription is CUmemAccessDesc: a kind of location, its number, and 3 for reading and writing.
struct AccessDescription {
    int kind, number, flags;
};

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    FREE
    CHECK(can, InvalidValue);
    CHECK(is_gpu(device) && is_gpu(peer), InvalidDevice);
    *can = device != peer;
    return Success;
}

int cuMemPoolSetAccess(void* pool, const AccessDescription* to, size_t count) {
    API
    CHECK(pools.count(pool), InvalidHandle);
    CHECK(to && count > 0 && to->kind == 1 && to->flags == 3, InvalidValue);
    CHECK(is_gpu(to->number), InvalidDevice);
    return Success;
}

int cuMemPoolTrimTo(void* pool, size_t) {
    API
    CHECK(pools.count(pool), InvalidHandle);
    return Success;
}

// --- Host memory ---

int cuMemHostAlloc(void** p, size_t n, unsigned) {
    API
    CHECK(p && n > 0, InvalidValue);
    Allocation a = {Allocation::Pinned, 0, n, nullptr, (n + page - 1) / page * page};
    a.map = static_cast<char*>(mmap(nullptr, a.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (a.map == MAP_FAILED) return OutOfMemory;
    a.start = reinterpret_cast<Address>(a.map);
    allocations[a.start] = a;
    *p = a.map;
    return Success;
}

int cuMemFreeHost(void* p) {
    API
    return release(reinterpret_cast<Address>(p), Allocation::Pinned);
}

int cuMemHostRegister_v2(void* p, size_t n, unsigned) {
    API
    CHECK(p && n > 0, InvalidValue);
    Address start = reinterpret_cast<Address>(p);
    CHECK(!at(start) && !at(start + n - 1), AlreadyRegistered);
    allocations[start] = {Allocation::Registered, start, n, nullptr, 0};
    return Success;
}

int cuMemHostUnregister(void* p) {
    API
    auto a = allocations.find(reinterpret_cast<Address>(p));
    CHECK(a != allocations.end() && a->second.kind == Allocation::Registered, NotRegistered);
    allocations.erase(a);
    return Success;
}

int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned flags) {
    API
    Allocation* a = at(reinterpret_cast<Address>(host));
    CHECK(device && flags == 0 && a && !on_device(a), InvalidValue);
    *device = reinterpret_cast<Address>(host);
    return Success;
}

int cuPointerGetAttribute(void* value, int attribute, Address p) {
    API
    Allocation* a = at(p);
    CHECK(value && a, InvalidValue);
    switch (attribute) {
    case 1: *static_cast<void**>(value) = &contexts[a->gpu < 0 ? current() : a->gpu]; return Success;
    case 2: *static_cast<unsigned*>(value) = on_device(a) ? 2 : 1; return Success;
    case 3:
    case 4: *static_cast<Address*>(value) = p; return Success;
    case 9: *static_cast<int*>(value) = std::max(a->gpu, 0); return Success;
    case 11: *static_cast<Address*>(value) = a->start; return Success;
    case 12: *static_cast<size_t*>(value) = a->size; return Success;
    }
    return InvalidValue;
}

// --- Copies ---

int cuMemcpyHtoD_v2(Address to, const void* from, size_t n) {
    API
    return copy_up(to, from, n);
}

int cuMemcpyDtoH_v2(void* to, Address from, size_t n) {
    API
    return copy_down(to, from, n);
}

int cuMemcpyDtoD_v2(Address to, Address from, size_t n) {
    API
    return copy_within(to, from, n);
}

int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, void* stream) {
    API
    return put(stream, {to, static_cast<char*>(const_cast<void*>(from)), n, true});
}

int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, void* stream) {
    API
    return put(stream, {from, static_cast<char*>(to), n, false});
}

int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    if (int code = catch_up(stream)) return code;
    return copy_within(to, from, n);
}

// cuMemcpyPeerAsync is made when something waits for it, like copies from and to the host.
int cuMemcpyPeerAsync(Address to, void* to_context, Address from, void* from_context, size_t n, void* stream) {
    API
    CHECK(is_stream(stream) && streams.count(stream), InvalidHandle);
    int gpu = context_of(from_context), to_gpu = context_of(to_context);
    CHECK(gpu >= 0 && to_gpu >= 0 && (gpu == current() || to_gpu == current()), InvalidContext);
    if (n == 0) return Success;
    acting = to_gpu;
    bool inside = in_device("copy to", to, n);
    acting = -1;
    CHECK(inside, InvalidValue);
    auto s = static_cast<Stream*>(stream);
    s->waiting.push_back({to, nullptr, n, true, from, gpu, to_gpu});
    s->put++;
    return Success;
}

// CopyAttributes is CUmemcpyAttributes.
struct CopyAttributes {
    int order; // 1: sources are read in the order of the stream
    int from[2], to[2];
    unsigned flags;
};

// A driver in use makes corrupt commands of calls with 256 copies. The emulator allows far fewer copies.
constexpr size_t most_batched = 64;

int cuMemcpyBatchAsync_v2(Address* to, Address* from, size_t* sizes, size_t count, CopyAttributes* attributes, size_t* first, size_t kinds, void* stream) {
    API
    CHECK(to && from && sizes && count > 0 && count <= most_batched && attributes && first && kinds == 1 && first[0] == 0, InvalidValue);
    CHECK(attributes->order == 1 && attributes->flags == 0 && streams.count(stream), InvalidValue);
    for (size_t i = 0; i < count; i++) {
        CHECK(sizes[i] > 0, InvalidValue);
        // gstream batches only copies to the device.
        if (int code = put(stream, {to[i], reinterpret_cast<char*>(from[i]), sizes[i], true})) return code;
    }
    return Success;
}

int cuMemsetD8_v2(Address to, unsigned char value, size_t n) {
    API
    return fill(to, value, n);
}

int cuMemsetD32_v2(Address to, unsigned value, size_t n) {
    API
    return fill(to, value, n);
}

int cuMemsetD8Async(Address to, unsigned char value, size_t n, void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    if (int code = catch_up(stream)) return code;
    return fill(to, value, n);
}

int cuMemsetD32Async(Address to, unsigned value, size_t n, void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    if (int code = catch_up(stream)) return code;
    return fill(to, value, n);
}

// --- Virtual memory ---

int cuMemGetAllocationGranularity(size_t* out, const void* properties, int option) {
    API
    CHECK(out && properties && option >= 0 && option <= 1, InvalidValue);
    *out = granularity;
    return Success;
}

int cuMemAddressReserve(Address* out, size_t n, size_t alignment, Address, uint64_t flags) {
    API
    CHECK(out && n > 0 && n % granularity == 0 && flags == 0, InvalidValue);
    CHECK((alignment & (alignment - 1)) == 0, InvalidValue);
    alignment = std::max(alignment, granularity);
    Allocation a = {Allocation::Reserved, 0, n, nullptr, n + alignment};
    a.map = static_cast<char*>(mmap(nullptr, a.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (a.map == MAP_FAILED) return OutOfMemory;
    a.start = (reinterpret_cast<Address>(a.map) + alignment - 1) / alignment * alignment;
    reservations[a.start] = a;
    *out = a.start;
    return Success;
}

int cuMemAddressFree(Address p, size_t n) {
    API
    Allocation* a = reservation(p, n);
    CHECK(a && a->start == p && a->size == n, InvalidValue);
    for (auto& m : allocations) CHECK(m.first < p || m.first >= p + n, InvalidValue);
    munmap(a->map, a->map_size);
    reservations.erase(p);
    return Success;
}

int cuMemCreate(Address* handle, size_t n, const void* properties, uint64_t flags) {
    API
    CHECK(handle && properties && flags == 0 && n > 0 && n % granularity == 0, InvalidValue);
    const int* location = static_cast<const int*>(properties) + 2; // its type, 1 for a GPU, and number
    int gpu = location[0] == 1 ? location[1] : -1;
    CHECK(gpu == -1 || is_gpu(gpu), InvalidDevice);
    int counted = gpu < 0 ? current() : gpu;
    if (n > device_memory - device_used[counted]) return OutOfMemory;
    int file = (int)syscall(SYS_memfd_create, "emulator", 0);
    if (file < 0) return OutOfMemory;
    if (ftruncate(file, n) != 0) {
        close(file);
        return OutOfMemory;
    }
    static Address next = 1;
    *handle = next;
    handles[next++] = {file, n, gpu, counted};
    device_used[counted] += n;
    return Success;
}

int cuMemRelease(Address handle) {
    API
    auto h = handles.find(handle);
    CHECK(h != handles.end(), InvalidValue);
    device_used[h->second.counted] -= h->second.size; // mapped pages live until they are unmapped
    close(h->second.file);
    handles.erase(h);
    return Success;
}

int cuMemMap(Address p, size_t n, size_t offset, Address handle, uint64_t flags) {
    API
    auto h = handles.find(handle);
    Allocation* a = reservation(p, n);
    CHECK(h != handles.end() && a && flags == 0 && offset == 0 && p % granularity == 0 && n == h->second.size, InvalidValue);
    for (auto& m : allocations) CHECK(m.first + m.second.size <= p || m.first >= p + n, InvalidValue);
    if (mmap(reinterpret_cast<void*>(p), n, PROT_NONE, MAP_SHARED | MAP_FIXED, h->second.file, 0) == MAP_FAILED) return OutOfMemory;
    allocations[p] = {Allocation::Mapped, p, n, reinterpret_cast<char*>(p), n, h->second.gpu};
    return Success;
}

int cuMemUnmap(Address p, size_t n) {
    API
    for (Address q = p; q < p + n;) {
        auto m = allocations.find(q);
        CHECK(m != allocations.end() && m->second.kind == Allocation::Mapped && q + m->second.size <= p + n, InvalidValue);
        size_t size = m->second.size;
        mmap(reinterpret_cast<void*>(q), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        allocations.erase(m);
        q += size;
    }
    return Success;
}

int cuMemSetAccess(Address p, size_t n, const void* description, size_t count) {
    API
    CHECK(description && count > 0 && n > 0 && in_device("access", p, n), InvalidValue);
    CHECK(mprotect(reinterpret_cast<void*>(p), n, PROT_READ | PROT_WRITE) == 0, InvalidValue);
    return Success;
}

// --- Streams and events ---

int cuStreamCreate(void** stream, unsigned flags) {
    API
    CHECK(flags <= 1, InvalidValue);
    return add(streams, stream, new Stream{current(), {}});
}

int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
    API
    CHECK(flags <= 1, InvalidValue);
    return add(streams, stream, new Stream{current(), {}});
}

int cuStreamDestroy_v2(void* stream) {
    API
    if (int code = catch_up(stream)) return code;
    return drop<Stream>(streams, stream);
}

int cuStreamSynchronize(void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    return catch_up(stream);
}

int cuStreamQuery(void* stream) {
    API
    CHECK(is_stream(stream), InvalidHandle);
    return Success;
}

int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
    API
    CHECK(is_stream(stream) && events.count(event), InvalidHandle);
    CHECK(flags <= 1, InvalidValue);
    return catch_up_to(event);
}

int cuEventCreate(void** event, unsigned flags) {
    API
    CHECK(flags <= 7, InvalidValue);
    return add(events, event, new Event{0, false, !(flags & 2), nullptr, 0});
}

int cuEventDestroy_v2(void* event) {
    API
    return drop<Event>(events, event);
}

int cuEventRecord(void* event, void* stream) {
    API
    CHECK(events.count(event) && is_stream(stream), InvalidHandle);
    auto e = static_cast<Event*>(event);
    e->milliseconds = now();
    e->recorded = true;
    e->stream = stream;
    e->put = streams.count(stream) ? static_cast<Stream*>(stream)->put : 0;
    return Success;
}

int cuEventQuery(void* event) {
    API
    CHECK(events.count(event), InvalidHandle);
    return catch_up_to(event);
}

int cuEventSynchronize(void* event) {
    API
    CHECK(events.count(event), InvalidHandle);
    return catch_up_to(event);
}

int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
    API
    CHECK(milliseconds, InvalidValue);
    CHECK(events.count(from) && events.count(to), InvalidHandle);
    auto a = static_cast<Event*>(from), b = static_cast<Event*>(to);
    CHECK(a->recorded && b->recorded && a->timed && b->timed, InvalidHandle);
    *milliseconds = (float)(b->milliseconds - a->milliseconds);
    return Success;
}

int cuEventElapsedTime(float* milliseconds, void* from, void* to) { return cuEventElapsedTime_v2(milliseconds, from, to); }

// --- Kernels ---

// Module has kernels of its own: what cuFuncSetAttribute sets for those of one module is not set for those of another.
struct Module {
    std::map<std::string, Kernel> functions;
};

int cuModuleLoadData(void** module, const void* image) {
    API
    CHECK(image, InvalidValue);
    return add(modules, module, new Module);
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
    API
    CHECK(image, InvalidValue);
    return add(modules, module, new Module);
}

int cuModuleUnload(void* module) {
    API
    return drop<Module>(modules, module);
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
    API
    CHECK(function && name, InvalidValue);
    CHECK(modules.count(module), InvalidHandle);
    Kernel* k = find(name);
    CHECK(k, NotFound);
    *function = &static_cast<Module*>(module)->functions.try_emplace(name, *k).first->second;
    return Success;
}

// block_registers returns the registers of a block. They are allocated to warps in units of 256.
static int block_registers(const Kernel& k, int threads) { return (threads + 31) / 32 * ((k.registers * 32 + 255) / 256 * 256); }

int cuFuncSetAttribute(void* function, int attribute, int value) {
    API
    CHECK(function, InvalidHandle);
    if (attribute == 8) {
        auto k = static_cast<Kernel*>(function);
        CHECK(value >= 0 && value <= most_shared - k->static_shared, InvalidValue);
        k->dynamic_shared = value;
    }
    return Success;
}

int cuFuncGetAttribute(int* value, int attribute, void* function) {
    API
    CHECK(value, InvalidValue);
    CHECK(function, InvalidHandle);
    auto k = static_cast<Kernel*>(function);
    switch (attribute) {
    case 0: *value = k->threads; return Success;
    case 1: *value = k->static_shared; return Success;
    case 4: *value = k->registers; return Success;
    case 5:
    case 6: *value = 90; return Success;
    case 8: *value = k->dynamic_shared; return Success;
    }
    *value = 0;
    return Success;
}

int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* size) {
    API
    CHECK(function, InvalidHandle);
    CHECK(index == 0 && offset, InvalidValue);
    *offset = 0;
    if (size) *size = static_cast<Kernel*>(function)->arguments;
    return Success;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads, size_t shared) {
    API
    CHECK(blocks && threads > 0, InvalidValue);
    CHECK(function, InvalidHandle);
    auto k = static_cast<Kernel*>(function);
    *blocks = (int)std::min<size_t>({size_t(32), size_t(2048 / threads), size_t(228 << 10) / (k->static_shared + shared + 1024),
                                     size_t(multi_registers / block_registers(*k, threads))});
    return Success;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream,
                   void** parameters, void** extra) {
    API
    CHECK(function && is_stream(stream), InvalidHandle);
    auto k = static_cast<Kernel*>(function);
    std::string name = std::string("launch of ") + k->name + ": ";
    if (gy != 1 || gz != 1 || by != 1 || bz != 1) return fail(NotSupported, name + "grids and blocks have one dimension here");
    if (gx == 0 || gx > INT_MAX || bx == 0) return fail(InvalidValue, name + "no blocks or no threads, or too many blocks");
    if (bx > (unsigned)k->threads) return fail(InvalidValue, name + std::to_string(bx) + " threads a block are more than its bound of " + std::to_string(k->threads));
    if (block_registers(*k, bx) > multi_registers)
        return fail(LaunchOutOfResources, name + std::to_string(bx) + " threads of " + std::to_string(k->registers) + " registers are too many");
    if (shared > (unsigned)k->dynamic_shared)
        return fail(InvalidValue, name + std::to_string(shared) + " bytes of dynamic shared memory, beside " + std::to_string(k->static_shared) +
                                      " static ones, are more than is allowed");
    const void* arguments = parameters ? parameters[0] : nullptr;
    size_t size = k->arguments;
    for (int i = 0; !parameters && extra && extra[i]; i += 2) { // pairs of a tag and a pointer
        if (extra[i] == reinterpret_cast<void*>(1)) arguments = extra[i + 1];
        if (extra[i] == reinterpret_cast<void*>(2)) size = *static_cast<size_t*>(extra[i + 1]);
    }
    if (!arguments) return fail(InvalidValue, name + "no arguments");
    if (int code = catch_up(stream)) return code;
    if (size != k->arguments)
        return fail(InvalidValue, name + "its arguments take " + std::to_string(k->arguments) + " bytes, not " + std::to_string(size));
    alignas(16) char copy[4096];
    CHECK(size <= sizeof copy, InvalidValue);
    memcpy(copy, arguments, size);
    if (int code = launch(*k, gx, bx, shared, copy)) return sticky = code;
    return check_ends(k->name);
}

// --- Errors ---

static const std::map<int, std::pair<const char*, const char*>> errors = {
    {0, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {4, {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {214, {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {702, {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {712, {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"}},
    {713, {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};

int cuGetErrorName(int code, const char** name) {
    auto e = errors.find(code);
    *name = e == errors.end() ? nullptr : e->second.first;
    return e == errors.end() ? InvalidValue : Success;
}

int cuGetErrorString(int code, const char** text) {
    auto e = errors.find(code);
    *text = e == errors.end() ? nullptr : e->second.second;
    return e == errors.end() ? InvalidValue : Success;
}

} // extern "C"
