package join

import "github.com/gstream/gstream/gpu"

// owner is a matcher that owns columns, and releases them with itself.
type owner struct {
	gpu.Matcher
	cols []gpu.Column
}

func (m owner) Release() {
	m.Matcher.Release()
	gpu.ReleaseColumns(m.cols)
}

// mapped turns a matcher of reordered rows into a matcher of the original rows, so that payloads
// can be gathered from the original sides. probe and build, which are borrowed, have the original
// row of each reordered row. rows is the number of original probe rows.
type mapped struct {
	gpu.Matcher
	probe, build gpu.Column
	rows         int
	// kept has pairs that a call has found, but had no memory to gather columns for. The next call
	// returns them.
	kept *pairs
	more bool
}

// Next implements gpu.Matcher.
func (m *mapped) Next(q gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	p, more, err := m.next(q, l, limit)
	m.kept = nil
	return p.probe, p.build, more, err
}

func (m *mapped) next(q gpu.Queue, l *gpu.Lease, limit int) (pairs, bool, error) {
	if m.kept != nil {
		return *m.kept, m.more, nil
	}
	ids, _, more, err := m.Matcher.Join(q, l, []gpu.Column{m.probe}, []gpu.Column{m.build}, limit)
	if err != nil {
		return pairs{}, false, err
	}
	return pairs{ids[0], ids[1]}, more, nil
}

// Join implements gpu.Matcher.
func (m *mapped) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) (cols []gpu.Column, rows int, more bool, err error) {
	p, more, err := m.next(q, l, limit)
	if err != nil {
		return nil, 0, false, err
	}
	m.kept, m.more = &p, more
	if cols, err = q.Gather(l, probe, p.probe, false); err != nil {
		return nil, 0, false, err
	}
	matches, err := q.Gather(l, build, p.build, false)
	if err != nil {
		gpu.ReleaseColumns(cols)
		return nil, 0, false, err
	}
	m.kept = nil
	rows = p.probe.Len
	p.release()
	return append(cols, matches...), rows, more, nil
}

// Matched implements gpu.Matcher.
func (m *mapped) Matched(q gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	found, err := m.Matcher.Matched(q, l)
	if err != nil {
		return gpu.Column{}, err
	}
	defer found.Release()
	at, err := q.Select(l, found, true)
	if err != nil {
		return gpu.Column{}, err
	}
	defer at.Release()
	rows, err := q.Gather(l, []gpu.Column{m.probe}, at, false)
	if err != nil {
		return gpu.Column{}, err
	}
	defer gpu.ReleaseColumns(rows)
	return bitmapOf(q, l, m.rows, rows[0])
}

// bitmapOf returns a bitmap of n rows in which those at ids are set.
func bitmapOf(q gpu.Queue, l *gpu.Lease, n int, ids gpu.Column) (gpu.Column, error) {
	bits, err := q.NewBitmap(l, n)
	if err != nil {
		return gpu.Column{}, err
	}
	if err := q.SetBits(l, bits, ids); err != nil {
		bits.Release()
		return gpu.Column{}, err
	}
	return bits, nil
}

// Release implements gpu.Matcher.
func (m *mapped) Release() {
	if m.kept != nil {
		m.kept.release()
	}
	m.Matcher.Release()
}
