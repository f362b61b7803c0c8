package groupby

// sampleUnseen is the share of rows whose keys the sample may lack: one in sampleUnseen.
const sampleUnseen = 30

// sample counts the keys of a part of the first stride, when the planner estimates too many for tables of blocks. In
// truth there may be few keys, or few that nearly all rows have. The share of keys that occur once in the sample
// estimates the share of further rows whose keys the sample lacks (Good, Biometrika 1953).
func (l *local) sample(by key) error {
	l.keysSampled.Store(true)
	t := l.task
	s, err := t.Queue.SampleKeys(t.Lease, by.Column)
	if err != nil {
		return err
	}
	switch {
	case s.Keys > l.blockSlots(t.Device.Properties(), by.bytes, false)/2 || s.Once > s.Rows/sampleUnseen:
	case s.Once == 0:
		l.expect.Store(int64(s.Keys))
	default:
		l.skewed.Store(true)
		l.expect.Store(int64(min(l.expected(), s.Keys+s.Once*(by.Len/s.Rows))))
	}
	return nil
}
