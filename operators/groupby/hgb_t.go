package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// hgbT is hgb for very few groups: each thread has a copy of the aggregates, so that no two meet
// (Karnagel et al., ADMS 2015, §5.1). Lanes of hgb have copies too, if there is room; the choice is
// never hgbT, because hgb is as fast as memory is for few groups.
type hgbT struct{ *hashGroupBy }

func (a hgbT) aggregate(t operators.Task, s *gpu.Stride, by key) (*gpu.Stride, error) {
	hint := a.hint(by)
	hint.Private = true
	return a.inTables(t, by, gpu.Partitioned{Key: by.Column}, s.Cols, hint)
}
