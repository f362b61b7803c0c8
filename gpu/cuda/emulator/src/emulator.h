// The parts of the CUDA language that kernels use, for a C++ compiler. With it the
// sources of gpu/cuda/kernels compile unchanged into functions that run on the CPU. It is
// included before every kernel source. Grids and blocks have one dimension.
#pragma once
#define GSTREAM_EMULATOR 1

// Standard headers come before the macros below, because they use the same names.
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <math.h>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) ((void)0)
#ifndef __restrict__
#define __restrict__ __restrict
#endif
// Blocks run one after the other, so the shared memory of a block is a variable that
// outlives it. Thread-local variables are contiguous, so that they can be poisoned.
#define __shared__ static thread_local

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// Kernels and the code that runs them are one library, so they need no table to find each other.
#pragma GCC visibility push(hidden)
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulator {

// Kernel is a kernel that cuModuleGetFunction finds by its name.
struct Kernel {
    const char* name;
    size_t arguments; // bytes of the argument struct
    int threads;      // most threads of a block
    void (*body)(const void* arguments);
    int static_shared = 0; // bytes, as nvcc compiles the kernel
    int registers = 64;    // of a thread, likewise
    int dynamic_shared;    // most bytes, see cuFuncSetAttribute
    Kernel(const char* name, size_t arguments, int threads, void (*body)(const void*));
};

// Collective is an operation of several lanes of a warp.
enum class Collective : uint8_t { Sync, Shuffle, Ballot, Any, All, Match, MatchAll, Add, UMin, UMax, SMin, SMax, And, Or, Xor };

// collective waits until every lane of mask that has not returned has made the same call,
// and returns the calling lane's result. source is the lane that a shuffle reads.
uint64_t collective(Collective kind, unsigned mask, uint64_t value = 0, unsigned source = 0);

// Barrier is what a barrier of the block reduces.
enum class Barrier : uint8_t { Plain, Or, And, Count };
int barrier(Barrier kind, int predicate);

// yield lets the other threads of the block run.
void yield();
// trap ends the launch with an error.
[[noreturn]] void trap(const char* message);
void* dynamic_shared();

template <class T>
uint64_t to_bits(T v) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of 4 and 8 bytes only, as in CUDA");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    return bits;
}
template <class T>
T from_bits(uint64_t bits) {
    T v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// Accesses during the lifetime of a Deliberate are deliberate: they are no race, see
// shadow.cpp.
extern bool deliberate;
struct Deliberate {
#ifdef EMULATOR_RACES
    Deliberate() { deliberate = true; }
    ~Deliberate() { deliberate = false; }
#endif
};

// lane is the number of the running thread in its warp.
inline unsigned lane() { return threadIdx.x & 31; }

} // namespace emulator
#pragma GCC visibility pop

#define KERNEL(name, Args) KERNEL_BOUNDS(name, Args, 1024, 1)
#define KERNEL_BOUNDS(name, Args, threads, blocks)                                                   \
    static void name##_body(const Args& a);                                                          \
    static emulator::Kernel name##_kernel(#name, sizeof(Args), threads,                              \
                                          [](const void* p) { name##_body(*static_cast<const Args*>(p)); }); \
    static void name##_body(const Args& a)
#define SHARED(T, name) T* name = static_cast<T*>(emulator::dynamic_shared())

// Synchronisation.
inline void __syncthreads() { emulator::barrier(emulator::Barrier::Plain, 0); }
inline int __syncthreads_or(int p) { return emulator::barrier(emulator::Barrier::Or, p); }
inline int __syncthreads_and(int p) { return emulator::barrier(emulator::Barrier::And, p); }
inline int __syncthreads_count(int p) { return emulator::barrier(emulator::Barrier::Count, p); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::collective(emulator::Collective::Sync, mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emulator::yield(); }
[[noreturn]] inline void __trap() { emulator::trap("trap"); }

// Lanes that are not synchronised may be anywhere: only the caller is known to be active.
inline unsigned __activemask() { return 1u << emulator::lane(); }
inline unsigned __ballot_sync(unsigned mask, int p) { return (unsigned)emulator::collective(emulator::Collective::Ballot, mask, p != 0); }
inline int __any_sync(unsigned mask, int p) { return (int)emulator::collective(emulator::Collective::Any, mask, p != 0); }
inline int __all_sync(unsigned mask, int p) { return (int)emulator::collective(emulator::Collective::All, mask, p != 0); }

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    unsigned lane = emulator::lane(), from = (lane & ~(width - 1)) | (source & (width - 1));
    return emulator::from_bits<T>(emulator::collective(emulator::Collective::Shuffle, mask, emulator::to_bits(v), from));
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = emulator::lane(), first = lane & ~(width - 1), from = lane - (int)delta;
    return emulator::from_bits<T>(emulator::collective(emulator::Collective::Shuffle, mask, emulator::to_bits(v), from < first ? lane : from));
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = emulator::lane(), last = lane | (width - 1), from = lane + (int)delta;
    return emulator::from_bits<T>(emulator::collective(emulator::Collective::Shuffle, mask, emulator::to_bits(v), from > last ? lane : from));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
    int lane = emulator::lane(), last = lane | (width - 1), from = lane ^ lanes;
    return emulator::from_bits<T>(emulator::collective(emulator::Collective::Shuffle, mask, emulator::to_bits(v), from > last ? lane : from));
}
template <class T>
unsigned __match_any_sync(unsigned mask, T v) {
    return (unsigned)emulator::collective(emulator::Collective::Match, mask, emulator::to_bits(v));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T v, int* all) {
    unsigned lanes = (unsigned)emulator::collective(emulator::Collective::MatchAll, mask, emulator::to_bits(v));
    *all = lanes != 0;
    return lanes;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::Add, mask, v); }
