// Package parquet reads Parquet files into strides.
//
// It does all steps from a path to columns in memory: it finds files, reads and checks footers,
// maps Parquet types to gpu types, prunes by statistics, cuts row groups into strides, and decodes
// column chunks in parallel. A scan has separate parts: metadata (footer.go, schema.go) and pruning
// (prune.go) give a list of tasks (plan.go); encoded chunks have the bytes of pages and a directory
// of them (encoded.go); a decoder turns these into columns (pages.go, column.go). For a device that
// decodes pages, a task only describes them (undecoded.go). The package never evaluates a filter: pruning only leaves
// out rows that cannot match.
//
// # Trust
//
// Files are untrusted. Sizes are checked against the file, or against data that was
// already read, before memory is allocated for them. Page checksums are verified if a
// file has them. Mistakes are reported as source.ErrData with file, row group and column.
// Memory that grows with the data comes from the scan's lease.
//
// # Invariants
//
//  1. A task is a stride × a column, and tasks run in any order. A page of several
//     strides is decoded once, by the first task that needs it; later tasks continue
//     from the nearest position that another task has left. A dictionary is decoded
//     once too.
//  2. Strides are admitted in order and bounded in number or bytes. A task waits for
//     another task only while that one decodes what both need, and a task that does so
//     waits for nothing: no set of tasks can deadlock.
//  3. Page buffers have slack bytes of capacity beyond their length: bit unpackers
//     may read these bytes, but never use them.
//
// # Several files
//
// A source lists its files (hive.go), which gives the columns in the names of folders, and then
// opens the files. The columns of all files make one schema (unify.go). A chunk decodes into the
// type of the table (widen.go). A column that a file lacks, or has in its path, is a chunk of one
// value (constant.go).
package parquet
