// Package ordered writes a file, or standard output, whose bytes are made of strides one by one. Strides are encoded by
// several goroutines, and written in their order. A file appears when it is complete; standard output receives rows as
// they come.
package ordered
