package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// Handler takes what other ranks send in a run. Its methods do not wait. Those of one rank come one after the other,
// Rows and the messages between them in the order in which they were sent.
type Handler interface {
	// Room returns the schema of the rows of an exchange, and the lease that pays for rows that arrive; nil if the
	// exchange has no receiver here.
	Room(exchange int) (*gpu.Schema, *gpu.Lease)
	// Rows takes rows over: in host memory, or in memory of the device if they went by a Communicator.
	Rows(from, exchange, order int, s *gpu.Stride)
	Message(from int, m *Message)
	// Lost says that the run cannot continue.
	Lost(err error)
}

// Run is one run of all ranks.
type Run struct {
	w       *World
	number  int
	ctx     context.Context
	handler Handler
	rounds  *rounds // nil if rows go by TCP
	// sent and received are the dictionaries of rows, by rank.
	sent, received []dictionaries
}

// Begin begins a run. Rank 0 gives what the others need for it, and they receive it.
func (w *World) Begin(ctx context.Context, start any) (*Run, error) {
	w.mu.Lock()
	w.n++
	r := &Run{w: w, number: w.n, ctx: ctx}
	w.mu.Unlock()
	for range w.place.Size {
		r.sent, r.received = append(r.sent, dictionaries{}), append(r.received, dictionaries{})
	}
	if w.place.Rank > 0 {
		m, err := w.await(ctx, plan)
		if err != nil {
			return nil, err
		}
		return r, json.Unmarshal(m.Data, start)
	}
	select {
	case <-w.lost:
		return nil, w.err
	default:
	}
	text, err := json.Marshal(start)
	if err != nil {
		return nil, err
	}
	if len(text) > maxMessage/2 {
		return nil, errors.New("the plan is too large to be sent to other ranks")
	}
	for _, p := range w.others {
		p.send(&Message{Kind: plan, Run: r.number, Data: text})
	}
	return r, nil
}

// Ready waits until all ranks are ready. From then on they send rows, which a handler takes. Rows go by a communicator,
// or by TCP if it is nil. The run takes the communicator over.
func (r *Run) Ready(h Handler, c gpu.Communicator) error {
	r.handler = h
	if c != nil {
		r.rounds = newRounds(r, c)
	}
	r.w.mu.Lock()
	r.w.run = r
	r.w.mu.Unlock()
	if r.rounds != nil {
		r.rounds.start()
	}
	return r.gather(ready, begin)
}

// gather waits until all ranks have said one thing to rank 0, and rank 0 then another one to all.
func (r *Run) gather(to0, from0 Kind) error {
	if r.w.place.Rank > 0 {
		r.w.peers[0].send(&Message{Kind: to0, Run: r.number})
		_, err := r.w.await(r.ctx, from0)
		return err
	}
	for range r.w.others {
		if _, err := r.w.await(r.ctx, to0); err != nil {
			return err
		}
	}
	r.tell(from0)
	return nil
}

func (r *Run) tell(k Kind) {
	for _, p := range r.w.others {
		p.send(&Message{Kind: k, Run: r.number})
	}
}

// Needed waits, on other ranks than rank 0, until no more rows are needed.
func (r *Run) Needed() error {
	_, err := r.w.await(r.ctx, finish)
	return err
}

// Enough says, on rank 0, that no more rows are needed.
func (r *Run) Enough() { r.tell(finish) }

// Quiet waits until no rank has rows under way. The caller sends none any more. Rank 0 gets what each other rank has
// given.
func (r *Run) Quiet(give any) (given []json.RawMessage, err error) {
	for _, p := range r.w.others {
		p.drain(r.ctx)
	}
	if r.w.place.Rank > 0 {
		text, err := json.Marshal(give)
		if err != nil {
			return nil, err
		}
		r.w.peers[0].send(&Message{Kind: quiet, Run: r.number, Data: text})
		return nil, nil
	}
	for range r.w.others {
		m, err := r.w.await(r.ctx, quiet)
		if err != nil {
			return nil, err
		}
		given = append(given, m.Data)
	}
	return given, nil
}

