package parquet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
)

const (
	// maxPartitions bounds the folders of an output.
	maxPartitions = 100_000
	// pieceRows is the average number of rows per partition from which gathering pays off.
	pieceRows = 1024
	// maxFolderName is the maximum length of a folder's name in most file systems.
	maxFolderName = 255
)

// nullPartition is the name of null in a folder.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// splitter divides rows among partitions. Strides wait until they have a few thousand rows per
// partition. These rows are gathered, and wait in their partition for a full row group. If all
// waiting rows take too much memory, the largest partitions write smaller row groups.
type splitter struct {
	schema *gpu.Schema // of the files
	width  int         // columns of the strides
	kept   []int       // the columns of the files among them
	keys   []partitionKey
	parts  []*destination
	raw    []rawStride // strides that are not divided yet
	rows   int         // their rows
	bytes  int64       // and bytes

	devices []*deviceSplitter // divide strides in memory of the devices that encode the output
	last    *deviceSplitter   // that divided the last stride; nil for the CPU
}

// rawStride is a stride with the rows of each partition in it.
type rawStride struct {
	*gpu.Stride
	order  []int32 // rows in the order of their partitions
	starts []int32 // where the rows of each partition begin in order, and the end
}

var errPartitions = gpu.Exceeded("partition_by makes more than %d folders; name columns with fewer values, such as a "+
	"month instead of a day", maxPartitions)

// partitionKey numbers the values of a column, and the combinations of these values with those of
// the keys before.
type partitionKey struct {
	column  int
	field   gpu.Field
	name    string // in folders
	values  codeTable
	wide    map[gpu.Int128]uint32
	texts   map[string]uint32 // by the name of the folder
	folders []string          // the folder of each value
	pairs   codeTable         // by the number of the keys before, and that of the value
	paths   []string          // the folders of each combination
}

// codeTable maps words to numbers. Its cache is a small direct-mapped table.
type codeTable struct {
	words   [1024]uint64
	numbers [1024]uint32 // the number plus 1
	all     map[uint64]uint32
}

func (t *codeTable) find(word uint64, add func() (uint32, error)) (uint32, error) {
	slot := word * 0x9E3779B97F4A7C15 >> 54
	if t.words[slot] == word && t.numbers[slot] > 0 {
		return t.numbers[slot] - 1, nil
	}
	n, ok := t.all[word]
	if !ok {
		var err error
		if n, err = add(); err != nil {
			return 0, err
		}
		if t.all == nil {
			t.all = map[uint64]uint32{}
		}
		t.all[word] = n
	}
	t.words[slot], t.numbers[slot] = word, n+1
	return n, nil
}

// newSplitter returns the splitter for options that CheckColumns has checked.
func newSplitter(s *gpu.Schema, opt Options) *splitter {
	p := &splitter{schema: &gpu.Schema{}, width: s.Len()}
	for _, name := range opt.PartitionBy {
		p.keys = append(p.keys, partitionKey{column: s.Index(name), field: s.Fields[s.Index(name)],
			name: escapeName(name), wide: map[gpu.Int128]uint32{}, texts: map[string]uint32{}})
	}
	for i, f := range s.Fields {
		if opt.WritePartitionColumns || !slices.Contains(opt.PartitionBy, f.Name) {
			p.kept = append(p.kept, i)
			p.schema.Fields = append(p.schema.Fields, f)
		}
	}
	return p
}

// withKeys returns the schema that a source finds: the columns of the files, then those of
// the folders, in the types that it finds in their names.
func (p *splitter) withKeys() *gpu.Schema {
	fields := slices.Clone(p.schema.Fields)
	for _, k := range p.keys {
		f := gpu.Field{Name: k.field.Name, Type: gpu.Of(gpu.String), Nullable: k.field.Nullable}
		switch t := k.field.Type; {
		case t.IsInteger():
			f.Type = gpu.Of(gpu.Int64)
		case t.Kind == gpu.Date:
			f.Type = t
		case t.Kind == gpu.Timestamp:
			f.Type = gpu.TimestampOf(gpu.Microsecond, false)
		}
		if i := p.schema.Index(f.Name); i >= 0 {
			fields[i] = f // write_partition_columns
		} else {
			fields = append(fields, f)
		}
	}
	return gpu.NewSchema(fields...)
}

