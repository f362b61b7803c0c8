package parquet

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/sink"
)

// deviceTasks is the number of tasks that a device works on at a time. While one is encoded, the host makes the tables
// of the next one and takes the results of the last one.
const deviceTasks = 3

// deviceEncoder encodes columns of row groups on a device. A nil one does not.
type deviceEncoder struct {
	device  gpu.Device
	lease   *gpu.Lease        // of memory of the device
	pending destination       // has the rows of its next row group, if row groups come in any order; Write owns it
	working int               // tasks; the Writer's lock guards it
	queues  []gpu.PageEncoder // that no task uses; the Writer's lock guards them too
}

// newDeviceEncoders returns the encoders for an output, or none if devices do not encode such outputs, and why.
func newDeviceEncoders(opt Options) (list []*deviceEncoder, forCPU string) {
	for _, d := range opt.Devices {
		if !d.Device.Known().EncodePages {
			continue
		}
		if _, forCPU = opt.deviceCodec(); forCPU != "" {
			return nil, forCPU
		}
		list = append(list, &deviceEncoder{device: d.Device, lease: d.Lease})
	}
	return list, ""
}

// encoderOf returns the device in whose memory columns lie, the first ones that are not in host memory; nil for none.
func (w *Writer) encoderOf(cols []gpu.Column) *deviceEncoder {
	for _, c := range cols {
		if isHost(c) {
			continue
		}
		one := []gpu.Column{c}
		i := slices.IndexFunc(w.devices, func(d *deviceEncoder) bool { return gpu.CheckMemory(d.device, one) == nil })
		if i >= 0 {
			return w.devices[i]
		}
	}
	return nil
}

// EncodedByDevice reports for each column of a result whether devices with the capability EncodePages encode it in an
// output with these options.
func (o *Options) EncodedByDevice(result *gpu.Schema) []bool {
	out := make([]bool, result.Len())
	_, forCPU := o.deviceCodec()
	for i, f := range result.Fields {
		out[i] = forCPU == "" && gpu.Encodes(f.Type)
	}
	return out
}

// mostDeviceLevel is the highest level of ZSTD whose pages are about as small as those of a device. The CPU makes the
// smaller pages of higher levels.
const mostDeviceLevel = 5

// deviceCodec returns the codec with which a device compresses pages. If only the CPU compresses them so, forCPU says
// why.
func (o *Options) deviceCodec() (codec gpu.PageCodec, forCPU string) {
	switch o.Compression {
	case "none":
		return gpu.PageUncompressed, ""
	case "", "snappy":
		return gpu.PageSnappy, ""
	case "lz4_raw":
		return gpu.PageLZ4, ""
	case "zstd":
		if o.Level > mostDeviceLevel {
			return codec, fmt.Sprintf("a device compresses as level %d of ZSTD at most, and the output is for level %d",
				mostDeviceLevel, o.Level)
		}
		return gpu.PageZstd, ""
	}
	return codec, "a device does not compress with " + o.Compression
}

// open returns a new queue. It waits until the device has started, so outputs begin without queues.
func (d *deviceEncoder) open() (gpu.PageEncoder, error) {
	q, err := d.device.NewQueue("output")
	if err != nil {
		return nil, err
	}
	p, ok := q.(gpu.PageEncoder)
	if !ok {
		return nil, errors.Join(errors.New("internal error: a device encodes pages, and its queues do not"), q.Close())
	}
	return p, nil
}

// queueOf returns a queue of a device that no task uses. The caller gives it back to keepQueue.
func (w *Writer) queueOf(d *deviceEncoder) (q gpu.PageEncoder, err error) {
	w.mu.Lock()
	if n := len(d.queues); n > 0 {
		q, d.queues = d.queues[n-1], d.queues[:n-1]
	}
	w.mu.Unlock()
	if q == nil {
		q, err = d.open()
	}
	return q, w.on(d, err)
}

