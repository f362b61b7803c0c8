package logical

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// shares is the number of parts into which a sample divides the rows.
const shares = 1_000_000

// sampled keeps some rows: each with a probability, or a number of them. A hash of the number of a row and the seed
// chooses, so a sample with a seed is the same in each run, whatever the threads.
func (b *queryBinder) sampled(n rel.Node, s *syntax.Sample) (rel.Node, error) {
	if m := strings.ToLower(s.Method); m == "system" {
		return nil, mistake(s, "the method system is not possible: it takes whole blocks of rows; use bernoulli")
	}
	seed := b.now.UnixNano()
	if s.Seed != nil {
		var err error
		if seed, err = b.number(s.Seed, "the seed of a sample"); err != nil {
			return nil, err
		}
	}
	size, err := b.constant(s.Size)
	if err != nil {
		return nil, err
	}
	if size, err = expr.Cast(size, gpu.Of(gpu.Float64), host.Fold); err != nil {
		return nil, mistake(s.Size, "the size of a sample: %v", err)
	}
	v, _ := size.Constant()
	if !v.Valid || v.Float < 0 || s.Percent && v.Float > 100 {
		return nil, mistake(s.Size, "a sample has a number of rows, or 0 to 100 percent")
	}
	numbered, number := ranked(b.here(), n, nil, nil)
	hash := computeOf(fmt.Sprintf("hash(%%s, %d)", seed), numbered, number)
	if s.Percent {
		below := computeOf(fmt.Sprintf("hash(%%s, %d) %%%% %d < %d", seed, shares, int64(v.Float/100*shares)), numbered,
			number)
		return rel.NewFilter(b.here(), numbered, []*expr.Expr{below}), nil
	}
	wide, ids := rel.Extend(numbered, []*expr.Expr{hash}, nil)
	return rel.NewSort(b.here(), wide, []rel.SortKey{{Column: ids[0]}}, 0, int64(v.Float)), nil
}
