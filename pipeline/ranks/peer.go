package ranks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
)

// heartbeat is how often a rank tells each other one that it lives.
const heartbeat = time.Second

// peer is another rank.
type peer struct {
	w    *World
	rank int
	conn net.Conn
	in   *bufio.Reader

	mu      sync.Mutex
	urgent  []*Message // go first
	ordered []*Message // rows, and what must not overtake them
	left    bool       // it has said goodbye
	closed  bool
	sending bool      // ordered[0] is being written
	sent    sync.Cond // signals that a message of ordered has gone
	wake    chan struct{}
	writing sync.WaitGroup
	read    chan struct{} // closed when nothing is read any more

	// reading is held while rows are read.
	reading  sync.Mutex
	arriving arriving
}

func newPeer(w *World, rank int, c net.Conn, patience time.Duration) *peer {
	p := &peer{w: w, rank: rank, conn: c, in: buffered(c, patience), wake: make(chan struct{}, 1),
		read: make(chan struct{})}
	p.sent.L = &p.mu
	return p
}

func (p *peer) start() {
	p.writing.Add(1)
	go func() {
		defer p.writing.Done()
		if err := p.write(); err != nil {
			p.rest() // the other rank may have said why
			p.gone(err)
		}
	}()
	go func() {
		defer close(p.read)
		err := p.readAll()
		if err == errHere {
			_, err = io.Copy(io.Discard, p.in) // so that the other rank can write, and read why the run ends
		}
		if err != nil {
			p.gone(err)
		}
	}()
}

// errHere is a failure of this rank, for which the other one cannot be blamed.
var errHere = errors.New("this rank has failed")

// rest waits for the rest of what is read, for some time.
func (p *peer) rest() {
	select {
	case <-p.read:
	case <-time.After(heartbeat):
	}
}

// gone ends the run, unless the other rank has said goodbye or this one is about to end.
func (p *peer) gone(err error) {
	p.mu.Lock()
	fine := p.left || p.closed
	p.mu.Unlock()
	if fine {
		return
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("its process has ended")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errors.New("it is silent")
	}
	p.w.fail(&Error{Rank: p.rank, Text: fmt.Sprintf("the connection to %s is lost: %v", p.conn.RemoteAddr(), err)})
	_ = p.conn.Close()
}

// send puts a message into a queue. It takes rows over.
func (p *peer) send(m *Message) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		m.drop()
		return
	}
	if m.inOrder() {
		p.ordered = append(p.ordered, m)
	} else {
		p.urgent = append(p.urgent, m)
	}
	p.mu.Unlock()
	p.awake()
}

// drop releases the rows of a message that is not sent.
func (m *Message) drop() {
	if m.stride != nil {
		m.stride.Release()
		m.stride = nil
	}
}

func (p *peer) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// next returns the message to write next, nil if there is none.
func (p *peer) next() (m *Message, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.urgent) > 0 {
		m, p.urgent = p.urgent[0], p.urgent[1:]
	} else if len(p.ordered) > 0 && !p.sending && !p.closed {
		m, p.sending = p.ordered[0], true
	}
	return m, p.closed && m == nil
}

// went removes the first message of ordered, which has gone.
func (p *peer) went() {
	p.mu.Lock()
	m := p.ordered[0]
	p.ordered, p.sending = p.ordered[1:], false
	p.sent.Broadcast()
	p.mu.Unlock()
	m.drop()
	p.awake()
}

// drain waits until all rows have gone.
func (p *peer) drain(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent.Broadcast()
	})()
	for len(p.ordered) > 0 && ctx.Err() == nil && !p.closed {
		p.sent.Wait()
	}
}

// write writes messages until the rank ends.
func (p *peer) write() error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		m, closed := p.next()
		if closed {
			return nil
		}
		if m == nil {
			select {
			case <-p.wake:
				continue
			case <-tick.C:
				m = &Message{Kind: ping}
			}
		}
		if x := p.w.rounds(); x != nil && m.Kind == Rows {
			x.offer(p, m) // until a round has taken it
			continue
		}
		err := p.writeOne(m)
		if m.inOrder() {
			p.went()
		}
		if err != nil {
			return err
		}
	}
}

// writeOne writes a message, and its rows.
func (p *peer) writeOne(m *Message) error {
	var out net.Buffers
	if m.Kind == Rows {
		l, parts, err := layoutOf(m.stride, m.Exchange, p.w.sentTo(p, m.Run))
		if err != nil {
			return err
		}
		m.Rows = l
		for _, part := range parts {
			out = append(out, part.Buffer.Bytes()[:part.Bytes])
		}
	}
	text, err := m.encode()
	if err != nil {
		return err
	}
	out = append(net.Buffers{text}, out...)
	_, err = out.WriteTo(p.conn)
	return err
}

// readAll reads messages until the connection ends.
func (p *peer) readAll() error {
	for {
		m, err := readMessage(p.in, maxMessage)
		if err != nil {
			return err
		}
		switch m.Kind {
		case ping:
		case bye:
			p.mu.Lock()
			p.left = true
			p.mu.Unlock()
		case failed:
			p.w.fail(&Error{Rank: m.Rank, Text: m.Text, Class: m.Class})
		case want, round:
			p.w.noteRound(p, m)
		case part:
			if m.Rows != nil {
				p.arriving.add(&arrival{m: &Message{Kind: Rows, Run: m.Run, Exchange: m.Exchange, Order: m.Order},
					waits: true})
			}
			p.w.noteRound(p, m)
		case Rows:
			if err := p.readRows(m); err != nil {
				return err
			}
		default:
			if !m.inOrder() {
				p.w.received(p.rank, m, nil)
				continue
			}
			p.arriving.add(&arrival{m: m})
			p.arriving.flush(p)
		}
	}
}

// readRows reads the rows of a message into host memory.
func (p *peer) readRows(m *Message) error {
	if m.Rows == nil {
		return errors.New("a message without the layout of its rows arrives")
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	var schema *gpu.Schema
	var lease *gpu.Lease
	r := p.w.runOf(m.Run)
	if r != nil {
		schema, lease = r.handler.Room(m.Exchange)
	}
	if lease == nil { // the run has ended, or the exchange has
		n, err := m.Rows.bytes()
		if err == nil {
			_, err = io.CopyN(io.Discard, p.in, n)
		}
		return err
	}
	s, parts, err := m.Rows.receive(schema, m.Exchange, r.received[p.rank], r.patient(lease, lease.Alloc))
	if err != nil {
		r.handler.Lost(fmt.Errorf("receive rows of rank %d: %w", p.rank, err))
		return errHere
	}
	for _, part := range parts {
		if _, err := io.ReadFull(p.in, part.Buffer.Bytes()[:part.Bytes]); err != nil {
			s.Release()
			return err
		}
	}
	p.arriving.add(&arrival{m: m, rows: s})
	p.arriving.flush(p)
	return nil
}

// close writes what is left, for some time, and closes the connection.
func (p *peer) close() {
	p.mu.Lock()
	p.closed = true
	p.sent.Broadcast()
	p.mu.Unlock()
	p.awake()
	_ = p.conn.SetWriteDeadline(time.Now().Add(heartbeat))
	p.writing.Wait()
	if c, ok := p.conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
		p.rest() // closing a connection with bytes that are not read would take back what was written
	}
	_ = p.conn.Close()
	<-p.read
	p.forget()
}