// on adds the device to an error, if there are several. Errors of memory say where it is short.
func (w *Writer) on(d *deviceEncoder, err error) error {
	if err == nil || gpu.IsOutOfMemory(err) || len(w.devices) < 2 {
		return err
	}
	return fmt.Errorf("%s: %w", d.device.Known().ID, err)
}

// keepQueue keeps a queue for the tasks that follow.
func (w *Writer) keepQueue(d *deviceEncoder, q gpu.PageEncoder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.queues = append(d.queues, q)
}

// close releases what the encoder has, after the last task. It may be called again.
func (d *deviceEncoder) close() (err error) {
	for _, q := range d.queues {
		err = errors.Join(err, q.Close())
	}
	d.queues = nil
	return err
}

var _ sink.Encoder = (*Writer)(nil)

// Keeps implements sink.Encoder. Row groups wait in memory of the device up to a part of its budget; the columns of
// later strides are for the CPU.
func (w *Writer) Keeps(s *gpu.Stride) []bool {
	if len(w.devices) == 0 {
		return nil
	}
	d := w.encoderOf(s.Cols)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.split != nil {
		return w.keepsAll(s)
	}
	if d == nil || !d.fits(d.waiting(w.queue), s) {
		return nil
	}
	if len(s.Cols) != len(w.columns) {
		return nil
	}
	var keep []bool
	for i, c := range s.Cols {
		if !isHost(c) && w.columns[i].encodedByDevice(c.Dict != nil) {
			if keep == nil {
				keep = make([]bool, len(s.Cols))
			}
			keep[i] = true
		}
	}
	return keep
}

// fits reports whether a stride may wait for the device together with as many bytes.
func (d *deviceEncoder) fits(waiting int64, s *gpu.Stride) bool {
	limit := d.lease.Limit()
	return waiting+s.Bytes() <= grant.OutputOfGPU.Of(limit) && d.lease.Available() >= limit/4
}

// waiting returns the bytes of the row groups that wait for the device, or that it encodes.
func (d *deviceEncoder) waiting(queue []*group) (n int64) {
	for _, g := range queue {
		if g.onGPU && g.encoder == d {
			n += g.bytes
		}
	}
	return n
}

// room reports whether one more row group may wait for the device. They may have half of what Keeps lets wait in its
// memory, because there are others before Write. A nil encoder has none.
func (d *deviceEncoder) room(queue []*group, g *group) bool {
	return d == nil || !g.onGPU || d.waiting(queue)+g.bytes <= grant.OutputOfGPU.Of(d.lease.Limit())/2
}

// expectMore says that more row groups are about to be queued, so that the device takes them together, or that the last
// one has been.
func (w *Writer) expectMore(more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.more = more; !more {
		w.wakeWorkers()
	}
}

// encodedByDevice reports whether devices encode the column, with a dictionary or without one.
func (c *column) encodedByDevice(coded bool) bool {
	return gpu.Encodes(c.field.Type) && (!coded || c.field.Type.IsVar())
}

func isHost(c gpu.Column) bool { return gpu.CheckHostMemory([]gpu.Column{c}, nil) == nil }

// onDevice returns the columns of the row group, of n, that lie in memory of a device, even if only some rows do.
func (g *group) onDevice(n int) (out []int) {
	for i := range n {
		if slices.ContainsFunc(g.kept, func(p keptRows) bool { return !isHost(p.stride.Cols[i]) }) {
			out = append(out, i)
		}
	}
	return out
}

