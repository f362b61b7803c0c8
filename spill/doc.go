// Package spill keeps the rows that operators must hold, in partitions, when these are more
// than memory has room for. Rows lie in one of three tiers: in the memory of a device, in
// page-locked host memory if the device has memory of its own, and on disk. They move down a
// tier when the budget of their tier needs room, and come back when they are read.
//
// The package knows strides, partitions, budgets and files. It knows nothing of joins.
package spill
