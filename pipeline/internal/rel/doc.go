// Package rel is the relational tree: what a query computes, in nodes that each make rows of columns from the rows of
// their inputs.
//
// A column has an ID, which the Metadata of the query gives out once. It means the same values in every node that has
// it, and two inputs of a join never share one. So an expression, which names columns by their IDs, may move from node
// to node as it is, and the order in which a node lists its columns means nothing. Where a relation is read twice and
// both readings meet, one of them gets new IDs from a Project of bare columns.
//
// On the right side of a dependent join (Apply), expressions may also use columns of the rows around it. Dependent
// joins, set operations and comparisons that are unknown for nulls have nodes but no operators: rules replace them by
// joins, group-bys and windows.
//
// Nodes are immutable and may have several readers. Four functions know all of them: Inputs, WithInputs, Print and
// Check. Nodes hold no estimates and read nothing.
package rel