// workOnDevice encodes the columns of a row group, and of the next ones that wait for the device, as many as there is
// memory for. The caller holds the lock, which is released meanwhile.
func (w *Writer) workOnDevice(first *group) {
	d := first.encoder
	groups, bytes := []*group{first}, first.bytes
	room := min(grant.OutputOfGPU.Of(d.lease.Limit())/4, d.lease.Available()/8)
	w.tasks = slices.DeleteFunc(w.tasks, func(t task) bool {
		if !t.device || t.group.encoder != d || bytes+t.group.bytes > room {
			return false
		}
		bytes += t.group.bytes
		groups = append(groups, t.group)
		return true
	})
	d.working++
	w.mu.Unlock()
	q, err := w.queueOf(d)
	if err != nil {
		w.fail(ofOutput(err))
	}
	done := w.encodeOnDevice(q, groups)
	w.mu.Lock()
	d.working--
	if q != nil {
		d.queues = append(d.queues, q)
	}
	for _, g := range groups {
		g.onGPU = false
	}
	w.wake.Broadcast() // there may be room
	for _, r := range done {
		if r.chunk == nil && r.err == nil {
			w.tasks = append(w.tasks, task{chunk: chunk{r.group, r.column}})
			continue
		}
		w.encoded(r.group, r.column, r.chunk, r.err)
	}
	w.wakeWorkers()
}

// deviceResult is a column that a device has encoded or, without a chunk and an error, that was copied to the host.
type deviceResult struct {
	group  *group
	column int
	chunk  *encodedChunk
	err    error
}

// encodeOnDevice encodes all columns of row groups that lie in memory of a device. Those that it cannot encode are
// copied to the host. Once the sink has failed it only releases them, and needs no queue.
func (w *Writer) encodeOnDevice(q gpu.PageEncoder, groups []*group) (out []deviceResult) {
	for _, g := range groups {
		for _, i := range g.device {
			out = append(out, deviceResult{group: g, column: i})
		}
	}
	err := w.failure()
	if err == nil {
		err = w.encodeTogether(q, out)
	}
	if gpu.IsOutOfMemory(err) && len(groups) > 1 {
		clear(out)
		out = out[:0]
		for _, g := range groups {
			out = append(out, w.encodeOnDevice(q, []*group{g})...)
		}
		return out
	}
	for i := range out {
		r := &out[i]
		switch {
		case r.chunk != nil:
		case q != nil && (err == nil || gpu.IsOutOfMemory(err)):
			r.err = ofOutput(w.bring(r.group, r.column))
		default:
			r.err = ofOutput(err)
		}
		if r.chunk != nil || r.err != nil {
			r.group.releaseColumn(r.column)
		}
	}
	return out
}

// ofOutput says that an error of the device is one of the output. Those of memory say so themselves.
func ofOutput(err error) error {
	if err == nil || gpu.IsOutOfMemory(err) {
		return err
	}
	return fmt.Errorf("output: %w", err)
}

// releaseColumn releases the rows of a column.
func (g *group) releaseColumn(i int) {
	for _, p := range g.kept {
		p.stride.Cols[i].Release()
		p.stride.Cols[i] = gpu.Column{}
	}
	releaseRanges(g.brought[i])
	g.brought[i] = nil
}

func releaseRanges(ranges []rowRange) {
	for _, r := range ranges {
		r.col.Release()
	}
}

// ranges returns the rows of a column.
func (g *group) ranges(i int) []rowRange {
	if g.brought[i] != nil {
		return g.brought[i]
	}
	out := make([]rowRange, len(g.kept))
	for k, p := range g.kept {
		out[k] = rowRange{p.stride.Cols[i], p.from, p.to}
	}
	return out
}

// encodeTogether encodes columns in one call, and leaves out those whose rows lie in several memories, and those with
// values that the device cannot encode.
func (w *Writer) encodeTogether(q gpu.PageEncoder, columns []deviceResult) error {
	defer w.traced("encode on the device", time.Now())
	var chunks []gpu.Chunk
	var of []*deviceResult
	for i := range columns {
		r := &columns[i]
		c := &w.columns[r.column]
		chunk := w.deviceChunk(c)
		for _, p := range r.group.kept {
			chunk.Parts = append(chunk.Parts, gpu.Rows{Column: p.stride.Cols[r.column], From: p.from, To: p.to})
		}
		coded := chunk.Parts[0].Column.Dict != nil
		here := gpu.CheckMemory(r.group.encoder.device, r.group.columnsOf(r.column)) == nil
		if here && c.encodedByDevice(coded) && chunk.Check() == nil {
			chunks, of = append(chunks, chunk), append(of, r)
		}
	}
	if len(chunks) == 0 {
		return nil
	}
	d := columns[0].group.encoder
	done, err := q.EncodePages(d.lease, w.opt.Lease, chunks)
	if err != nil {
		return w.on(d, err)
	}
	codec := w.opt.codec()
	for i, e := range done {
		if !e.Unable {
			of[i].chunk = w.columns[of[i].column].chunkOf(e, codec, of[i].group.rows)
		}
	}
	return nil
}

