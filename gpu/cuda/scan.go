package cuda

import "github.com/gstream/gstream/gpu"

// scanTile is SCAN_TILE of scan.cu.
const scanTile = 4096

type scanArgs struct {
	in, out, sums uint64
	n             int64
	tiles, closed int32
}

// scan replaces n counts by their exclusive prefix sums. With closed the buffer has one more value,
// which receives the total. scan returns a buffer and the offset in it of the total as an int64.
// The prefix sums wrap at 32 bits, so callers must check the total first.
func (o *op) scan(counts *gpu.Buffer, n int, closed bool) (total *gpu.Buffer, at int64) {
	tiles := blocks(n, scanTile)
	sums := o.alloc(int64(tiles+1) * 8)
	args := scanArgs{in: addr(counts), out: addr(counts), sums: addr(sums), n: int64(n), tiles: int32(tiles)}
	args.closed = flag(closed)
	launch(o, "scan_sums", tiles, 256, 0, args)
	launch(o, "scan_starts", 1, 1024, 0, args)
	launch(o, "scan_write", tiles, 256, 0, args)
	return sums, int64(tiles) * 8
}

// scanTotal is scan that also reads the total.
func (o *op) scanTotal(counts *gpu.Buffer, n int, closed bool) int64 {
	sums, at := o.scan(counts, n, closed)
	var total [1]int64
	o.read(sums, at, gpu.BytesOf(total[:]))
	return total[0]
}
