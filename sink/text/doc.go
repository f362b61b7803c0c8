// Package text writes CSV and JSON lines.
//
// A compressed file is a sequence of gzip members or of zstd frames, one for each stride, which is a file to every
// reader of the formats.
package text