// columnsOf returns a column of all strides of a row group.
func (g *group) columnsOf(i int) (out []gpu.Column) {
	for _, p := range g.kept {
		out = append(out, p.stride.Cols[i])
	}
	return out
}

// deviceChunk describes a column for a device.
func (w *Writer) deviceChunk(c *column) gpu.Chunk {
	chunk := gpu.Chunk{Width: c.width, Scale: c.scale, Nullable: c.field.Nullable, Dictionary: c.dictionary,
		Delta:    w.opt.Encoding == "auto" && (c.physical == format.Int32 || c.physical == format.Int64),
		Split:    c.split,
		PageRows: rowsPerPage(w.opt.PageRows, w.opt.PageBytes, c.width),
		Head:     headOf}
	chunk.Codec, _ = w.opt.deviceCodec()
	if c.bloom {
		chunk.Filter = bloomHead
	}
	switch c.physical {
	case format.Boolean:
		chunk.PageRows, chunk.Dictionary = max(8, w.opt.PageRows&^7), false
	case format.ByteArray:
		chunk.PageRows = rowsPerPage(w.opt.PageRows, w.opt.PageBytes, 4) // of codes
		chunk.PlainRows, chunk.PlainBytes = w.opt.PageRows, w.opt.PageBytes
	}
	return chunk
}

// headOf returns the header of a page that a device has encoded.
func headOf(p gpu.EncodedPage) ([]byte, error) {
	h := dataHead(p.Rows, pageEncodings[p.Encoding])
	if p.Encoding == gpu.DictionaryPage {
		h = dictionaryHead(p.Rows)
	}
	return headBytes(h, p.Raw, p.Size, p.Checksum)
}

var pageEncodings = map[gpu.PageEncoding]format.Encoding{gpu.PlainPage: format.Plain,
	gpu.CodedPage: format.RLEDictionary, gpu.DeltaPage: format.DeltaBinaryPacked,
	gpu.SplitPage: format.ByteStreamSplit}

// chunkOf returns a chunk that a device has encoded, with its metadata and indexes.
func (c *column) chunkOf(e gpu.EncodedChunk, codec compressor, rows int) *encodedChunk {
	k := &encodedChunk{ofDevice: true}
	k.begin(c, codec, rows)
	k.pages.adopt(e.Data)
	if d := e.Dictionary; d != nil {
		k.meta.DictionaryPageOffset = d.At
		k.meta.TotalUncompressedSize += int64(d.Head + d.Raw)
	}
	row, nulls := 0, 0
	var all varBounds
	for _, p := range e.Pages {
		k.meta.TotalUncompressedSize += int64(p.Head + p.Raw)
		k.addPage(c, pageEncodings[p.Encoding], dataPage{start: p.At, size: int64(p.Head + p.Size), row: row,
			rows: p.Rows, nulls: p.Nulls, bounds: c.deviceBounds(p)})
		if c.physical == format.ByteArray && p.LeastText != nil {
			all.add(p.LeastText)
			all.add(p.MostText)
		}
		row += p.Rows
		nulls += p.Nulls
	}
	if c.physical == format.ByteArray {
		k.bounds = all.finish(c.field.Type)
	}
	k.finish(c, int64(nulls))
	if e.Filter > 0 {
		k.meta.BloomFilterOffset, k.meta.BloomFilterLength = e.Filter, int32(k.pages.size-e.Filter)
		k.meta.TotalCompressedSize = e.Filter
	}
	return k
}