inline int __reduce_add_sync(unsigned mask, int v) { return (int)emulator::collective(emulator::Collective::Add, mask, (unsigned)v); }
inline unsigned __reduce_min_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::UMin, mask, v); }
inline int __reduce_min_sync(unsigned mask, int v) { return (int)emulator::collective(emulator::Collective::SMin, mask, (unsigned)v); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::UMax, mask, v); }
inline int __reduce_max_sync(unsigned mask, int v) { return (int)emulator::collective(emulator::Collective::SMax, mask, (unsigned)v); }
inline unsigned __reduce_and_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::And, mask, v); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::Or, mask, v); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v) { return (unsigned)emulator::collective(emulator::Collective::Xor, mask, v); }

// Atomics. A thread runs until it waits, so plain operations are atomic. The overloads
// are exactly CUDA's, so that code that compiles here compiles there.
#define EMULATOR_ATOMIC(name, T, operation)              \
    inline T name(T* address, T v) {                     \
        emulator::Deliberate access;                     \
        T old = *address;                                \
        *address = operation;                            \
        return old;                                      \
    }                                                    \
    inline T name##_block(T* address, T v) { return name(address, v); } \
    inline T name##_system(T* address, T v) { return name(address, v); }
EMULATOR_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)v))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + v)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + v)
EMULATOR_ATOMIC(atomicAdd, float, old + v)
EMULATOR_ATOMIC(atomicAdd, double, old + v)
EMULATOR_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)v))
EMULATOR_ATOMIC(atomicSub, unsigned, old - v)
EMULATOR_ATOMIC(atomicExch, int, v)
EMULATOR_ATOMIC(atomicExch, unsigned, v)
EMULATOR_ATOMIC(atomicExch, unsigned long long, v)
EMULATOR_ATOMIC(atomicExch, float, v)
EMULATOR_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
#define EMULATOR_ATOMIC_ORDER(T)                         \
    EMULATOR_ATOMIC(atomicMin, T, v < old ? v : old)     \
    EMULATOR_ATOMIC(atomicMax, T, old < v ? v : old)
EMULATOR_ATOMIC_ORDER(int)
EMULATOR_ATOMIC_ORDER(unsigned)
EMULATOR_ATOMIC_ORDER(long long)
EMULATOR_ATOMIC_ORDER(unsigned long long)
#define EMULATOR_ATOMIC_BITS(T)                          \
    EMULATOR_ATOMIC(atomicAnd, T, old & v)               \
    EMULATOR_ATOMIC(atomicOr, T, old | v)                \
    EMULATOR_ATOMIC(atomicXor, T, old ^ v)
EMULATOR_ATOMIC_BITS(int)
EMULATOR_ATOMIC_BITS(unsigned)
EMULATOR_ATOMIC_BITS(unsigned long long)
#define EMULATOR_ATOMIC_CAS(T)                           \
    inline T atomicCAS(T* address, T expected, T v) {    \
        emulator::Deliberate access;                     \
        T old = *address;                                \
        if (old == expected) *address = v;               \
        return old;                                      \
    }                                                    \
    inline T atomicCAS_block(T* address, T expected, T v) { return atomicCAS(address, expected, v); } \
    inline T atomicCAS_system(T* address, T expected, T v) { return atomicCAS(address, expected, v); }
