// The part of NCCL that gstream uses, between threads of one process, each with an emulated GPU of its own. A send
// copies its bytes when its group ends, and a receive waits for them there: both on the stream of the call, whose work
// they wait for. Sizes of both sides must be equal.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int cuMemHostAlloc(void** p, size_t n, unsigned flags);
int cuMemFreeHost(void* p);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* stream);
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void* stream);
int cuStreamSynchronize(void* stream);
}

namespace {

enum Result { Success = 0, UnhandledCudaError = 1, InternalError = 3, InvalidArgument = 4, InvalidUsage = 5 };

// World is the communicators with one id.
struct World {
    int size = 0, joined = 0;
    std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail; // by sender and receiver
};

std::mutex lock;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<World>> worlds;
uint64_t ids = 0;

struct Comm {
    std::shared_ptr<World> world;
    int rank;
    bool aborted = false;
};

struct Call {
    bool send;
    void* buffer;
    size_t bytes;
    int peer;
    Comm* comm;
    void* stream;
};

// Thread is the group of calls of a thread. It is not thread_local, which is the shared memory of kernels here.
struct Thread {
    std::vector<Call> calls;
    int depth = 0;
    std::string last; // error
};

Thread& mine() {
    static std::mutex lock;
    static std::map<std::thread::id, Thread> all;
    std::lock_guard<std::mutex> guard(lock);
    return all[std::this_thread::get_id()];
}

int fail(Result code, const std::string& text) {
    mine().last = text;
    return code;
}

// copied copies bytes between memory of the GPU and page-locked memory.
template <class F> int copied(size_t n, void* stream, F f) {
    void* staging = nullptr;
    if (cuMemHostAlloc(&staging, n, 0)) return fail(UnhandledCudaError, "no staging memory");
    int code = f(staging);
    cuMemFreeHost(staging);
    return code ? fail(UnhandledCudaError, "a copy has failed") : Success;
}

int run(const Call& c) {
    Comm* comm = c.comm;
    World& w = *comm->world;
    if (c.peer < 0 || c.peer >= w.size || c.peer == comm->rank) return fail(InvalidArgument, "wrong peer");
    if (c.send) {
        std::vector<char> bytes(c.bytes);
        int code = copied(c.bytes, c.stream, [&](void* staging) {
            int code = cuMemcpyDtoHAsync_v2(staging, uint64_t(c.buffer), c.bytes, c.stream);
            if (!code) code = cuStreamSynchronize(c.stream);
            if (!code) memcpy(bytes.data(), staging, c.bytes);
            return code;
        });
        if (code) return code;
        std::lock_guard<std::mutex> guard(lock);
        w.mail[{comm->rank, c.peer}].push_back(std::move(bytes));
        changed.notify_all();
        return Success;
    }
    std::vector<char> bytes;
    {
        std::unique_lock<std::mutex> guard(lock);
        auto& box = w.mail[{c.peer, comm->rank}];
        changed.wait(guard, [&] { return comm->aborted || !box.empty(); });
        if (comm->aborted || box.empty()) return fail(InternalError, "aborted");
        bytes = std::move(box.front());
        box.pop_front();
    }
    if (bytes.size() != c.bytes) return fail(InvalidUsage, "sizes of a send and of its receive differ");
    return copied(c.bytes, c.stream, [&](void* staging) {
        memcpy(staging, bytes.data(), c.bytes);
        int code = cuMemcpyHtoDAsync_v2(uint64_t(c.buffer), staging, c.bytes, c.stream);
        return code ? code : cuStreamSynchronize(c.stream);
    });
}

int end_group() {
    Thread& t = mine();
    if (--t.depth > 0) return Success;
    std::vector<Call> all;
    all.swap(t.calls);
    for (bool send : {true, false})
        for (auto& c : all)
            if (c.send == send)
                if (int code = run(c)) return code;
    return Success;
}

int call(const Call& c) {
    mine().depth++;
    mine().calls.push_back(c);
    return end_group();
}

} // namespace

extern "C" {

int ncclGetUniqueId(char* id) {
    std::lock_guard<std::mutex> guard(lock);
    memset(id, 0, 128);
    ids++;
    memcpy(id, &ids, sizeof ids);
    return Success;
}

int ncclCommInitRankScalable(Comm** out, int size, int rank, int n, const char* id, void*) {
    if (n != 1 || rank < 0 || rank >= size) return fail(InvalidArgument, "wrong rank");
    std::unique_lock<std::mutex> guard(lock);
    auto& w = worlds[std::string(id, 128)];
    if (!w) w = std::make_shared<World>();
    w->size = size;
    w->joined++;
    *out = new Comm{w, rank};
    changed.notify_all();
    auto joining = w;
    changed.wait(guard, [&] { return joining->joined >= joining->size; });
    return Success;
}

int ncclCommGetAsyncError(Comm*, int* state) {
    *state = Success;
    return Success;
}

// ncclCommAbort leaves the memory of the communicator, as another thread may be in a call.
int ncclCommAbort(Comm* c) {
    std::lock_guard<std::mutex> guard(lock);
    c->aborted = true;
    changed.notify_all();
    return Success;
}

int ncclGroupStart() {
    mine().depth++;
    return Success;
}

int ncclGroupEnd() { return mine().depth > 0 ? end_group() : fail(InvalidUsage, "no group"); }

int ncclSend(const void* p, size_t count, int type, int peer, Comm* c, void* stream) {
    return type == 1 ? call({true, const_cast<void*>(p), count, peer, c, stream}) : fail(InvalidArgument, "wrong type");
}

int ncclRecv(void* p, size_t count, int type, int peer, Comm* c, void* stream) {
    return type == 1 ? call({false, p, count, peer, c, stream}) : fail(InvalidArgument, "wrong type");
}

const char* ncclGetErrorString(int code) {
    switch (code) {
    case Success: return "no error";
    case UnhandledCudaError: return "unhandled cuda error";
    case InternalError: return "internal error";
    case InvalidArgument: return "invalid argument";
    case InvalidUsage: return "invalid usage";
    }
    return "unknown result code";
}

const char* ncclGetLastError(Comm*) { return mine().last.c_str(); }
}
