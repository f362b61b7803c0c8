// Package logical is the logical plan: relations with known columns and types, and
// estimates of their sizes.
//
// Bind makes it from a Query, which is steps over tables, and lists the mistakes in them.
// A diagnostic points into the Text that the user wrote, which is a job file or another
// text. Query.Output checks the columns of the output. Optimize rewrites the plan by
// rules that preserve its rows. Nothing here knows how a relation is computed: that is
// the physical plan.
package logical
