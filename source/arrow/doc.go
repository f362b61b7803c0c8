// Package arrow converts between Arrow's arrays and columns of strides, both ways, and has tables of Arrow records: in
// memory, and as they come.
//
// The values of records are trusted to be what their types say, as those of an Arrow library are.
package arrow
