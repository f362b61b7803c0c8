// Runs kernels on the CPU, and defines the results that the driver reports.
#pragma once
// As in emulator.h: standard headers come before its macros.
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#include "emulator.h"

namespace emulator {

// The driver's results that the emulator returns.
enum Result : int {
    Success = 0,
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    NoDevice = 100,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchOutOfResources = 701,
    AlreadyRegistered = 712,
    NotRegistered = 713,
    MisalignedAddress = 716,
    LaunchFailed = 719,
    NotSupported = 801,
};

constexpr int most_shared = 227 << 10;    // most bytes of shared memory of a block, static and dynamic together
constexpr int default_shared = 48 << 10;  // bytes that need no opt-in
constexpr int multi_registers = 64 << 10; // registers of a multiprocessor

// Resources are what a compiled kernel needs; see kernels/resources.txt.
struct Resources {
    const char* kernel;
    int static_shared, registers;
};
extern const Resources resources[]; // ends with a null kernel; build.sh makes it
constexpr unsigned char poison = 0xcb; // fills memory that nothing was written to

// launch runs a kernel to its end. The caller holds the driver's lock.
Result launch(Kernel& kernel, unsigned grid, unsigned block, unsigned shared, const void* arguments);

// find returns the kernel with a name, or null.
Kernel* find(const std::string& name);

// describe describes the position of an address relative to the allocations.
std::string describe(const void* address);

// shadow records which memory was written to, for kernels that report their accesses, and
// finds races.
namespace shadow {
void allocated(uint64_t address, size_t n);
void freed(uint64_t address, size_t n);
void written(uint64_t address, size_t n);
void copied(uint64_t to, uint64_t from, size_t n);
bool all_written(uint64_t address, size_t n);
void begin_launch(const char* kernel, void* dynamic_shared, size_t n);
void static_shared(void* from, size_t n);
void begin_block();
void barrier();
void sync_warp(unsigned warp);
} // namespace shadow

} // namespace emulator
