// Package logical makes the relational tree of a query, estimates the sizes of its relations, and rewrites it.
//
// Bind makes the tree (package rel) from a Query, which is steps over tables, and lists the mistakes in them. Only the
// binder knows names: a Relation is what a name stands for, a node and its columns in order, with the tables by which
// each can be qualified. A diagnostic points into the Text that the user wrote, which is a job file or another
// text. Query.Output checks the columns of the output. An Estimator tells the rows and the values of nodes when
// somebody asks; it reads statistics and samples of tables. Optimize rewrites the tree by rules that preserve its rows.
// Nothing here knows how a relation is computed: that is the physical plan.
//
// A step of SQL is bound by queryBinder (bind_query.go; SELECT in bind_select.go, FROM in bind_from.go, subqueries in
// bind_subquery.go). It makes the same relations as the other steps do. A name that a query does not know may be a
// column of a query around it; the subquery is then the right side of a dependent join, which the first rule replaces.
//
// # Rules
//
//   - Subqueries that depend on the rows around them become joins (rule_unnest.go).
//   - Conditions move to the files, where statistics of row groups and pages rule data out. A step
//     that several readers share meets the conditions of one of them (push_shared.go).
//   - A sort with a limit becomes a top-k.
//   - Chains of inner joins run in the order that makes and keeps the fewest rows: a
//     dynamic program over connected sets of up to 10 tables, greedy above. The smaller side of a
//     join is built.
//   - A join by inequalities alone becomes a join by a range. It builds the side whose sorted key
//     leaves fewer pairs to compare.
//   - Aggregates of whole partitions (sum(x) OVER (PARTITION BY k)) become a group-by that is
//     joined with the rows, if the rows are cheap to read twice (whole.go).
//   - Unused columns are never read.
//   - Aggregates of distinct values become two group-bys, the first with these values as keys, or,
//     for an estimate, with the numbers of their registers (bind_distinct.go). Modes and quantiles
//     of values with many rows become two group-bys too: the second one sorts values with their
//     counts.
//   - For grouping sets each row goes into one group-by once for each set, whose number is a key
//     (bind_sets.go). If their aggregates can be merged, each set merges the groups of a finer one
//     instead (rule_grouping_sets.go).
//
// Estimates come from statistics of the files, and from a sample of a table if the statistics do
// not tell (sample.go). The conditions on a small table are evaluated on all its rows: these also
// tell the range of its keys that is left, and so the share of the facts that have such a key.
//
// A plan binds the job to the first file of a source, evaluates the conditions that read only
// columns in the names of folders once a file (partitions.go), opens the files that are left, and
// binds again.
package logical
