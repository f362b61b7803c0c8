package gpu

import (
	"errors"
	"fmt"
	"slices"
)

// CheckMemory returns an error if a device cannot work on the columns. Their buffers must belong to
// its Budget. If that budget is host memory, any buffer that the host can address is accepted. It
// costs a comparison per buffer.
func CheckMemory(d Device, cols []Column) error {
	budget, host := d.Budget(), d.HostBudget()
	for i, c := range cols {
		if b := c.foreign(func(b *Buffer) bool { return b.of(budget, host) }); b != nil {
			return fmt.Errorf("column %d of %v is %s, not memory of this device (%s)", i, c.Type, b.owner(),
				d.Properties().Name)
		}
	}
	return nil
}

// CheckHostMemory returns an error if columns cannot be copied through the host. The host must be
// able to address their buffers, or the buffers must belong to the budget of a device that copies
// them to the host.
func CheckHostMemory(cols []Column, device *Budget) error {
	var fine func(b *Buffer) bool
	fine = func(b *Buffer) bool {
		for _, p := range b.pieces {
			if p.Size() > 0 && !fine(p) {
				return false
			}
		}
		whole, _ := b.Whole()
		return b.pieces != nil || b.mem != nil || whole.lease != nil && whole.lease.budget == device
	}
	for i, c := range cols {
		if b := c.foreign(fine); b != nil {
			return fmt.Errorf("column %d of %v is %s, which the host cannot address: bring it down by a queue "+
				"of its device", i, c.Type, b.owner())
		}
	}
	return nil
}

// Residence returns the budget of the device in whose memory columns are, nil if the host can address all of them. Of
// columns in the memory of several devices it returns one.
func Residence(cols []Column) (home *Budget) {
	for _, c := range cols {
		c.foreign(func(b *Buffer) bool {
			for b.whole != nil {
				b = b.whole
			}
			if b.pieces == nil && b.mem == nil && b.lease != nil {
				home = b.lease.budget
			}
			return true
		})
	}
	return home
}

// CheckBounds returns an error if columns cannot be cut at bounds: see Queue.Cut.
func CheckBounds(cols []Column, bounds []int) error {
	n := len(bounds)
	if n < 2 || bounds[0] < 0 || !slices.IsSorted(bounds) {
		return fmt.Errorf("cut at %v, which are not the bounds of parts", bounds)
	}
	for _, c := range cols {
		if bounds[n-1] > c.Len {
			return fmt.Errorf("cut up to row %d of a column of %d rows", bounds[n-1], c.Len)
		}
	}
	return nil
}

// CheckLists returns an error if columns are not lists or maps with some rows: see Queue.Unnest.
func CheckLists(lists []Column, from, to int) error {
	if len(lists) == 0 {
		return errors.New("elements of no lists")
	}
	for _, c := range lists {
		if c.Type.Kind != List && c.Type.Kind != Map {
			return fmt.Errorf("elements of a %v, not of a LIST", c.Type)
		}
		if from < 0 || from > to || to > c.Len {
			return fmt.Errorf("elements of rows [%d, %d) of a column of %d rows", from, to, c.Len)
		}
	}
	return nil
}

// foreign returns the first non-empty buffer of a column that is not fine, or nil. A column without
// rows is never read, so all its buffers are fine.
func (c Column) foreign(fine func(*Buffer) bool) *Buffer {
	if c.Len == 0 {
		return nil
	}
	for _, b := range [...]*Buffer{c.Data, c.Offsets, c.Valid} {
		if b.Size() > 0 && !fine(b) {
			return b
		}
	}
	if c.Dict != nil {
		return c.Dict.Values.foreign(fine)
	}
	return nil
}

// of reports whether the buffer belongs to the device with these budgets.
func (b *Buffer) of(device, host *Budget) bool {
	if b.whole != nil {
		return b.whole.of(device, host)
	}
	if device == host {
		return b.mem != nil
	}
	return b.lease != nil && b.lease.budget == device
}

// owner describes whose memory the buffer is, for errors.
func (b *Buffer) owner() string {
	if b.lease == nil {
		return "memory of the Go heap"
	}
	return fmt.Sprintf("%s memory of %q", b.lease.budget.tier, b.lease.name)
}

// ErrOtherDevice returns the error for state that was made on one device and is used with a queue
// of another.
func ErrOtherDevice(made, used Device) error {
	return fmt.Errorf("what was made on one device (%s) is used with a queue of another (%s)", made.Properties().Name,
		used.Properties().Name)
}

// KeyColumns returns the columns of sort keys.
func KeyColumns(keys []SortKey) []Column {
	cols := make([]Column, len(keys))
	for i, k := range keys {
		cols[i] = k.Column
	}
	return cols
}

