// Package materialize materializes the rows of a step that several steps read, so that they are computed
// once.
//
// The strides are kept in the order of the input, each as a partition of package spill. They have
// the columns that any reader uses; conditions of readers are not moved into the step. The first
// reader that runs starts the computation, on a goroutine of its own, and the last reader that ends
// releases the rows. In a plan the first reader has the stage "hold" above the step; the others
// read it as "held". Scans, and filters, projections and unions of scans, are not materialized:
// each reader computes them again.
package materialize
