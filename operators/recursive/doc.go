// Package recursive keeps the rows of a recursive common table expression. The runner computes them iteration by
// iteration; the package has the rows that an iteration adds, until the next one has read them: the working table.
//
// UNION ALL adds all rows. UNION adds those that no iteration has added before. Their table of groups, for which
// (as in a group-by) null equals null, is kept from one iteration to the next, so an iteration costs time for its own
// rows only. Once the table exceeds grant.GroupTables, the distinct rows are partitioned by a hash, and may spill. An
// iteration then partitions its rows, and makes a table for each partition that has some: it reads up to all distinct
// rows.
package recursive