// CheckSort returns an error if rows cannot be sorted: no key, lengths that differ, more than
// MaxRows rows.
func CheckSort(keys []SortKey) error {
	if len(keys) == 0 {
		return fmt.Errorf("sort wants at least one key")
	}
	n := keys[0].Column.Len
	if n > MaxRows {
		return TooManyRows(n)
	}
	for _, k := range keys {
		if k.Column.Len != n {
			return fmt.Errorf("sort keys of %d and %d rows", n, k.Column.Len)
		}
	}
	return nil
}

// CheckMerge returns an error if MatchSorted cannot match two sides: no key, different numbers of
// keys or null rules, keys that differ in type or order, and the errors of CheckKeys.
func CheckMerge(build, probe []SortKey, nullSafe []bool) error {
	if len(build) == 0 || len(probe) != len(build) || len(nullSafe) != len(build) {
		return fmt.Errorf("match of %d build keys, %d probe keys and %d rules for nulls", len(build), len(probe),
			len(nullSafe))
	}
	for k, b := range build {
		p := probe[k]
		if b.Column.Type != p.Column.Type {
			return fmt.Errorf("match of key %d of %v with %v", k, b.Column.Type, p.Column.Type)
		}
		if b.Descending != p.Descending || b.NullsFirst != p.NullsFirst {
			return fmt.Errorf("match of sides that are sorted differently by key %d", k)
		}
	}
	for _, side := range [][]SortKey{build, probe} {
		if err := CheckKeys(KeyColumns(side)); err != nil {
			return err
		}
	}
	return nil
}

// MaxRangeRows is the greatest number of probe rows of MatchRange.
const MaxRangeRows = 1 << 30

// CheckRange returns an error if MatchRange cannot match a build side with bounds: no bound, bounds
// of another type or of different lengths, more than MaxRangeRows bounds, and the errors of
// CheckKeys.
func CheckRange(build Column, lower, upper *Bound) error {
	bounds := BoundColumns(lower, upper)
	if len(bounds) == 0 {
		return fmt.Errorf("match of a range without bounds")
	}
	for _, b := range bounds {
		if b.Type != build.Type {
			return fmt.Errorf("match of keys of %v with a bound of %v", build.Type, b.Type)
		}
	}
	if err := CheckKeys([]Column{build}); err != nil {
		return err
	}
	if err := CheckKeys(bounds); err != nil {
		return err
	}
	if bounds[0].Len > MaxRangeRows {
		return Exceeded("match of ranges of %d rows: at most %d can be matched at once", bounds[0].Len, MaxRangeRows)
	}
	return nil
}

// BoundColumns returns the columns of the bounds that are not nil.
func BoundColumns(bounds ...*Bound) (cols []Column) {
	for _, b := range bounds {
		if b != nil {
			cols = append(cols, b.Column)
		}
	}
	return cols
}

// CheckKeys returns an error if rows cannot be compared by the key columns: no column, lengths that
// differ, a dictionary of another type than strings, more than MaxRows rows.
func CheckKeys(keys []Column) error {
	if len(keys) == 0 {
		return fmt.Errorf("no key columns to compare rows by")
	}
	for _, c := range keys {
		if c.Len != keys[0].Len {
			return fmt.Errorf("key columns of %d and %d rows", keys[0].Len, c.Len)
		}
		if c.Dict != nil && !c.Type.IsVar() {
			return fmt.Errorf("keys in a dictionary of %v: only strings are dictionary-coded", c.Type)
		}
	}
	if keys[0].Len > MaxRows {
		return TooManyRows(keys[0].Len)
	}
	return nil
}

// CheckGroups returns an error unless groups [from, to) are among the first n. what names the
// requested values.
func CheckGroups(what string, from, to, n int) error {
	if from < 0 || from > to || to > n {
		return fmt.Errorf("%s of groups [%d, %d) of %d", what, from, to, n)
	}
	return nil
}

// CheckScatter returns an error if columns cannot be scattered by ids to n rows: lengths that
// differ from the number of ids, or n outside [0, MaxRows].
func CheckScatter(cols []Column, ids Column, n int) error {
	for _, c := range cols {
		if c.Len != ids.Len {
			return fmt.Errorf("scatter of a column of %d rows by %d ids", c.Len, ids.Len)
		}
	}
	if n < 0 || n > MaxRows {
		return fmt.Errorf("scatter to %d rows: want 0 to %d", n, MaxRows)
	}
	return nil
}

