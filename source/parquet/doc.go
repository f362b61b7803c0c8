// Package parquet reads Parquet files into strides.
//
// It owns the way from a path to columns in memory: finding files, reading and
// checking footers, mapping Parquet types to gpu types, deciding from
// statistics what need not be read, cutting row groups into strides, and
// decoding column chunks in parallel. A scan goes in steps that stand apart: metadata
// (footer.go, schema.go) and pruning (prune.go) give a list of tasks (plan.go);
// encoded chunks hold the bytes of pages and a directory of them (encoded.go); a
// decoder makes columns of those (pages.go, column.go). Another decoder can take
// the same tasks and chunks.
// It never evaluates a filter: pruning only leaves out rows that cannot match.
//
// # Trust
//
// Every byte of a file is hostile. Sizes are checked against the file, or
// against data that was already read, before memory is allocated for them;
// page checksums are verified where a file has them; what is wrong is reported
// as source.ErrData with file, row group and column. Memory that grows with
// the data comes from the scan's lease.
//
// # Invariants
//
//  1. A task is a stride × a column, and tasks run in any order. A page of several
//     strides is decoded once, by the first task that comes to it; the others go on
//     where one before them has stopped. So is a dictionary.
//  2. Strides are admitted in order and bounded in number or bytes. A task waits for
//     another one only while that one decodes what both need, which waits for
//     nothing: no set of tasks can deadlock.
//  3. Page buffers have slack bytes of capacity behind their length, so that
//     the bit unpackers may read, but never use, what is behind the end.
package parquet
