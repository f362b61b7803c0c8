package parquet

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// maxDevicePartitions bounds the folders of an output whose rows a device divides: gpu.Queue.Partition has digits of 16
// bits. It is smaller in tests.
var maxDevicePartitions = 1 << 16

// errManyPartitions says that a device divides no more strides of the output.
var errManyPartitions = errors.New("too many partitions for a device")

// deviceSplitter divides strides in memory of a device among the partitions of a splitter. The device groups the rows
// by the columns of partition_by, and only the values of new groups are copied to the host, which numbers them. Then
// the device sorts the rows of some strides by partition, and the row groups of the partitions are ranges of the
// result. So its memory is free once all these row groups are encoded.
type deviceSplitter struct {
	encoder *deviceEncoder
	queue   gpu.PageEncoder
	groups  gpu.Groups
	parts   []int32        // the partition of each group
	pending []*destination // has the rows of the next row group of each partition that lie in memory of the device
	raw     []*gpu.Stride  // that are not divided yet, in order
	rows    int            // their rows
	bytes   int64          // and bytes
	sorted  int64          // bytes of divided strides of which rows wait for more of their row group

	// The Writer's lock guards these.
	waiting int64 // bytes and sorted
	busy    bool  // Write divides a stride
	off     bool  // the CPU divides all further strides
}

// splitterOf returns the splitter of the device in whose memory all columns of a stride lie; nil for none.
func (w *Writer) splitterOf(s *gpu.Stride) *deviceSplitter {
	if slices.ContainsFunc(s.Cols, isHost) {
		return nil
	}
	i := slices.Index(w.devices, w.encoderOf(s.Cols))
	if i < 0 {
		return nil
	}
	return w.split.devices[i]
}

// FromOneDevice reports whether an output with these options takes only rows of one device as they are: if it divides
// them among folders, and they have an order or files have a number of rows. Otherwise rows of several devices wait for
// row groups of their own.
func (o *Options) FromOneDevice(ordered bool) bool {
	return len(o.PartitionBy) > 0 && (ordered || o.RowsPerFile > 0)
}

// keepsAll is Keeps for an output with partition_by. The device divides all columns of a stride, or none. That takes
// the CPU much longer, so a stride waits for room as long as the device works. The caller holds the lock.
func (w *Writer) keepsAll(s *gpu.Stride) []bool {
	d := w.splitterOf(s)
	if d == nil || len(s.Cols) != w.split.width {
		return nil
	}
	for !d.encoder.fits(d.encoder.waiting(w.queue)+d.waiting, s) {
		if !d.busy && d.encoder.waiting(w.queue) == 0 || w.failure() != nil {
			return nil
		}
		w.wake.Wait()
	}
	if d.off {
		return nil
	}
	return slices.Repeat([]bool{true}, len(s.Cols))
}

// divideOnDevice is divide for a stride in memory of a device.
func (w *Writer) divideOnDevice(ctx context.Context, d *deviceSplitter, s *gpu.Stride) error {
	w.nowDividing(d, true)
	defer w.nowDividing(d, false)
	s = s.Retain()
	s.ChargeTo(d.encoder.lease)
	d.raw = append(d.raw, s)
	d.rows += s.Rows
	d.bytes += s.Bytes()
	w.nowDividing(d, true)
	if d.rows < pieceRows*len(d.parts) && d.bytes < grant.OutputOfGPU.Of(d.encoder.lease.Limit())/8 {
		return nil
	}
	return w.settleDevice(ctx, d)
}

// nowDividing tells Keeps how much waits in memory of the device, and whether Write works on that.
func (w *Writer) nowDividing(d *deviceSplitter, busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.waiting, d.busy = d.bytes+d.sorted, busy
	w.wake.Broadcast()
}

// settleDevice divides the strides that wait in memory of the device. If it has too little memory for that, or there
// are too many partitions, the CPU does.
func (w *Writer) settleDevice(ctx context.Context, d *deviceSplitter) error {
	if len(d.raw) == 0 {
		return nil
	}
	sorted, bounds, err := w.sortByPartition(d)
	if gpu.IsOutOfMemory(err) {
		if err := w.handDevice(ctx, d); err != nil {
			return err
		}
		if err := w.drain(ctx); err != nil {
			return err
		}
		sorted, bounds, err = w.sortByPartition(d)
	}
	if gpu.IsOutOfMemory(err) || errors.Is(err, errManyPartitions) {
		return w.settleBrought(ctx, d)
	}
	if err != nil {
		return err
	}
	defer sorted.Release()
	d.drop()
	d.sorted += sorted.Bytes()
	w.nowDividing(d, true)
	w.expectMore(true)
	defer w.expectMore(false)
	for _, part := range w.split.parts[len(d.pending):] {
		d.pending = append(d.pending, &destination{of: part})
	}
	for part := range len(bounds) - 1 {
		rows := keptRows{sorted, int(bounds[part]), int(bounds[part+1])}
		if err := w.collect(ctx, d.pending[part], rows); err != nil {
			return err
		}
	}
	if d.sorted > grant.OutputOfGPU.Of(d.encoder.lease.Limit())/4 {
		return w.handDevice(ctx, d)
	}
	return nil
}