// CheckSetBits returns an error if Queue.SetBits cannot set bits of a column at ids.
func CheckSetBits(bitmap, ids Column) error {
	if bitmap.Type.Kind != Bool || bitmap.Valid != nil || bitmap.Dict != nil {
		return fmt.Errorf("set bits of a column of %v: want a plain BOOLEAN column without nulls", bitmap.Type)
	}
	return CheckIDs(ids)
}

// CheckBitmapRows returns an error if Queue.NewBitmap cannot make a bitmap of n rows.
func CheckBitmapRows(n int) error {
	if n < 0 || n > MaxRows {
		return fmt.Errorf("bitmap of %d rows: want 0 to %d", n, MaxRows)
	}
	return nil
}

// CheckIDs returns an error if a column cannot be used as row ids.
func CheckIDs(ids Column) error {
	if ids.Type.Kind != Int32 || ids.Valid != nil || ids.Dict != nil {
		return fmt.Errorf("row ids must be a plain INTEGER column without nulls, not %v", ids.Type)
	}
	return nil
}

// CheckUnmatched returns an error if rows cannot be added to pairs.
func CheckUnmatched(probe, build, rest Column) error {
	for _, ids := range []Column{probe, build, rest} {
		if err := CheckIDs(ids); err != nil {
			return err
		}
	}
	if probe.Len != build.Len {
		return fmt.Errorf("pairs of %d probe rows and %d build rows", probe.Len, build.Len)
	}
	if n := int64(probe.Len) + int64(rest.Len); n > MaxRows {
		return Exceeded("%d pairs and rows without a match are more than the %d that row ids can address", n, MaxRows)
	}
	return nil
}

// CheckRanges returns an error if columns cannot be the bounds of ranges of rows: they are not row
// ids, or their lengths differ.
func CheckRanges(from, to Column) error {
	for _, c := range []Column{from, to} {
		if err := CheckIDs(c); err != nil {
			return err
		}
	}
	if from.Len != to.Len {
		return fmt.Errorf("ranges with %d first rows and %d ends", from.Len, to.Len)
	}
	return nil
}

// CheckFold returns an error if ranges of values cannot be folded: an aggregate that Fold does not
// have or that is not defined on its input, values of another type, more than MaxRows values, and
// the errors of CheckRanges.
func CheckFold(a Aggregate, values, from, to Column) error {
	t, defined, want := a.Input, false, a.Input
	switch a.Kind {
	case Count:
		defined, want = true, Of(Int64)
	case Sum:
		if defined = t.IsNumeric(); defined {
			want = SumType(t)
		}
	case Product:
		defined = t.Kind == Float64
	case BitAnd, BitOr, BitXor:
		defined = t.IsInteger()
	}
	switch {
	case !defined:
		return fmt.Errorf("%v of ranges is not defined on %v", a.Kind, t)
	case a.Output != want:
		return fmt.Errorf("%v of %v is %v, not %v", a.Kind, t, want, a.Output)
	case values.Type != t:
		return fmt.Errorf("%v of %v, planned for %v", a.Kind, values.Type, t)
	case values.Len > MaxRows:
		return TooManyRows(values.Len)
	case values.Dict != nil && !t.IsVar():
		return fmt.Errorf("values in a dictionary of %v: only strings are dictionary-coded", t)
	}
	return CheckRanges(from, to)
}

// CheckExtreme returns an error if the extreme rows of ranges of a key cannot be found.
func CheckExtreme(key SortKey, from, to Column) error {
	if err := CheckKeys([]Column{key.Column}); err != nil {
		return err
	}
	return CheckRanges(from, to)
}

// CheckSearch returns an error if ranges of a key cannot be searched for bounds.
func CheckSearch(key SortKey, bound, from, to Column) error {
	if bound.Type != key.Column.Type {
		return fmt.Errorf("search of keys of %v for bounds of %v", key.Column.Type, bound.Type)
	}
	if bound.Len != from.Len {
		return fmt.Errorf("search of %d ranges for %d bounds", from.Len, bound.Len)
	}
	if err := CheckKeys([]Column{bound}); err != nil {
		return err
	}
	return CheckExtreme(key, from, to)
}

// ErrManyGroups says that AggregatePartitions found more groups than the tables of the device can
// hold. With more partitions, each may have fewer groups.
var ErrManyGroups = errors.New("more groups than fit the fast memory of the device")

// ErrUnfit says that AggregatePartitions cannot add the values, or that NewPacking cannot pack the
// keys. Queue.NewGroups and accumulators accept them. Errors that wrap it say why; see Unfit.
var ErrUnfit = errors.New("values of another form")

// Unfit returns an error that wraps ErrUnfit and says why.
func Unfit(format string, args ...any) error { return &unfit{fmt.Sprintf(format, args...)} }

type unfit struct{ why string }

func (e *unfit) Error() string { return e.why }

