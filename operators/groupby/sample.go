package groupby

// sampleUnseen is the share of rows, one in so many, that may have keys the sample lacks.
const sampleUnseen = 30

// sample counts the keys of a part of the first stride, when the planner says that they are too many for tables of
// blocks. There may be few of them in truth, or few that nearly all rows have. Once in a sample is about
// how often a key that it lacks comes next (Good, Biometrika 1953).
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