// handDevice queues the rows of all partitions that wait in memory of a device.
func (w *Writer) handDevice(ctx context.Context, d *deviceSplitter) error {
	err := w.handAll(ctx, d.pending)
	d.sorted = 0
	w.nowDividing(d, d.busy)
	return err
}

// sortByPartition returns the columns of the files of the strides that wait in memory of the device, sorted by
// partition, the first row of each partition, and the end. Rows of a partition keep their order.
func (w *Writer) sortByPartition(d *deviceSplitter) (_ *gpu.Stride, bounds []int32, err error) {
	defer w.traced("partition on the device", time.Now())
	assigned, err := w.assignGroups(d)
	defer func() {
		for _, a := range assigned {
			a.Release()
		}
	}()
	if err != nil {
		return nil, nil, ofOutput(err)
	}
	keys, err := w.newKeys(d)
	if err != nil {
		return nil, nil, ofOutput(err)
	}
	if keys != nil {
		err = w.split.numberGroups(d, keys)
		keys.Release()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", w.out.named(), err)
	}
	groups := make([]gpu.Column, len(assigned))
	for i, a := range assigned {
		groups[i] = a.IDs()
	}
	out, bounds, err := w.sortGroups(d, groups)
	return out, bounds, ofOutput(err)
}

// assignGroups returns the groups of the rows of each stride.
func (w *Writer) assignGroups(d *deviceSplitter) (out []gpu.Assignment, err error) {
	p := w.split
	if err := w.openSplitter(d); err != nil {
		return nil, err
	}
	for _, s := range d.raw {
		keys := make([]gpu.Column, len(p.keys))
		for i, k := range p.keys {
			keys[i] = asBits(s.Cols[k.column])
		}
		a, err := d.groups.Assign(d.queue, d.encoder.lease, keys, s.Rows)
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

// sortGroups is sortByPartition for rows whose groups are known.
func (w *Writer) sortGroups(d *deviceSplitter, groups []gpu.Column) (_ *gpu.Stride, bounds []int32, err error) {
	p, l := w.split, d.encoder.lease
	var made []gpu.Column
	defer func() { gpu.ReleaseColumns(made) }()
	concat := func(parts []gpu.Column) (gpu.Column, error) {
		c, err := d.queue.Concat(l, parts)
		if err == nil {
			made = append(made, c)
		}
		return c, err
	}
	all, err := concat(groups)
	if err != nil {
		return nil, nil, err
	}
	numbers, err := w.upload(d, d.parts)
	if err != nil {
		return nil, nil, err
	}
	made = append(made, numbers)
	parts, err := d.queue.Gather(l, []gpu.Column{numbers}, all, false)
	if err != nil {
		return nil, nil, err
	}
	made = append(made, parts...)
	cols := make([]gpu.Column, len(p.kept))
	for k, i := range p.kept {
		var of []gpu.Column
		for _, s := range d.raw {
			of = append(of, s.Cols[i])
		}
		if cols[k], err = concat(of); err != nil {
			return nil, nil, err
		}
	}
	digit := gpu.Digit{Bits: max(1, uint(bits.Len(uint(len(p.parts)-1))))}
	sorted, offsets, err := d.queue.Partition(l, cols, parts[0], digit)
	if err != nil {
		return nil, nil, err
	}
	out := &gpu.Stride{Schema: p.schema, Cols: sorted, Rows: d.rows}
	if bounds, err = w.downloadOffsets(d, offsets); err != nil {
		out.Release()
		return nil, nil, err
	}
	return out, bounds[:len(p.parts)+1], nil
}

// openSplitter makes the queue and the groups, once the device has started.
func (w *Writer) openSplitter(d *deviceSplitter) (err error) {
	if d.queue == nil {
		if d.queue, err = d.encoder.open(); err != nil {
			return err
		}
	}
	if d.groups == nil {
		types := make([]gpu.Type, len(w.split.keys))
		for i, k := range w.split.keys {
			types[i] = bitsOf(k.field.Type)
		}
		d.groups, err = d.queue.NewGroups(d.encoder.lease, types, gpu.GroupHint{})
	}
	return err
}

// bitsOf returns the type as which a key is grouped: a folder has the text of a float, by which -0 and 0 differ.
func bitsOf(t gpu.Type) gpu.Type {
	switch t.Kind {
	case gpu.Float32:
		return gpu.Of(gpu.Uint32)
	case gpu.Float64:
		return gpu.Of(gpu.Uint64)
	}
	return t
}

// asBits returns a column in the type bitsOf its own.
func asBits(c gpu.Column) gpu.Column {
	if c.Dict != nil {
		values := *c.Dict
		values.Values = asBits(values.Values)
		c.Dict = &values
	}
	c.Type = bitsOf(c.Type)
	return c
}

// newKeys copies the keys of the groups without a partition to the host. It returns nil if there are none.
func (w *Writer) newKeys(d *deviceSplitter) (*gpu.Stride, error) {
	p := w.split
	from, to := len(d.parts), d.groups.Len()
	if from == to {
		return nil, nil
	}
	keys, err := d.groups.Keys(d.queue, d.encoder.lease, from, to)
	if err != nil {
		return nil, err
	}
	s := &gpu.Stride{Schema: &gpu.Schema{}, Cols: keys, Rows: to - from}
	for _, k := range p.keys {
		s.Schema.Fields = append(s.Schema.Fields,
			gpu.Field{Name: k.name, Type: bitsOf(k.field.Type), Nullable: k.field.Nullable})
	}
	down, err := d.queue.Download(w.opt.Lease, s)
	if err != nil {
		s.Release()
	}
	return down, err
}

// numberGroups finds the partitions of new groups by their keys.
func (p *splitter) numberGroups(d *deviceSplitter, keys *gpu.Stride) error {
	s := &gpu.Stride{Cols: make([]gpu.Column, p.width), Rows: keys.Rows}
	for i, k := range p.keys {
		s.Cols[k.column] = keys.Cols[i]
		s.Cols[k.column].Type = k.field.Type
	}
	numbers, err := p.partitionsOf(s)
	if err != nil {
		return err
	}
	if len(p.parts) > maxDevicePartitions {
		return errManyPartitions
	}
	for _, n := range numbers {
		d.parts = append(d.parts, int32(n))
	}
	return nil
}

// upload copies numbers to the device.
func (w *Writer) upload(d *deviceSplitter, numbers []int32) (gpu.Column, error) {
	data, err := w.opt.Lease.Alloc(4 * int64(len(numbers)))
	if err != nil {
		return gpu.Column{}, err
	}
	copy(gpu.Values[int32](data, len(numbers)), numbers)
	t := gpu.Of(gpu.Int32)
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "partition", Type: t}), Rows: len(numbers),
		Cols: []gpu.Column{{Type: t, Len: len(numbers), Data: data}}}
	up, err := d.queue.Upload(d.encoder.lease, s)
	if err != nil {
		s.Release()
		return gpu.Column{}, err
	}
	return up.Cols[0], nil
}

