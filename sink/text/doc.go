// Package text writes CSV and JSON lines. Strides are encoded, and compressed, by several goroutines, and written in
// their order. A file appears when it is complete; standard output receives rows as they come.
//
// A compressed file is a sequence of gzip members or of zstd frames, one for each stride, which is a file to every
// reader of the formats.
package text
