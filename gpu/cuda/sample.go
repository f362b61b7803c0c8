package cuda

import (
	"fmt"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
)

// sampleArgs is SampleArgs of sample.cu.
type sampleArgs struct {
	key, found, mul, step uint64
	sampled, slots        uint32
}

// SampleKeys implements gpu.Queue. The table has 2 slots per row, or 3 for 2 rows if that does not
// fit shared memory.
func (q *queue) SampleKeys(l *gpu.Lease, key gpu.Column) (s gpu.KeySample, err error) {
	o := q.begin("sample", l)
	defer end(o, &s, &err)
	o.takes(key)
	if err := gpu.CheckSample(key); err != nil || o.err != nil || key.Len == 0 {
		return s, err
	}
	width := key.Type.Width()
	slots := min(2*min(key.Len, gpu.SampledKeys)+32, (q.dev.props.sharedPerBlock-1024)*8/(8*width+1)) &^ 31
	s.Rows = min(key.Len, gpu.SampledKeys, slots*2/3)
	found := make([]uint32, 2)
	to := o.alloc(8)
	launch(o, fmt.Sprintf("sample_keys_k%d", width), 1, 1024, slots*width+slots/8,
		sampleArgs{key: addr(key.Data), found: addr(to), mul: rand.Uint64() | 1, step: gpu.SampleStep(key.Len, s.Rows),
			sampled: uint32(s.Rows), slots: uint32(slots)})
	if o.read(to, 0, gpu.BytesOf(found)) {
		s.Keys, s.Once = int(found[0]), int(found[0]-found[1])
	}
	return s, nil
}
