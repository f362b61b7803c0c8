package store

import (
	"cmp"
	"context"
	"io"
)

// Pipe reads a stream such as standard input. A goroutine of its own waits for the bytes, because nothing ends a read
// from a pipe.
type Pipe struct {
	blocks chan []byte // closed at the end
	err    error       // why it ended, if not by io.EOF
	rest   []byte
}

const pipeBlock = 64 << 10

// NewPipe begins to read a stream.
func NewPipe(from io.Reader) *Pipe {
	p := &Pipe{blocks: make(chan []byte)}
	go func() {
		defer close(p.blocks)
		for {
			b := make([]byte, pipeBlock)
			n, err := from.Read(b)
			if n > 0 {
				p.blocks <- b[:n]
			}
			if err != nil {
				if err != io.EOF {
					p.err = err
				}
				return
			}
		}
	}()
	return p
}

// Reader returns a reader of what follows, which ends with a context. One goroutine at a time reads.
func (p *Pipe) Reader(ctx context.Context) io.Reader { return pipeReader{p, ctx} }

type pipeReader struct {
	*Pipe
	ctx context.Context
}

func (r pipeReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case b, ok := <-r.blocks:
			if !ok {
				return 0, cmp.Or(r.err, io.EOF)
			}
			r.rest = b
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
	n := copy(p, r.rest)
	r.Pipe.rest = r.rest[n:]
	return n, nil
}
