// Package parquet writes strides to Parquet files.
//
// It owns everything from columns in memory to a file under its name: it cuts rows into
// row groups and pages, encodes and compresses them in parallel, writes statistics and
// page indexes, and makes the output appear as a whole or not at all. Encoding
// (encode.go) turns the columns of a row group into the bytes of its chunks; it is
// separate from writing (writer.go). The package never reorders rows and never reads what
// it wrote.
//
// # Invariants
//
//  1. Rows are written in the order of the strides; row groups are in the file in
//     the order of their rows.
//  2. Until Commit has succeeded, nothing exists under the target's name that was not
//     there before. After an error or Abort nothing is left.
//  3. The lease pays for everything that grows with the data, including the scratch of
//     workers; for that of a page or a dictionary once its size is known.
//  4. A worker that is denied memory releases what it has and waits for some. The
//     sink fails when nobody releases or takes any memory.
//
// # Partitioned outputs
//
// A partitioned output (partition.go) sorts the row numbers of strides by partition, gathers
// the rows column by column, and gives each partition row groups of its own.
package parquet
