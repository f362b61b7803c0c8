// Package jsontext reads JSON from its bytes, without a tree: it checks a document, finds the value at a path, and
// writes values in the form that DuckDB gives them.
//
// A document is what DuckDB's parser takes: RFC 8259, and a comma behind the last element or member, and NaN and
// infinities without regard to case. Numbers and the order of members stay as they are; of members with one name the
// first one counts.
//
// Documents are hostile. Time is linear in the bytes of a document, except where a function says otherwise. Memory is
// one byte for each level of nesting. Functions that recurse refuse documents of more than MaxDepth levels.
package jsontext
