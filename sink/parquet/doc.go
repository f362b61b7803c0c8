// Package parquet writes strides to Parquet files.
//
// It does all steps from columns in memory to a named file: it cuts rows into row groups and pages,
// encodes and compresses them in parallel, writes statistics and page indexes, and makes the output
// appear atomically. Encoding (encode.go), which turns the columns of a row group into the bytes of
// its chunks, is separate from writing (writer.go). The package never reads its output, and only
// outputs with PartitionBy or Files reorder rows.
//
// # Invariants
//
//  1. Rows are written in the order of the strides; row groups are in the file in
//     the order of their rows. Files of a directory continue each other, in the order of their
//     names, except with PartitionBy, and with Files without Sorted.
//  2. Until Commit has succeeded, the target's name is unchanged: it does not exist, or has the
//     earlier output. After an error or Abort nothing is left.
//  3. The lease pays for everything that grows with the data, including the scratch of
//     workers; for that of a page or a dictionary once its size is known.
//  4. A worker that is denied memory releases what it has, and waits. The sink fails if no memory is
//     released or taken meanwhile.
//
// # Files of a directory
//
// Files are laid out one after the other, in the order of the rows, but written concurrently: a row
// group that is encoded gets its offsets in its file, and then waits there. The system lets one
// thread at a time write to a file, so one worker writes the waiting row groups of a file, and other
// workers write to other files or encode. Row groups that wait count by their encoded bytes toward
// grant.OutputQueue. How many files are written at a time depends on how many of them these bytes
// reach. Without an order from file to file, row groups go to all files in turn.
//
// # Partitioned outputs
//
// A partitioned output (partition.go) sorts the row numbers of strides by partition, gathers
// the rows column by column, and gives each partition row groups of its own. Strides in memory of a device are sorted
// there (partition_device.go), and the row groups of partitions are ranges of the result.
package parquet