// Over says, on rank 0, that the run has succeeded. The others wait until it says so.
func (r *Run) Over() error {
	if r.w.place.Rank == 0 {
		r.tell(over)
		return nil
	}
	_, err := r.w.await(r.ctx, over)
	return err
}

// End ends the run. What arrives later is dropped. After a failure it also ends the connections.
func (r *Run) End() error {
	r.w.mu.Lock()
	r.w.run = nil
	r.w.mu.Unlock()
	var err error
	if r.rounds != nil {
		err = r.rounds.end()
	}
	for _, p := range r.w.others {
		select {
		case <-r.w.lost:
			p.close()
		default:
		}
		p.reading.Lock() // of rows of this run
		p.forget()
		p.reading.Unlock()
	}
	for i := range r.sent {
		r.sent[i].release()
		r.received[i].release()
	}
	return err
}

// forget drops rows that wait to be sent, and those that have arrived.
func (p *peer) forget() {
	p.mu.Lock()
	for _, m := range p.ordered {
		m.drop()
	}
	p.ordered, p.sending = nil, false
	p.mu.Unlock()
	p.arriving.drop()
}

// Send sends a message to a rank.
func (r *Run) Send(to int, m *Message) {
	m.Run = r.number
	r.w.peers[to].send(m)
}

// SendAll sends a message to all other ranks.
func (r *Run) SendAll(m *Message) {
	m.Run = r.number
	for _, p := range r.w.others {
		p.send(m)
	}
}

// SendRows sends rows to a rank, and takes them over: rows in host memory or, by a communicator, in memory of the
// device.
func (r *Run) SendRows(to, exchange, order int, s *gpu.Stride) {
	r.w.peers[to].send(&Message{Kind: Rows, Run: r.number, Exchange: exchange, Order: order, stride: s})
}

// runOf returns the run in progress if it has a number, or nil.
func (w *World) runOf(number int) *Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.run.number != number {
		return nil
	}
	return w.run
}

// rounds returns the rounds of the run in progress, nil if there are none.
func (w *World) rounds() *rounds {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		return nil
	}
	return w.run.rounds
}

// sentTo returns the dictionaries that were sent to a rank.
func (w *World) sentTo(p *peer, number int) dictionaries {
	if r := w.runOf(number); r != nil {
		return r.sent[p.rank]
	}
	return dictionaries{}
}

// patient returns a function that allocates, and waits for memory if there will be more.
func (r *Run) patient(l *gpu.Lease, alloc func(int64) (*gpu.Buffer, error)) func(int64) (*gpu.Buffer, error) {
	return func(n int64) (*gpu.Buffer, error) {
		for {
			left := l.Available()
			b, err := alloc(n)
			if err == nil || !errors.Is(err, gpu.ErrBudget) || !l.AwaitMore(r.ctx, left) {
				return b, err
			}
		}
	}
}

// arriving is what has arrived of a rank and must be handled in order.
type arriving struct {
	mu   sync.Mutex
	list []*arrival
}

// arrival is a message in order. One that waits is of rows that come in a round.
type arrival struct {
	m     *Message
	rows  *gpu.Stride
	waits bool
}

func (a *arriving) add(x *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, x)
}

// came notes the rows of the first arrival that waits for a round.
func (a *arriving) came(s *gpu.Stride) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.list {
		if x.waits {
			x.rows, x.waits = s, false
			return
		}
	}
	s.Release()
}

// flush handles all messages up to the first one that waits.
func (a *arriving) flush(p *peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.list) > 0 && !a.list[0].waits {
		x := a.list[0]
		a.list = a.list[1:]
		p.w.received(p.rank, x.m, x.rows)
	}
}

// drop releases all rows.
func (a *arriving) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.list {
		if x.rows != nil {
			x.rows.Release()
		}
	}
	a.list = nil
}