// deviceBounds returns the bounds of a page that a device has encoded.
func (c *column) deviceBounds(p gpu.EncodedPage) bounds {
	switch {
	case p.Nulls == p.Rows || c.unordered():
		return bounds{}
	case c.physical == format.ByteArray:
		var b varBounds
		b.add(p.LeastText)
		b.add(p.MostText)
		return b.finish(c.field.Type)
	case c.physical == format.FixedLenByteArray:
		return bounds{slices.Clone(p.LeastText), slices.Clone(p.MostText), p.Bounded}
	case c.physical == format.Boolean:
		return bounds{[]byte{byte(p.Least)}, []byte{byte(p.Most)}, p.Bounded}
	case c.physical == format.Float:
		lo, hi, _ := floatBounds([]float32{math.Float32frombits(uint32(p.Least)), math.Float32frombits(uint32(p.Most))})
		return bounds{le32(math.Float32bits(lo)), le32(math.Float32bits(hi)), p.Bounded}
	case c.physical == format.Double:
		lo, hi, _ := floatBounds([]float64{math.Float64frombits(p.Least), math.Float64frombits(p.Most)})
		return bounds{le64(math.Float64bits(lo)), le64(math.Float64bits(hi)), p.Bounded}
	case c.width == 4:
		return bounds{le32(uint32(p.Least)), le32(uint32(p.Most)), p.Bounded}
	}
	return bounds{le64(p.Least), le64(p.Most), p.Bounded}
}

// bring copies the rows of a column of a row group to the host, for the CPU to encode them.
func (w *Writer) bring(g *group, column int) (err error) {
	var out []rowRange
	defer func() {
		if err != nil {
			releaseRanges(out)
		}
	}()
	for _, r := range g.ranges(column) {
		if isHost(r.col) {
			r.col.Retain()
		} else if r, err = w.bringRange(r); err != nil {
			return err
		}
		out = append(out, r)
	}
	g.releaseColumn(column)
	g.brought[column] = out
	return nil
}

// bringRange copies rows of a column to the host, or all rows of the column if the device has no memory for a copy of
// these rows.
func (w *Writer) bringRange(r rowRange) (rowRange, error) {
	d := w.encoderOf([]gpu.Column{r.col})
	if d == nil {
		return r, errors.New("internal error: rows of an output lie in memory of no device that encodes it")
	}
	q, err := w.queueOf(d)
	if err != nil {
		return r, err
	}
	defer w.keepQueue(d, q)
	c, err := q.Slice(d.lease, r.col, r.from, r.to)
	switch {
	case err == nil:
		r.from, r.to = 0, c.Len
	case gpu.IsOutOfMemory(err):
		c = r.col.Retain()
	default:
		return r, w.on(d, err)
	}
	r.col, err = w.bringColumn(q, c)
	return r, w.on(d, err)
}

// bringColumn copies a column to the host, and takes it over. It waits for memory as long as others release some.
func (w *Writer) bringColumn(q gpu.Queue, c gpu.Column) (gpu.Column, error) {
	one := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "output", Type: c.Type, Nullable: c.Valid != nil}),
		Cols: []gpu.Column{c}, Rows: c.Len}
	load := func() (*gpu.Stride, error) { return q.Download(w.opt.Lease, one) }
	down, err := load()
	for still := false; errors.Is(err, gpu.ErrBudget) && w.failure() == nil; down, err = load() {
		w.freeIdle()
		if still {
			break
		}
		still = !w.opt.Lease.AwaitMore(w.run, w.opt.Lease.Available())
	}
	if err != nil {
		one.Release()
		return gpu.Column{}, err
	}
	return down.Cols[0], nil
}

// closeDevice releases what the sink has on a device, after the last task. It may be called again. After a failure of
// the sink there is no error: queues would return the failures that stick to them, of which the first is known.
func (w *Writer) closeDevice() error {
	var err error
	if w.split != nil {
		for _, d := range w.split.devices {
			err = errors.Join(err, d.close())
		}
	}
	for _, d := range w.devices {
		err = errors.Join(err, d.close())
	}
	if w.failure() != nil {
		return nil
	}
	return err
}
