// Package parquet writes strides to Parquet files.
//
// It owns the way from columns in memory to a file under its name: cutting rows
// into row groups and pages, encoding and compressing them in parallel,
// statistics and page indexes, and the protocol by which output appears as a
// whole or not at all. Encoding (encode.go) is a step between a row group of
// columns and the bytes of its chunks, apart from who writes them (writer.go).
// It never reorders rows and never reads what it wrote.
//
// # Invariants
//
//  1. Rows are written in the order of the strides; row groups lie in the file
//     in the order of their rows.
//  2. Until Commit has succeeded nothing exists under the target's name that
//     was not there before; after an error or Abort nothing is left.
//  3. Everything that grows with the data is paid by the lease, the scratch of
//     workers too; that of a page or a dictionary once its size is known.
//  4. A worker that is refused memory gives back what it has and waits for some;
//     the sink fails when nobody gives or takes any.
package parquet
