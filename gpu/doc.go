// Package gpu is the vocabulary of gstream: types, columns, strides, devices, and the
// primitives that every operator is composed of.
//
// It owns the device-independent types (Type, Column, Stride), the accounting of memory
// (Budget, Lease, Buffer), the intermediate form of scalar expressions (Program) and the
// contract of the primitives (Queue). It runs no primitive itself: package gpu/host runs
// them on CPU cores, package gpu/cuda on NVIDIA GPUs, and package gpu/gputest tests both
// with one suite.
//
// # Layout
//
// Columns follow the Arrow columnar layout: little-endian fixed-width values, int32
// offsets and bytes for strings and binaries, and bitmaps for validity and booleans with
// the least significant bit first (1 is valid, 1 is true). A column whose Dict is set holds
// int32 codes into that dictionary. Values and codes under a null are unspecified; such a code
// may be out of range (Lookup).
//
// # Invariants
//
//  1. A Stride has exactly one owner; passing it on transfers the ownership, Release ends it.
//  2. A Buffer is charged to exactly one Lease from Alloc to the last Release. A Lease that is
//     closed while it has buffers reports them.
//  3. Sizes and counts are int (64-bit). Row ids within a stride or a gathered table are int32;
//     the code that makes them checks MaxRows.
//  4. Bits of a bitmap beyond its length are unspecified.
package gpu
