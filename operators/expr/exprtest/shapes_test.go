package exprtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
)

// TestEveryRowIsDrawn finds each function, under each of its names, and each operation in the shapes of which the
// generator draws.
func TestEveryRowIsDrawn(t *testing.T) {
	all, tame := tables()
	assert.Greater(t, len(tame.all), len(all.all)/2)
	drawn := func(of *shapes, c Class, x *shape) bool {
		return slices.ContainsFunc(of.rows[c], func(group []*shape) bool { return slices.Contains(group, x) }) &&
			slices.ContainsFunc(of.ops[c], func(group []*shape) bool { return slices.Contains(group, x) })
	}
	for _, x := range all.all {
		assert.True(t, drawn(&all, x.class, x), "%s", x.parts)
	}
	begins := func(start string) func(*shape) bool {
		return func(x *shape) bool { return strings.HasPrefix(x.parts[0], start) }
	}
	for _, e := range expr.Reference() {
		switch {
		case drawnElsewhere(e), e.Name == "ago", e.Name == "age": // see below
			continue
		case e.Chapter == "Operators":
			assert.True(t, slices.ContainsFunc(all.all, func(x *shape) bool { return x.row == e.Name }), e.Name)
			continue
		case strings.HasSuffix(e.Syntax, "()") && e.Name != "pi":
			continue // they have the time of the run
		}
		for _, name := range append([]string{e.Name}, e.Aliases...) {
			assert.True(t, name == "position" || slices.ContainsFunc(all.all, begins(name+"(")),
				"the generator never calls %s", name)
		}
	}
	assert.True(t, slices.ContainsFunc(all.all, func(x *shape) bool { // not the age of one date, which is that of today
		return x.row == "age" && len(x.operands) == 2
	}))
	for op := range gpu.Ops {
		o := op.Info()
		if o.Internal || o.Form == gpu.Special || slices.Contains(byHand, o.SQL) {
			continue
		}
		for n := range max(len(o.Variants), 1) {
			text := ofOperation(o.Form, o.Name(n), o.Least).parts
			assert.True(t, o.Name(n) == "" || op == gpu.OpEncode && gpu.Encoding(n) == gpu.Raw || // encode and decode
				slices.ContainsFunc(all.all, func(x *shape) bool { return slices.Equal(x.parts, text) }), "%s", text)
		}
	}
}
