// Package parquet reads Parquet files into strides.
//
// It owns the way from a path to columns in memory: finding files, reading and
// checking footers, mapping Parquet types to gpu types, deciding from
// statistics what need not be read, cutting row groups into strides, and
// decoding column chunks in parallel. Metadata (footer.go, schema.go), pruning
// (prune.go) and the list of tasks (plan.go) stand apart from decoding
// (cursor.go, build.go), so that another decoder can take the same tasks.
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
//  1. A task is a stride × a column. Tasks of one column that continue in the
//     same row group run one after the other and hand their cursor on; where
//     cores idle, one overtakes those before it with a cursor of its own.
//  2. Strides are admitted in order and bounded in number or bytes, and a task
//     never waits for another one inside a worker: no set of tasks can deadlock.
//  3. Page buffers have slack bytes of capacity behind their length, so that
//     the bit unpackers may read, but never use, what is behind the end.
package parquet