// number returns the number of a value of the key.
func (k *partitionKey) number(v gpu.Scalar) (uint32, error) {
	text := nullPartition
	if v.Valid {
		text = escapeName(v.String())
	}
	folder := k.name + "=" + text
	if n := len(folder); n > maxFolderName {
		return 0,
			gpu.Exceeded("a value of partition_by takes %d bytes in the name of a folder, which has at most %d: %.60s…",
				n, maxFolderName, folder)
	}
	n, ok := k.texts[folder]
	if !ok {
		if n = uint32(len(k.folders)); n == maxPartitions {
			return 0, errPartitions
		}
		k.texts[folder] = n
		k.folders = append(k.folders, folder)
	}
	return n, nil
}

// escapeName replaces every byte of a text other than ASCII letters, digits and - _ . ~ by %XX, as
// DuckDB does. A text that equals nullPartition begins with %5F.
func escapeName(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		plain := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_' ||
			c == '.' || c == '~'
		if !plain || i == 0 && s == nullPartition {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// codes returns the number of the value of each row.
func (k *partitionKey) codes(c gpu.Column) ([]uint32, error) {
	out := make([]uint32, c.Len)
	null, err := uint32(0), error(nil)
	if c.Valid != nil {
		if null, err = k.number(gpu.Null(c.Type)); err != nil {
			return nil, err
		}
	}
	each := k.eachValue(c)
	if c.Dict != nil {
		each = k.eachCode(c)
	}
	for i := range out {
		if c.Valid != nil && !gpu.Bit(c.Valid.Bytes(), i) {
			out[i] = null
			continue
		}
		if out[i], err = each(i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eachCode looks up each value of a dictionary once.
func (k *partitionKey) eachCode(c gpu.Column) func(i int) (uint32, error) {
	numbers := make([]uint32, c.Dict.Values.Len) // the number plus 1
	return func(i int) (uint32, error) {
		code := c.Code(i)
		if numbers[code] == 0 {
			n, err := k.number(c.Dict.Values.ScalarAt(code))
			if err != nil {
				return 0, err
			}
			numbers[code] = n + 1
		}
		return numbers[code] - 1, nil
	}
}

// eachValue returns the number of the value of a row of a column without a dictionary.
func (k *partitionKey) eachValue(c gpu.Column) func(i int) (uint32, error) {
	look := func(word func(i int) uint64) func(i int) (uint32, error) {
		return func(i int) (uint32, error) {
			return k.values.find(word(i), func() (uint32, error) { return k.number(c.ScalarAt(i)) })
		}
	}
	data := c.Data.Bytes()
	switch {
	case c.Type.IsVar():
		raw := map[string]uint32{}
		return func(i int) (uint32, error) {
			v := c.VarValue(i)
			n, ok := raw[string(v)]
			if !ok {
				var err error
				if n, err = k.number(c.ScalarAt(i)); err != nil {
					return 0, err
				}
				raw[string(v)] = n
			}
			return n, nil
		}
	case c.Type.Kind == gpu.Bool:
		return look(func(i int) uint64 { return uint64(data[i>>3] >> (i & 7) & 1) })
	}
	switch c.Type.Width() {
	case 1:
		return look(func(i int) uint64 { return uint64(data[i]) })
	case 2:
		return look(func(i int) uint64 { return uint64(binary.LittleEndian.Uint16(data[2*i:])) })
	case 4:
		return look(func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(data[4*i:])) })
	case 8:
		return look(func(i int) uint64 { return binary.LittleEndian.Uint64(data[8*i:]) })
	}
	values := gpu.Values[gpu.Int128](c.Data, c.Len)
	return func(i int) (uint32, error) {
		n, ok := k.wide[values[i]]
		if !ok {
			var err error
			if n, err = k.number(c.ScalarAt(i)); err != nil {
				return 0, err
			}
			k.wide[values[i]] = n
		}
		return n, nil
	}
}

// partitionsOf returns the number of the partition of each row.
func (p *splitter) partitionsOf(s *gpu.Stride) ([]uint32, error) {
	ids, err := p.keys[0].codes(s.Cols[p.keys[0].column])
	if err != nil {
		return nil, err
	}
	paths := p.keys[0].folders
	for k := range p.keys[1:] {
		key := &p.keys[1+k]
		codes, err := key.codes(s.Cols[key.column])
		if err != nil {
			return nil, err
		}
		for i, code := range codes {
			ids[i], err = key.pairs.find(uint64(ids[i])<<32|uint64(code), func() (uint32, error) {
				if len(key.paths) == maxPartitions {
					return 0, errPartitions
				}
				key.paths = append(key.paths, paths[ids[i]]+"/"+key.folders[code])
				return uint32(len(key.paths) - 1), nil
			})
			if err != nil {
				return nil, err
			}
		}
		paths = key.paths
	}
	for _, path := range paths[len(p.parts):] {
		p.parts = append(p.parts, &destination{folder: path})
	}
	return ids, nil
}

// add takes ownership of a stride and sorts its rows by partition.
func (p *splitter) add(s *gpu.Stride) error {
	ids, err := p.partitionsOf(s)
	if err != nil {
		return err
	}
	r := rawStride{Stride: s.Retain(), order: make([]int32, s.Rows), starts: make([]int32, len(p.parts)+1)}
	for _, id := range ids {
		r.starts[id+1]++
	}
	for i := range p.parts {
		r.starts[i+1] += r.starts[i]
	}
	at := slices.Clone(r.starts)
	for row, id := range ids {
		r.order[at[id]] = int32(row)
		at[id]++
	}
	p.raw = append(p.raw, r)
	p.rows += s.Rows
	p.bytes += s.Bytes()
	return nil
}

// rowsOf returns the rows of a partition in a stride. A stride before the first row of the
// partition has none.
func (r *rawStride) rowsOf(part int) []int32 {
	if part+1 >= len(r.starts) {
		return nil
	}
	return r.order[r.starts[part]:r.starts[part+1]]
}

// release releases all waiting rows, and returns the destinations.
func (p *splitter) release() []*destination {
	for _, r := range p.raw {
		r.Release()
	}
	p.raw, p.rows, p.bytes = nil, 0, 0
	return p.parts
}

// divide adds the rows of a stride to their partitions. The caller keeps its references.
func (w *Writer) divide(ctx context.Context, s *gpu.Stride) error {
	if s.Rows == 0 {
		return nil
	}
	d := w.splitterOf(s)
	if d != w.split.last && w.opt.FromOneDevice(!w.opt.AnyOrder) {
		// The rows of a partition keep their order.
		if err := w.divideRest(ctx); err != nil {
			return err
		}
	}
	if w.split.last = d; d != nil {
		return w.divideOnDevice(ctx, d, s)
	}
	return w.divideOnHost(ctx, s)
}

// divideOnHost is divide for a stride in memory of the host.
func (w *Writer) divideOnHost(ctx context.Context, s *gpu.Stride) error {
	p := w.split
	if err := p.add(s); err != nil {
		return fmt.Errorf("%s: %w", w.out.named(), err)
	}
	if p.rows < pieceRows*len(p.parts) && p.bytes < w.most/4 {
		return nil
	}
	return w.settle(ctx)
}

// divideRest divides the remaining rows and queues their row groups.
func (w *Writer) divideRest(ctx context.Context) error {
	for _, d := range w.split.devices {
		if err := w.settleDevice(ctx, d); err != nil {
			return err
		}
		if err := w.handDevice(ctx, d); err != nil {
			return err
		}
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.handAll(ctx, w.split.parts)
}

// handAll queues the waiting rows of some destinations.
func (w *Writer) handAll(ctx context.Context, all []*destination) error {
	w.expectMore(true)
	defer w.expectMore(false)
	for _, d := range all {
		if d.pendingRows > 0 {
			if err := w.hand(ctx, d, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle gathers the rows of each partition from the waiting strides, and adds them to the row
// group of the partition. It gathers column by column, and stride by stride, because a column of a
// stride fits the cache of a core.
func (w *Writer) settle(ctx context.Context) error {
	p := w.split
	if len(p.raw) == 0 {
		return nil
	}
	g := gathering{lease: w.opt.Lease, strides: p.raw, sizes: make([]int, len(p.parts))}
	for i := range p.raw {
		for part := range p.parts {
			g.sizes[part] += len(p.raw[i].rowsOf(part))
		}
	}
	columns := make([]gathered, len(p.kept))
	defer func() {
		for _, c := range columns {
			c.release()
		}
	}()
	var work errgroup.Group
	work.SetLimit(w.opt.Threads)
	for i, column := range p.kept {
		work.Go(func() (err error) {
			defer w.traced("partition", time.Now())
			columns[i], err = g.gather(column)
			return err
		})
	}
	if err := work.Wait(); err != nil && !errors.Is(err, gpu.ErrBudget) {
		return err
	}
	for i, column := range p.kept {
		if columns[i].parts != nil {
			continue
		}
		if err := w.patiently(ctx, func() (err error) {
			columns[i], err = g.gather(column)
			return err
		}); err != nil {
			return err
		}
	}
	for part, d := range p.parts {
		var err error
		for _, rows := range g.pieces(p.schema, columns, part) {
			if err == nil {
				err = w.collect(ctx, d, rows)
			}
			rows.stride.Release()
		}
		if err != nil {
			return err
		}
		for _, c := range columns {
			c.parts[part].Release()
			c.parts[part] = gpu.Column{}
		}
	}
	p.release()
	for {
		d, all := p.largest()
		if all <= w.most {
			return nil
		}
		if err := w.hand(ctx, d, false); err != nil {
			return err
		}
	}
}

// largest returns the partition with the most waiting bytes, and the waiting bytes of all
// partitions.
func (p *splitter) largest() (d *destination, all int64) {
	for _, o := range p.parts {
		if all += o.pendingBytes; d == nil || o.pendingBytes > d.pendingBytes {
			d = o
		}
	}
	return d, all
}

// patiently calls try until it is not denied memory. Before each further call the largest partition
// writes its rows, as long as rows wait.
func (w *Writer) patiently(ctx context.Context, try func() error) error {
	for still := false; ; {
		err := try()
		var short *gpu.BudgetError
		if !errors.As(err, &short) {
			return err
		}
		if d, all := w.split.largest(); all > 0 {
			if err := w.hand(ctx, d, false); err != nil {
				return err
			}
			if err := w.drain(ctx); err != nil {
				return err
			}
			continue
		}
		if still {
			short.Hint = "or name columns with fewer values in partition_by"
			return err
		}
		still = !w.opt.Lease.AwaitMore(ctx, w.opt.Lease.Available())
	}
}

// drain waits until all queued row groups are written.
func (w *Writer) drain(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake.Broadcast()
	})()
	for len(w.queue) > 0 && w.failure() == nil && ctx.Err() == nil {
		w.wake.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.failure()
}

// gathering copies the rows of each partition from several strides.
type gathering struct {
	lease   *gpu.Lease
	strides []rawStride
	sizes   []int // rows of each partition
}

// gathered is a column of each partition.
type gathered struct {
	parts []gpu.Column
	dicts []*gpu.Dictionary // of each stride, if the rows have its codes
}

func (c gathered) release() { gpu.ReleaseColumns(c.parts) }

// pieces returns the rows of a partition. If columns have dictionaries, there is a piece for
// each stride. The pieces share the buffers of the columns. The caller releases them.
func (g *gathering) pieces(s *gpu.Schema, columns []gathered, part int) (out []keptRows) {
	coded := slices.ContainsFunc(columns, func(c gathered) bool { return c.dicts != nil })
	at := 0
	for i := range g.strides {
		n := len(g.strides[i].rowsOf(part))
		if !coded {
			n = g.sizes[part]
		}
		if n == 0 {
			continue
		}
		piece := &gpu.Stride{Schema: s, Rows: g.sizes[part]}
		for _, c := range columns {
			view := c.parts[part]
			if c.dicts != nil {
				view.Dict = c.dicts[i]
			}
			piece.Cols = append(piece.Cols, view.Retain())
		}
		out = append(out, keptRows{piece, at, at + n})
		if at += n; !coded {
			break
		}
	}
	return out
}

// gather copies a column.
func (g *gathering) gather(column int) (out gathered, err error) {
	from := make([]gpu.Column, len(g.strides))
	coded, nulls := true, false
	for i := range g.strides {
		from[i] = g.strides[i].Cols[column]
		coded = coded && from[i].Dict != nil
		nulls = nulls || from[i].Valid != nil
	}
	t := from[0].Type
	out.parts = make([]gpu.Column, len(g.sizes))
	defer func() {
		if err != nil {
			out.release()
			out = gathered{}
		}
	}()
	for i, n := range g.sizes {
		c := &out.parts[i]
		c.Type, c.Len = t, n
		if n == 0 {
			continue
		}
		if nulls {
			if c.Valid, err = g.lease.Alloc(gpu.BitmapBytes(n)); err != nil {
				return out, err
			}
		}
		switch {
		case coded:
			c.Data, err = g.lease.Alloc(4 * int64(n))
		case t.Kind == gpu.Bool:
			c.Data, err = g.lease.Alloc(gpu.BitmapBytes(n))
		case t.IsVar():
			c.Offsets, err = g.lease.Alloc(4 * int64(n+1))
		default:
			c.Data, err = g.lease.Alloc(int64(n) * int64(t.Width()))
		}
		if err != nil {
			return out, err
		}
	}
	if nulls {
		g.bits(out.parts, from, func(c gpu.Column) *gpu.Buffer { return c.Valid })
	}
	switch {
	case coded:
		for _, c := range from {
			out.dicts = append(out.dicts, c.Dict)
		}
		g.codes(out.parts, from)
	case t.Kind == gpu.Bool:
		g.bits(out.parts, from, func(c gpu.Column) *gpu.Buffer { return c.Data })
	case t.IsVar():
		err = g.texts(out.parts, from)
	default:
		switch t.Width() {
		case 1:
			gatherValues[uint8](g, out.parts, from)
		case 2:
			gatherValues[uint16](g, out.parts, from)
		case 4:
			gatherValues[uint32](g, out.parts, from)
		case 8:
			gatherValues[uint64](g, out.parts, from)
		default:
			gatherValues[gpu.Int128](g, out.parts, from)
		}
	}
	return out, err
}

// each calls fn with the rows of each partition in each stride, and their position in the
// partition.
func (g *gathering) each(fn func(stride, part, at int, rows []int32)) {
	at := make([]int, len(g.sizes))
	for i := range g.strides {
		for part := range g.sizes {
			if rows := g.strides[i].rowsOf(part); len(rows) > 0 {
				fn(i, part, at[part], rows)
				at[part] += len(rows)
			}
		}
	}
}

// bits gathers bitmaps; a column without one has ones.
func (g *gathering) bits(dst, from []gpu.Column, of func(gpu.Column) *gpu.Buffer) {
	for _, c := range dst {
		clear(of(c).Bytes())
	}
	g.each(func(i, part, at int, rows []int32) {
		b, out := of(from[i]).Bytes(), of(dst[part]).Bytes()
		for _, row := range rows {
			if b == nil || gpu.Bit(b, int(row)) {
				out[at>>3] |= 1 << (at & 7)
			}
			at++
		}
	})
}

func (g *gathering) codes(dst, from []gpu.Column) {
	g.each(func(i, part, at int, rows []int32) {
		c, out := from[i], gpu.Values[int32](dst[part].Data, dst[part].Len)[at:]
		switch c.CodeWidth {
		case 1:
			gatherAs(out, gpu.Values[uint8](c.Data, c.Len), rows)
		case 2:
			gatherAs(out, gpu.Values[uint16](c.Data, c.Len), rows)
		default:
			gatherAs(out, gpu.Values[int32](c.Data, c.Len), rows)
		}
	})
}

func gatherAs[T uint8 | uint16 | int32](dst []int32, src []T, rows []int32) {
	dst = dst[:len(rows)]
	for i, row := range rows {
		dst[i] = int32(src[row])
	}
}

func gatherValues[T any](g *gathering, dst, from []gpu.Column) {
	g.each(func(i, part, at int, rows []int32) {
		c, out := from[i], gpu.Values[T](dst[part].Data, dst[part].Len)[at:]
		out = out[:len(rows)]
		if c.Dict != nil {
			src := gpu.Values[T](c.Dict.Values.Data, c.Dict.Values.Len)
			for j, row := range rows {
				out[j] = gpu.Lookup(src, int32(c.Code(int(row))))
			}
			return
		}
		src := gpu.Values[T](c.Data, c.Len)
		for j, row := range rows {
			out[j] = src[row]
		}
	})
}

// texts gathers values of variable length.
func (g *gathering) texts(dst, from []gpu.Column) error {
	ends := make([]int64, len(dst))
	g.each(func(i, part, at int, rows []int32) {
		c, end := from[i], ends[part]
		offsets := gpu.Values[int32](dst[part].Offsets, dst[part].Len+1)[at:]
		offsets[0] = int32(min(end, math.MaxInt32))
		value := texts(c)
		for j, row := range rows {
			if c.IsValid(int(row)) {
				end += int64(len(value(int(row))))
			}
			offsets[j+1] = int32(min(end, math.MaxInt32))
		}
		ends[part] = end
	})
	for part, end := range ends {
		if end > math.MaxInt32 {
			return gpu.Exceeded("the texts of a column in one partition take %d bytes in a few strides, and 2 GiB is "+
				"the most; lower the stride size", end)
		}
		if dst[part].Len > 0 {
			var err error
			if dst[part].Data, err = g.lease.Alloc(end); err != nil {
				return err
			}
		}
	}
	g.each(func(i, part, at int, rows []int32) {
		c, data := from[i], dst[part].Data.Bytes()
		offsets := gpu.Values[int32](dst[part].Offsets, dst[part].Len+1)[at:]
		value := texts(c)
		for j, row := range rows {
			if c.IsValid(int(row)) {
				copy(data[offsets[j]:offsets[j+1]], value(int(row)))
			}
		}
	})
	return nil
}

// texts returns the value of each row of a column.
func texts(c gpu.Column) func(row int) []byte {
	if c.Dict != nil {
		return c.VarValue
	}
	offsets, data := gpu.Values[int32](c.Offsets, c.Len+1), c.Data.Bytes()
	return func(row int) []byte { return data[offsets[row]:offsets[row+1]] }
}
