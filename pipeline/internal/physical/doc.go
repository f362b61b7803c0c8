// Package physical is the physical plan: a tree of stages. A stage is a scan, an operator
// or a union. Lower makes it from a logical plan. It drops unused columns, compiles
// expressions and configures the operators. A stage also describes its work in words, for
// explain. The runner runs the plan.
package physical
