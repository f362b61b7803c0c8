// What the kernels that join partitions share: work items, where blocks stop, and the hash
// table of a block.
#pragma once
#include "common.cuh"

constexpr u32 NONE = ~0u;
constexpr u32 JOIN_END = 0xffff;

// JoinItem is a work item: rows of one partition of both sides. Either its build rows
// are those of one table, or its probe rows those of one slice.
struct JoinItem {
    u32 buildFrom, buildTo, probeFrom, probeTo;
};

struct JoinState {
    u64 pairs;   // for which room was asked
    u64 written; // before the first for which there was none
    u32 items;
    u32 taken;   // items that blocks have taken
    u32 late;    // items that are joined through runs
    u32 lateTaken;
    u32 stopped; // 1 when room was missing
    u32 wrong;   // 1 when offsets descend or leave the rows
};

// JoinPlace is where a block stopped, in an item or between two.
struct JoinPlace {
    u32 item;  // NONE: between two
    u32 next;  // the item after it, which the block has taken; NONE: none
    u32 table; // first build row of the table
    u32 probe; // first probe row
};

// Chains is a chained hash table: the rows of a bucket in any order.
template <class K>
struct Chains {
    const K* key; // by row
    u16* next;    // by row: the one before it in the bucket, or JOIN_END
    u32* head;    // by bucket: its last row, or JOIN_END

    // find returns the first row of a key from a row on, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 at) const {
        while (at != JOIN_END && key[at] != k) at = next[at];
        return at;
    }
};
