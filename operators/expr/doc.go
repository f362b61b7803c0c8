// Package expr has gstream's scalar expressions. It turns syntax trees (package syntax) into
// gpu.Programs. It owns the table of functions, the binder, the typed and checked form (Expr), and
// the compiler. An expression passes through syntax.Parse, Bind against a Scope, and Compile for a
// schema. A device then evaluates the program.
//
// An expression is a column, a constant or one of the operations of package gpu, whose table (gpu.Operation) has how it
// is printed, how many arguments it takes, and the laws that rewrites follow.
//
// Parse or Bind find every mistake in an expression and return a *syntax.Error with its
// position. Errors that depend on data (an overflow, text that is not a number) occur
// when the program runs. Expressions come from untrusted sources: nothing here panics,
// recurses without bound, or allocates an amount that the text names.
//
// Decimals are stored in 8 bytes if the ranges of the operands prove that the values fit. The
// evaluation checks this, because file statistics can be wrong.
//
// The package never evaluates rows. The scope provides the function that folds constants. It is
// host.Fold, which runs their program on one row, so folding and evaluation give the same value.
package expr