EMULATOR_ATOMIC_CAS(int)
EMULATOR_ATOMIC_CAS(unsigned)
EMULATOR_ATOMIC_CAS(unsigned long long)
EMULATOR_ATOMIC_CAS(unsigned short)

// Loads and stores with a caching hint.
#define EMULATOR_LOAD(name) \
    template <class T>      \
    T name(const T* p) { return *p; }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldlu)
// Loads from the cache that all multiprocessors share see the writes of others.
#define EMULATOR_COHERENT_LOAD(name)  \
    template <class T>                \
    T name(const T* p) {              \
        emulator::Deliberate access;  \
        return *p;                    \
    }
EMULATOR_COHERENT_LOAD(__ldcg)
EMULATOR_COHERENT_LOAD(__ldcv)
#define EMULATOR_STORE(name)  \
    template <class T>        \
    void name(T* p, std::common_type_t<T> v) { *p = v; }
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)

// Integers.
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned long long __brevll(unsigned long long v) {
    v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
    v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(v);
}
inline unsigned __brev(unsigned v) { return (unsigned)(__brevll(v) >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) { return shift >= 32 ? lo : __funnelshift_l(lo, hi, shift); }
inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) { return shift >= 32 ? hi : __funnelshift_r(lo, hi, shift); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i & 15, b = bytes >> 8 * (s & 7) & 255;
        if (s & 8) b = b & 128 ? 255 : 0;
        out |= b << 8 * i;
    }
    return out;
}
inline unsigned __sad(int a, int b, unsigned c) { return (unsigned)(a < b ? (long long)b - a : (long long)a - b) + c; }

// Floats.
inline int __float_as_int(float v) { return emulator::from_bits<int>(emulator::to_bits(v)); }
inline unsigned __float_as_uint(float v) { return emulator::from_bits<unsigned>(emulator::to_bits(v)); }
inline float __int_as_float(int v) { return emulator::from_bits<float>(emulator::to_bits(v)); }
inline float __uint_as_float(unsigned v) { return emulator::from_bits<float>(emulator::to_bits(v)); }
inline long long __double_as_longlong(double v) { return emulator::from_bits<long long>(emulator::to_bits(v)); }
inline double __longlong_as_double(long long v) { return emulator::from_bits<double>(emulator::to_bits(v)); }
inline int __double2hiint(double v) { return (int)(emulator::to_bits(v) >> 32); }
inline int __double2loint(double v) { return (int)emulator::to_bits(v); }
inline double __hiloint2double(int hi, int lo) { return emulator::from_bits<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __ll2double_rn(long long v) { return (double)v; }
inline double __ull2double_rn(unsigned long long v) { return (double)v; }
inline float __ll2float_rn(long long v) { return (float)v; }
inline float __ull2float_rn(unsigned long long v) { return (float)v; }
inline float __double2float_rn(double v) { return (float)v; }
inline long long __double2ll_rn(double v) { return llrint(v); }
inline long long __double2ll_rz(double v) { return (long long)v; }
inline long long clock64() { return 0; }

// min and max of mixed types, as CUDA has them.
#define EMULATOR_MINMAX(A, B, T)                         \
    inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; } \
    inline T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define EMULATOR_MINMAX_INTEGER(S, U)                    \
    EMULATOR_MINMAX(S, S, S)                             \
    EMULATOR_MINMAX(U, U, U)                             \
    EMULATOR_MINMAX(S, U, U)                             \
    EMULATOR_MINMAX(U, S, U)
EMULATOR_MINMAX_INTEGER(int, unsigned)
EMULATOR_MINMAX_INTEGER(long, unsigned long)
EMULATOR_MINMAX_INTEGER(long long, unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

// Vector types, with CUDA's alignment.
#define EMULATOR_VECTOR(name, T)                         \
    struct name##1 { T x; };                             \
    struct __align__(2 * sizeof(T)) name##2 { T x, y; }; \
    struct name##3 { T x, y, z; };                       \
    struct __align__(sizeof(T) < 4 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; }; \
    inline name##1 make_##name##1(T x) { return {x}; }   \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTOR(char, signed char)
EMULATOR_VECTOR(uchar, unsigned char)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(ushort, unsigned short)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(longlong, long long)
EMULATOR_VECTOR(ulonglong, unsigned long long)
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)
struct uint1 { unsigned x; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
inline uint1 make_uint1(unsigned x) { return {x}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
