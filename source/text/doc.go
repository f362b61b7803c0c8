// Package text reads files of CSV, and of JSON, as one table.
//
// Open samples the first file, or all of them if their columns are united by name: it finds the delimiter, the quote,
// the header and the types of the columns, unless they are given. A scan then reads the files block by block. Blocks
// are cut in order, between rows, under a lock: a block without quotes is cut at its last line break, and in other
// blocks the cutter jumps from quote to quote. So each block begins where a row begins, and goroutines parse blocks
// independently. The strides are returned in the order of the files.
//
// A block is parsed in batches of rows. The tokenizer finds delimiters, quotes and line breaks in words of 64 bytes,
// and records where each field begins and ends, column by column. Then a parser for the type of each column turns its
// fields into values. Fields of columns that are not read are found, but not parsed.
//
// Each row is accounted for. A row with a value that its column cannot take, with another number of columns, or with
// text after a closing quote is a source.ErrData with file, line and column. With Options.Rejects, such rows are
// written to a file instead, and all columns are checked, also those that are not read.
//
// Lines of JSON are tokenized by a scanner of JSON instead, which puts the values of keys into the same lists of
// fields. A value that is a list or an object is one field, which its column scans again. A file that is a list of
// objects, or has objects over several lines, is first made lines of JSON, by one goroutine.
//
// All bytes of a file are untrusted. A row has at most 16 MiB, and a file at most 16,384 columns.
package text