func (e *unfit) Unwrap() error { return ErrUnfit }

// checkKey returns an error unless a column can be the key of an aggregation.
func (c Column) checkKey(what string) error {
	if !c.partitions() || c.Valid != nil {
		return fmt.Errorf("%s a key of %v: want plain integers, decimals, dates or times of 4 or 8 bytes without nulls",
			what, c.Type)
	}
	return nil
}

// CheckSample returns an error if SampleKeys cannot sample a key: it is coded or a float, has
// nulls, or does not have 4 or 8 bytes.
func CheckSample(key Column) error { return key.checkKey("sample of") }

// CheckAggregation returns an error if AggregatePartitions cannot aggregate: a key that is coded, a
// float, not of 4 or 8 bytes, or has nulls; more than MaxRows rows; wrong numbers of columns, or
// lengths that differ; an aggregate that CanAggregate excludes; values with a dictionary, unless
// they are counted; offsets that are not Int32 without nulls; rows in chains of buckets.
func CheckAggregation(rows Partitioned, list []Aggregate, values []Column) error {
	k := rows.Key
	if err := k.checkKey("aggregation by"); err != nil {
		return err
	}
	switch {
	case k.Len > MaxRows:
		return TooManyRows(k.Len)
	case len(list) != len(values):
		return fmt.Errorf("%d aggregates of %d columns", len(list), len(values))
	case rows.Chain.Len > 0:
		return errors.New("aggregation of rows in buckets")
	case rows.Offsets.Len == 1:
		return errors.New("aggregation by 1 offset")
	case rows.Ends.Len > 0 && rows.Ends.Len+1 != rows.Offsets.Len:
		return fmt.Errorf("aggregation by %d offsets and %d ends", rows.Offsets.Len, rows.Ends.Len)
	}
	if rows.Ends.Len > 0 {
		if err := CheckIDs(rows.Ends); err != nil {
			return fmt.Errorf("aggregation by ends: %w", err)
		}
	}
	if rows.Offsets.Len > 0 {
		if err := CheckIDs(rows.Offsets); err != nil {
			return fmt.Errorf("aggregation by offsets: %w", err)
		}
	}
	for i, a := range list {
		if err := CanAggregate(a); err != nil {
			return err
		}
		if v := values[i]; a.Kind != CountAll && (v.Len != k.Len ||
			a.Kind != Count && (v.Type != a.Input || v.Dict != nil)) {
			return fmt.Errorf("%v of a column of %d values of %v: want %d plain values of %v", a.Kind, v.Len, v.Type,
				k.Len, a.Input)
		}
	}
	return nil
}

// CanAggregate returns an error if AggregatePartitions does not have an aggregate. It has counts;
// sums of numbers; minima and maxima of integers, decimals, dates, times and floats of at most 8
// bytes. The sum of floats is a DOUBLE; that of integers and decimals is a HUGEINT, or a decimal of
// 38 digits if the values have at most 8 bytes.
func CanAggregate(a Aggregate) error {
	t := a.Input
	switch a.Kind {
	case CountAll, Count:
		return nil
	case Min, Max:
		if w := t.Width(); w > 0 && w <= 8 {
			return nil
		}
	case Sum:
		if !t.IsNumeric() {
			break
		}
		if t.IsFloat() && a.Output == Of(Float64) || !t.IsFloat() && a.Output.Wide &&
			(!t.Wide || a.Output == Of(HugeInt)) {
			return nil
		}
	}
	return fmt.Errorf("aggregation by %v of %v", a.Kind, a.Input)
}

// CheckArgMinMax returns an error if the state of an ArgMinMax cannot be kept: the first column must be a
// BIGINT, and each key must have a column.
func CheckArgMinMax(l ArgMinMax) error {
	switch {
	case len(l.Columns) == 0 || l.Columns[0] != Of(Int64):
		return fmt.Errorf("arg_min of columns %v: want a BIGINT, the position, before them", l.Columns)
	case len(l.Columns) <= len(l.Order):
		return fmt.Errorf("arg_min by %d keys with %d columns", len(l.Order), len(l.Columns))
	}
	return nil
}

// CheckArgMinMaxInput returns an error unless columns are those of an ArgMinMax, with n rows.
func CheckArgMinMaxInput(l ArgMinMax, cols []Column, n int) error {
	if len(cols) != len(l.Columns) {
		return fmt.Errorf("arg_min of %d columns, planned for %d", len(cols), len(l.Columns))
	}
	for i, c := range cols {
		if c.Type != l.Columns[i] || c.Len != n {
			return fmt.Errorf("arg_min of %d rows of %v, planned for %v over %d rows", c.Len, c.Type, l.Columns[i], n)
		}
	}
	return nil
}
