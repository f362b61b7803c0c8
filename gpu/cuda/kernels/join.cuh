// This file has what the kernels that join partitions share: work items, the states of stopped blocks, and the hash
// table of a block.
#pragma once
#include "common.cuh"

constexpr u32 NONE = ~0u;
constexpr u32 JOIN_END = 0xffff;

// JoinItem is a work item: rows of both sides of one partition. Either its build rows fit one table, or its probe rows
// are one slice.
struct JoinItem {
    u32 buildFrom, buildTo, probeFrom, probeTo;
};

struct JoinState {
    u64 pairs;   // pairs for which room was requested
    u64 written; // pairs before the first one without room
    u32 items;
    u32 taken;   // items that blocks have taken
    u32 late;    // items for join_runs
    u32 lateTaken;
    u32 stopped; // 1: there was no room
    u32 wrong;   // 1: offsets descend or exceed the rows
};

// JoinPlace tells where a block stopped, within an item or between two.
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
    u16* next;    // by row: the previous row of its bucket, or JOIN_END
    u32* head;    // by bucket: its last row, or JOIN_END

    // find returns the first row of a key from a row on, or JOIN_END.
    __device__ __forceinline__ u32 find(K k, u32 at) const {
        while (at != JOIN_END && key[at] != k) at = next[at];
        return at;
    }
};
