// Package hold keeps the rows of a step that several steps read, so that they are computed once.
//
// The strides are kept in the order of the input, each a partition of package spill. The columns
// are those that any reader uses; conditions of readers are not moved into the step. The first
// reader that runs has the rows computed on a goroutine of their own, and the last reader that ends
// releases them. In a plan the first reader has the stage "hold" above the step; the others read it
// as "held". Scans, filters, projections and unions of them are not held: each reader computes them
// again.
package hold
