package move

import "github.com/gstream/gstream/gpu"

// Sample counts the distinct keys of a sample of rows.
func Sample(key gpu.Column) gpu.KeySample {
	if key.Type.Width() == 4 {
		return sampleOf(gpu.Values[uint32](key.Data, key.Len))
	}
	return sampleOf(gpu.Values[uint64](key.Data, key.Len))
}

func sampleOf[K uint32 | uint64](keys []K) (s gpu.KeySample) {
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
