package ranks

import (
	"context"
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// rounds moves rows by a communicator. The calls of a communicator must have the same order on all ranks, and a
// receiver must know how much comes. So rows go in rounds that all ranks make together:
//
//   - A rank with rows to send tells rank 0, which begins a round unless there is one.
//   - Each rank tells each other one which rows it sends to it in the round: those that have waited longest, or none.
//   - It allocates what arrives, makes one call, and waits for it.
//
// One goroutine makes the rounds. A round without rows costs a message between each two ranks.
type rounds struct {
	run  *Run
	comm gpu.Communicator
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	offered map[*peer]*Message       // the first rows for each rank
	wanted  bool                     // rank 0: somebody has rows to send
	last    int                      // the last round that rank 0 has begun
	parts   map[int]map[int]*Message // of rounds, by rank
	told    bool                     // rank 0 knows of rows that wait
}

func newRounds(r *Run, c gpu.Communicator) *rounds {
	x := &rounds{run: r, comm: c, done: make(chan struct{}), offered: map[*peer]*Message{},
		parts: map[int]map[int]*Message{}}
	x.changed.L = &x.mu
	x.ctx, x.stop = context.WithCancel(r.ctx)
	context.AfterFunc(x.ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.changed.Broadcast()
	})
	return x
}

func (x *rounds) start() {
	go func() {
		defer close(x.done)
		for n := 1; x.ctx.Err() == nil; n++ {
			if err := x.make(n); err != nil {
				if x.ctx.Err() == nil {
					x.run.handler.Lost(fmt.Errorf("send rows to other ranks: %w", err))
				}
				return
			}
		}
	}()
}

// end ends the rounds. No rows are under way.
func (x *rounds) end() error {
	x.stop()
	<-x.done
	return x.comm.Close()
}

// offer says which rows are the next ones for a rank.
func (x *rounds) offer(p *peer, m *Message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offered[p] = m
	if x.run.w.place.Rank == 0 {
		x.wanted = true
		x.changed.Broadcast()
	} else if !x.told {
		x.told = true
		x.run.Send(0, &Message{Kind: want})
	}
}

// noteRound notes a message about rounds.
func (w *World) noteRound(p *peer, m *Message) {
	r := w.runOf(m.Run)
	if r == nil || r.rounds == nil {
		return
	}
	x := r.rounds
	x.mu.Lock()
	defer x.mu.Unlock()
	switch m.Kind {
	case want:
		x.wanted = true
	case round:
		x.last = m.Round
	case part:
		x.partsOf(m.Round)[p.rank] = m
	}
	x.changed.Broadcast()
}

// partsOf returns what other ranks send in a round. The caller holds the lock.
func (x *rounds) partsOf(n int) map[int]*Message {
	if x.parts[n] == nil {
		x.parts[n] = map[int]*Message{}
	}
	return x.parts[n]
}

// until waits for a condition. It returns false if the rounds end. The caller holds the lock.
func (x *rounds) until(what func() bool) bool {
	for !what() {
		if x.ctx.Err() != nil {
			return false
		}
		x.changed.Wait()
	}
	return true
}

// begin waits for a round, and returns the rows that this rank sends in it.
func (x *rounds) begin(n int) map[*peer]*Message {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.run.w.place.Rank == 0 {
		if !x.until(func() bool { return x.wanted }) {
			return nil
		}
		x.wanted, x.last = false, n
		x.run.SendAll(&Message{Kind: round, Round: n})
	} else if !x.until(func() bool { return x.last >= n }) {
		return nil
	}
	x.told = false
	mine := x.offered
	x.offered = map[*peer]*Message{}
	return mine
}

// make makes a round.
func (x *rounds) make(n int) error {
	mine := x.begin(n)
	if mine == nil {
		return nil
	}
	w := x.run.w
	var send, receive []gpu.Part
	var events []gpu.Event
	for _, p := range w.others {
		m := &Message{Kind: part, Run: x.run.number, Round: n}
		if rows := mine[p]; rows != nil {
			l, parts, err := layoutOf(rows.stride, rows.Exchange, x.run.sent[p.rank])
			if err != nil {
				return err
			}
			m.Exchange, m.Order, m.Rows = rows.Exchange, rows.Order, l
			for _, each := range parts {
				each.Rank = p.rank
				send = append(send, each)
			}
			events = append(events, rows.stride.Ready)
		}
		p.send(m)
	}
	x.mu.Lock()
	known := x.until(func() bool { return len(x.parts[n]) == len(w.others) })
	theirs := x.parts[n]
	delete(x.parts, n)
	x.mu.Unlock()
	if !known {
		return nil
	}
	arrived := make([]*gpu.Stride, w.place.Size)
	drop := func() {
		for _, s := range arrived {
			if s != nil {
				s.Release()
			}
		}
	}
	for _, p := range w.others {
		m := theirs[p.rank]
		if m.Rows == nil {
			continue
		}
		s, parts, err := x.receive(p, m)
		if err != nil {
			drop()
			return fmt.Errorf("receive rows of rank %d: %w", p.rank, err)
		}
		arrived[p.rank] = s
		for _, each := range parts {
			each.Rank = p.rank
			receive = append(receive, each)
		}
	}
	if len(send)+len(receive) > 0 {
		if err := x.comm.Exchange(x.ctx, events, send, receive); err != nil {
			drop()
			return err
		}
	}
	for p := range mine {
		p.went()
	}
	for _, p := range w.others {
		if s := arrived[p.rank]; s != nil {
			p.arriving.came(s)
			p.arriving.flush(p)
		}
	}
	return nil
}

// receive makes the stride into which the rows of a rank go.
func (x *rounds) receive(p *peer, m *Message) (*gpu.Stride, []gpu.Part, error) {
	schema, lease := x.run.handler.Room(m.Exchange)
	if lease == nil {
		return nil, nil, fmt.Errorf("there is no receiver of exchange %d", m.Exchange)
	}
	return m.Rows.receive(schema, m.Exchange, x.run.received[p.rank], x.run.patient(lease,
		func(n int64) (*gpu.Buffer, error) { return x.comm.Alloc(lease, n) }))
}
