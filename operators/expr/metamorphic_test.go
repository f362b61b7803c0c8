package expr_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
)

// cases returns the expressions that DuckDB evaluates without an error.
func cases(t *testing.T) []string {
	data, err := os.ReadFile("testdata/cases.tsv")
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(line, "\t"); !strings.HasPrefix(fields[1], "ERROR") {
			out = append(out, fields[0])
		}
	}
	require.Greater(t, len(out), 300)
	return out
}

// requireSame compares values and types as SQL sees them. Their storage may differ.
func requireSame(t *testing.T, want, got gpu.Scalar, what string) {
	t.Helper()
	require.True(t, want.Type.SameSQL(got.Type), "%s: %v, want %v", what, got.Type, want.Type)
	require.Equal(t, want.Valid, got.Valid, what)
	if want.Valid {
		require.Zero(t, want.Compare(got), "%s: %v, want %v", what, got, want)
	}
}

// repeated returns the table with its rows repeated up to n rows, without the rows that
// have nulls unless nulls is set. coded makes every column dictionary-coded.
func (tab *table) repeated(n int, nulls, coded bool) (cols []gpu.Column, source []int) {
	for i := range n {
		r := (i + i/7) % tab.rows
		if !nulls && r == 3 {
			r = 4
		}
		source = append(source, r)
	}
	for _, c := range tab.cols {
		values := make([]gpu.Scalar, n)
		for i, r := range source {
			values[i] = c.ScalarAt(r)
		}
		plain := gpu.ColumnOf(c.Type, values)
		if coded && c.Type.Kind != gpu.Bool {
			codes := make([]int32, n)
			for i, r := range source {
				codes[i] = int32(r)
			}
			dict := make([]gpu.Scalar, tab.rows)
			for r := range dict {
				dict[r] = c.ScalarAt(r)
				dict[r].Valid = true // values of a dictionary are never null
				dict[r].Type = c.Type
			}
			plain = gpu.Column{Type: c.Type, Len: n, Data: gpu.WrapBytes(gpu.BytesOf(codes)), Valid: plain.Valid,
				Dict: &gpu.Dictionary{Values: gpu.ColumnOf(c.Type, dict)}}
		}
		cols = append(cols, plain)
	}
	return cols, source
}

func TestResultsDoNotDependOnRowCountNullsOrCoding(t *testing.T) {
	tab := duckTable(t)
	var exprs []*expr.Expr
	var srcs []string
	for _, src := range cases(t) {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		exprs, srcs = append(exprs, e), append(srcs, src)
	}
	// All expressions together are one program, which also tests shared subexpressions.
	want, err := evaluate(t, tab.schema, tab.cols, tab.rows, exprs...)
	require.NoError(t, err)
	for _, n := range []int{0, 1, 63, 64, 65, 2047, 2048, 2049, 33000} {
		for _, nulls := range []bool{true, false} {
			for _, coded := range []bool{false, true} {
				t.Run(fmt.Sprintf("rows=%d nulls=%t coded=%t", n, nulls, coded), func(t *testing.T) {
					cols, source := tab.repeated(n, nulls, coded)
					// Fewer expressions over more rows, and others for other numbers of rows, to save time.
					every := 4 + n/2048*2
					first := n % every
					var some []*expr.Expr
					for k := first; k < len(exprs); k += every {
						some = append(some, exprs[k])
					}
					results, err := evaluate(t, tab.schema, cols, n, some...)
					require.NoError(t, err)
					got := map[int][]gpu.Scalar{}
					for i, r := range results {
						got[first+i*every] = r
					}
					for k := range got {
						for i, r := range source {
							if want[k][r].Valid != got[k][i].Valid ||
								want[k][r].Valid && want[k][r].Compare(got[k][i]) != 0 {
								require.Failf(t, "differs", "%s row %d: %v, want %v", srcs[k], i, got[k][i], want[k][r])
							}
						}
					}
				})
			}
		}
	}
}

func TestFoldedConstantsEqualEvaluatedColumns(t *testing.T) {
	tab := duckTable(t)
	name := regexp.MustCompile(`'(?:[^']|'')*'|\b(?:` + strings.Join(tab.schema.Names(), "|") + `)\b`)
	for _, src := range cases(t) {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		want, err := evaluate(t, tab.schema, tab.cols, tab.rows, e)
		require.NoError(t, err, src)
		for r := range tab.rows {
			folded := name.ReplaceAllStringFunc(src, func(word string) string {
				i := tab.schema.Index(word)
				if word[0] == '\'' || i < 0 {
					return word
				}
				value := "NULL"
				if v := tab.cols[i].ScalarAt(r); v.Valid {
					text := v.String()
					if v.Type.Kind == gpu.Binary {
						text = []string{"ab", `\x00\xFF`, "", "", "xyz"}[r]
					}
					value = "'" + strings.ReplaceAll(text, "'", "''") + "'"
				}
				return fmt.Sprintf("CAST(%s AS %v)", value, tab.cols[i].Type)
			})
			c, err := bind(folded, &expr.Scope{Schema: &gpu.Schema{}})
			require.NoError(t, err, folded)
			v, ok := c.Constant()
			require.True(t, ok, "%s is not folded: %s", folded, c)
			requireSame(t, want[0][r], v, folded)
		}
	}
}

func TestNarrowAndWideDecimalsGiveEqualResults(t *testing.T) {
	tab := duckTable(t)
	wide := &table{schema: &gpu.Schema{}, rows: tab.rows}
	for i, c := range tab.cols {
		typ := c.Type
		typ.Wide = typ.Kind == gpu.Decimal
		values := make([]gpu.Scalar, tab.rows)
		for r := range values {
			values[r] = c.ScalarAt(r)
		}
		f := tab.schema.Fields[i]
		f.Type = typ
		wide.schema.Fields = append(wide.schema.Fields, f)
		wide.cols = append(wide.cols, gpu.ColumnOf(typ, values))
	}
	for _, src := range cases(t) {
		if !strings.Contains(src, "d4") && !strings.Contains(src, "d15") && !strings.Contains(src, "d18") {
			continue
		}
		a, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err)
		b, err := bind(src, &expr.Scope{Schema: wide.schema})
		require.NoError(t, err)
		want, err := evaluate(t, tab.schema, tab.cols, tab.rows, a)
		require.NoError(t, err)
		got, err := evaluate(t, wide.schema, wide.cols, tab.rows, b)
		require.NoError(t, err, src)
		for r := range want[0] {
			requireSame(t, want[0][r], got[0][r], src)
		}
	}
}
