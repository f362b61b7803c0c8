package host

import "github.com/gstream/gstream/gpu"

// SampleKeys implements gpu.Queue.
func (q *queue) SampleKeys(_ *gpu.Lease, key gpu.Column) (s gpu.KeySample, err error) {
	if err := q.check([]gpu.Column{key}); err != nil {
		return s, err
	}
	if err := gpu.CheckSample(key); err != nil {
		return s, err
	}
	if key.Type.Width() == 4 {
		return sampleKeys(gpu.Values[uint32](key.Data, key.Len)), nil
	}
	return sampleKeys(gpu.Values[uint64](key.Data, key.Len)), nil
}

func sampleKeys[K uint32 | uint64](keys []K) (s gpu.KeySample) {
	s.Rows = min(len(keys), gpu.SampledKeys)
	seen := make(map[K]int, s.Rows)
	step := gpu.SampleStep(len(keys), s.Rows)
	for i := range s.Rows {
		k := keys[gpu.SampledRow(i, step)]
		seen[k]++
		switch seen[k] {
		case 1:
			s.Keys++
			s.Once++
		case 2:
			s.Once--
		}
	}
	return s
}
