// Package physical is the physical plan: a tree of stages, each of which is a scan, an
// operator or a union. Lower makes it of a logical plan. It leaves out the columns that
// nobody needs, compiles expressions and gives each operator what it has to know; a
// stage also says in words what it does, for explain. The runner runs it.
package physical