// downloadOffsets copies a column of offsets to the host, and takes it over.
func (w *Writer) downloadOffsets(d *deviceSplitter, c gpu.Column) ([]int32, error) {
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "first row", Type: c.Type}), Cols: []gpu.Column{c},
		Rows: c.Len}
	down, err := d.queue.Download(w.opt.Lease, s)
	if err != nil {
		s.Release()
		return nil, err
	}
	defer down.Release()
	return slices.Clone(gpu.Values[int32](down.Cols[0].Data, c.Len)), nil
}

// settleBrought copies the strides that wait in memory of the device to the host, and divides them there.
func (w *Writer) settleBrought(ctx context.Context, d *deviceSplitter) error {
	if err := w.handDevice(ctx, d); err != nil { // these rows come first
		return err
	}
	w.split.last = nil
	if len(w.split.parts) > maxDevicePartitions {
		w.mu.Lock()
		d.off = true
		w.mu.Unlock()
	}
	for len(d.raw) > 0 {
		s := d.raw[0]
		for i, c := range s.Cols {
			if isHost(c) {
				continue
			}
			if err := w.patiently(ctx, func() (err error) {
				s.Cols[i], err = w.bringColumn(d.queue, c.Retain())
				return err
			}); err != nil {
				s.Cols[i] = c
				return ofOutput(err)
			}
			c.Release()
		}
		d.raw = d.raw[1:]
		d.rows -= s.Rows
		err := w.divideOnHost(ctx, s)
		s.Release()
		if err != nil {
			return err
		}
	}
	d.bytes = 0
	w.nowDividing(d, d.busy)
	return w.settle(ctx)
}

// drop releases the strides that are not divided yet.
func (d *deviceSplitter) drop() {
	for _, s := range d.raw {
		s.Release()
	}
	d.raw, d.rows, d.bytes = nil, 0, 0
}

// close releases what the splitter has. It may be called again.
func (d *deviceSplitter) close() (err error) {
	d.drop()
	if d.groups != nil {
		d.groups.Release()
		d.groups = nil
	}
	if d.queue != nil {
		err = d.queue.Close()
		d.queue = nil
	}
	return err
}
