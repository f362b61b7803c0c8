// Package arrow converts between Arrow's arrays and columns of strides, both ways, and has tables of Arrow records: in
// memory, as they come, and in files and streams of Arrow's IPC format.
//
// The values of records of a program are trusted to be what their types say, as those of an Arrow library are. All
// bytes of files are untrusted: this package parses their metadata, and allocates nothing for a length before it has
// been compared with the bytes that are there, or been paid for by the lease of a scan. Buffers, offsets, codes and
// UTF-8 are checked before an array is made of them. A file is read record batch by record batch, by several
// goroutines.
package arrow
