// Package logical is the logical plan: what is asked for, as relations of known
// columns and types, and what is believed of their sizes.
//
// Bind makes it of a Query, steps over tables, and lists what is wrong with them; a
// diagnostic points into the Text that the user wrote, a job file or another. Query.Output
// checks what an output must have, and Optimize rewrites the plan by rules that keep
// its rows. Nothing here knows how a relation is computed: that is the physical plan.
package logical
