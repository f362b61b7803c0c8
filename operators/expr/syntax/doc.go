// Package syntax parses SQL text in DuckDB's dialect into a tree: expressions by Parse, and statements by
// ParseStatements. It owns the lexer, the parser, the nodes of the tree and their printing, the location of
// mistakes (Error), and the tables of the grammar: reserved words, the precedence of operators, the names of
// types and of date fields.
//
// The package knows no functions, columns or types of results: package expr binds its trees.
//
// Texts come from untrusted sources: nothing here panics, recurses without bound, or allocates
// an amount that the text names.
package syntax
