// Package expr is gstream's scalar expressions: SQL text in DuckDB's dialect in,
// a gpu.Program out. It owns the lexer, the parser and its tree (Node), the typed
// and checked form (Expr), and the compiler. The way of an expression is Parse,
// Bind against a Scope, Compile for a schema; a device then evaluates the program.
//
// Every mistake in an expression is found by Parse or Bind and is an *Error with
// its position. What depends on data (an overflow, text that is not a number) is
// an error when the program runs. Text, patterns and depth come from strangers:
// nothing here panics, recurses without bound or allocates by a number that was
// read.
//
// Decimals are stored in 8 bytes wherever the ranges of the operands prove that
// the values fit; the evaluation checks it, because file statistics can lie.
//
// It never evaluates over rows; constants are folded by a function that the scope
// gives (host.Fold runs their program on one row), so that a folded constant equals
// its evaluation.
package expr
