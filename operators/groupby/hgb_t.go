package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// hgbT is hgb for very few groups: each thread has a copy of the aggregates, so that no two threads
// contend (Karnagel et al., ADMS 2015, §5.1). It is never chosen, only forced: with few groups hgb
// reaches the bandwidth of memory, because its lanes have copies, too, if they fit.
type hgbT struct{ *hashGroupBy }

func (a hgbT) aggregate(t operators.Task, s *gpu.Stride, by key) (*gpu.Stride, error) {
	hint := a.hint(by)
	hint.Private = true
	return a.inTables(t, by, gpu.Partitioned{Key: by.Column}, s.Cols, hint)
}
