package ranks

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
)

// Planes are the ways of rows between ranks.
const (
	TCP  = "tcp"  // through host memory, over the connections of the ranks
	NCCL = "nccl" // from device memory to device memory, by a gpu.Communicator
)

// World is all ranks, as one of them sees it. Runs follow each other in it, with the same number for all ranks.
type World struct {
	place Place
	plane string
	// local is the number of ranks before this one on its machine, locals that of all ranks there.
	local, locals int
	peers         []*peer // by rank; nil for this one
	others        []*peer
	control       map[Kind]chan *Message

	lost chan struct{} // closed after the first failure
	once sync.Once
	err  error // the first failure

	mu  sync.Mutex
	run *Run // that is in progress, or nil
	n   int  // runs so far
}

// Options configure Join.
type Options struct {
	Version string // of the program, the same for all ranks
	Plane   string // TCP or NCCL, the same for all ranks
	// Patience is how long a rank waits for all others to come, and for a sign of life of one. 0 means the defaults of
	// 5 minutes and of 30 seconds.
	Patience time.Duration
}

const (
	// joining is how long a rank waits for all others, and silence how long for a sign of life of one.
	joining = 5 * time.Minute
	silence = 30 * time.Second
)

// greeting is what a rank says first.
type greeting struct {
	Rank, Size     int
	Version, Plane string
	Name           string // of the run; "" to rank 0, which draws it
	Port           int    // on which the rank listens for those after it
	Machine        string
}

// Join waits for all ranks, and connects to them.
func Join(ctx context.Context, p Place, opt Options) (w *World, err error) {
	if opt.Plane != TCP && opt.Plane != NCCL {
		return nil, fmt.Errorf("rows between ranks go by %s or %s, not by %q", TCP, NCCL, opt.Plane)
	}
	w = &World{place: p, plane: opt.Plane, locals: 1, peers: make([]*peer, p.Size), lost: make(chan struct{}),
		control: map[Kind]chan *Message{}}
	for _, k := range []Kind{plan, ready, begin, finish, quiet, over} {
		w.control[k] = make(chan *Message, 4*p.Size)
	}
	if p.Size == 1 {
		return w, nil
	}
	wait := opt.Patience
	if wait == 0 {
		wait = joining
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("not all %d ranks came within %v", p.Size, wait))
	defer cancel()
	m := &meeting{World: w, opt: opt, conns: make([]net.Conn, p.Size)}
	if err := m.meet(ctx); err != nil {
		for _, c := range m.conns {
			if c != nil {
				_ = write(c, &Message{Kind: failed, Text: err.Error(), Rank: p.Rank})
				_ = c.Close()
			}
		}
		return nil, fmt.Errorf("wait for the other ranks of %d: %w", p.Size, err)
	}
	for rank, c := range m.conns {
		if c != nil {
			w.peers[rank] = newPeer(w, rank, c, opt.Patience)
			w.others = append(w.others, w.peers[rank])
		}
	}
	for _, p := range w.others {
		p.start()
	}
	return w, nil
}

// meeting is the ranks as they come.
type meeting struct {
	*World
	opt   Options
	name  string
	conns []net.Conn
}

// meet connects to all ranks. Each one listens, and connects to those before it.
func (m *meeting) meet(ctx context.Context) error {
	at := ":0"
	if m.place.Rank == 0 {
		_, port, err := net.SplitHostPort(m.place.Address)
		if err != nil {
			return fmt.Errorf("address of rank 0: %w", err)
		}
		at = ":" + port
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen for the other ranks: %w", err)
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	own := greeting{Rank: m.place.Rank, Size: m.place.Size, Version: m.opt.Version, Plane: m.opt.Plane,
		Port: listener.Addr().(*net.TCPAddr).Port, Machine: machine()}
	members := make([]member, m.place.Size)
	members[0].Machine = own.Machine
	if m.place.Rank == 0 {
		m.name = rand.Text()
		if err := m.accept(ctx, listener, 1, members); err != nil {
			return err
		}
		for rank, c := range m.conns[1:] {
			if err := write(c, &Message{Kind: all, Text: m.name, Data: encoded(members)}); err != nil {
				return fmt.Errorf("rank %d: %w", rank+1, err)
			}
		}
	} else {
		c, answer, err := m.dial(ctx, 0, m.place.Address, own)
		if err != nil {
			return err
		}
		m.conns[0], m.name = c, answer.Text
		if err := json.Unmarshal(answer.Data, &members); err != nil || len(members) != m.place.Size {
			return errors.New("rank 0 does not tell the addresses of all ranks")
		}
		own.Name = m.name
		for rank := 1; rank < m.place.Rank; rank++ {
			if m.conns[rank], _, err = m.dial(ctx, rank, members[rank].Address, own); err != nil {
				return err
			}
		}
		if err := m.accept(ctx, listener, m.place.Rank+1, nil); err != nil {
			return err
		}
	}
	m.locals = 0
	for rank, each := range members {
		if each.Machine != members[m.place.Rank].Machine {
			continue
		}
		if m.locals++; rank < m.place.Rank {
			m.local++
		}
	}
	return nil
}

// member is where a rank is.
type member struct{ Address, Machine string }

// accept waits for the ranks from first on. Rank 0 notes where they are. If a rank cannot take part, it waits some time
// for the others, to tell them.
func (m *meeting) accept(ctx context.Context, l net.Listener, first int, members []member) (wrong error) {
	for missing := m.place.Size - first; missing > 0; {
		c, err := l.Accept()
		if wrong != nil && err != nil {
			return wrong
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				var ranks []string
				for rank := first; rank < m.place.Size; rank++ {
					if m.conns[rank] == nil {
						ranks = append(ranks, fmt.Sprint(rank))
					}
				}
				return fmt.Errorf("%w: missing: %s", cause, strings.Join(ranks, ", "))
			}
			return err
		}
		who, err := m.greeted(c)
		if err != nil && wrong == nil {
			wrong = err
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(greetingTime))
		}
		if who == nil || who.Rank < first || m.conns[who.Rank] != nil {
			_ = c.Close() // of somebody else
			continue
		}
		m.conns[who.Rank] = c
		missing--
		if members != nil {
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			members[who.Rank] = member{net.JoinHostPort(host, fmt.Sprint(who.Port)), who.Machine}
		} else if err := write(c, &Message{Kind: hello}); err != nil {
			return fmt.Errorf("rank %d: %w", who.Rank, err)
		}
	}
	return wrong
}

// greeted returns the greeting of a connection, nil if it is not of a rank of this run. A rank that cannot take part is
// an error.
func (m *meeting) greeted(c net.Conn) (*greeting, error) {
	_ = c.SetDeadline(time.Now().Add(greetingTime))
	defer c.SetDeadline(time.Time{})
	hi, err := readMessage(c, maxGreeting)
	who := &greeting{}
	if err != nil || hi.Kind != hello || json.Unmarshal(hi.Data, who) != nil || who.Rank < 0 ||
		who.Rank >= m.place.Size || m.place.Rank > 0 && who.Name != m.name {
		return nil, nil
	}
	switch {
	case who.Size != m.place.Size:
		err = fmt.Errorf("rank %d was started as one of %d ranks, and rank %d as one of %d", who.Rank, who.Size,
			m.place.Rank, m.place.Size)
	case who.Version != m.opt.Version:
		err = fmt.Errorf("rank %d is gstream %s, and rank %d is %s: use one version on all machines", who.Rank,
			who.Version, m.place.Rank, m.opt.Version)
	case who.Plane != m.opt.Plane:
		err = fmt.Errorf("rank %d sends rows by %s, and rank %d by %s", who.Rank, who.Plane, m.place.Rank,
			m.opt.Plane)
	}
	return who, err
}

// maxGreeting bounds the bytes of a greeting, which comes before it is known who says it, and greetingTime the time for
// it.
const (
	maxGreeting  = 64 << 10
	greetingTime = 5 * time.Second
)

// dial connects to a rank, which may not listen yet, and returns its answer.
func (m *meeting) dial(ctx context.Context, rank int, address string, own greeting) (net.Conn, *Message, error) {
	dialer := net.Dialer{Timeout: greetingTime}
	for {
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			var answer *Message
			var refused bool
			if answer, refused, err = exchangeGreetings(ctx, c, own); err == nil {
				return c, answer, nil
			}
			_ = c.Close()
			if refused {
				return nil, nil, err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: connect to rank %d at %s: %w", context.Cause(ctx), rank, address, err)
		}
	}
}

// exchangeGreetings sends a greeting and returns the answer. refused says that another attempt cannot help.
func exchangeGreetings(ctx context.Context, c net.Conn, own greeting) (answer *Message, refused bool, err error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if err := write(c, &Message{Kind: hello, Data: encoded(own)}); err != nil {
		return nil, false, err
	}
	answer, err = readMessage(c, maxMessage)
	if err != nil {
		return nil, false, err
	}
	if answer.Kind == failed {
		return nil, true, errors.New(answer.Text)
	}
	return answer, false, nil
}

func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of types of this package, which can be encoded
	}
	return text
}

func write(c net.Conn, m *Message) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	_, err = c.Write(text)
	return err
}

// machine names this machine: two that have the same name started at different times.
func machine() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + " " + strings.TrimSpace(string(boot))
}

// Rank returns the number of this process, and Size that of all.
func (w *World) Rank() int { return w.place.Rank }

// Size returns the number of ranks.
func (w *World) Size() int { return w.place.Size }

// Local returns how many ranks are before this one on its machine, and how many ranks are there.
func (w *World) Local() (before, ranks int) { return w.local, w.locals }

// Plane returns the way of rows: TCP or NCCL.
func (w *World) Plane() string { return w.plane }

// Error is a failure of another rank.
type Error struct {
	Rank  int
	Text  string
	Class string // as that rank has told, or ""
}

func (e *Error) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Fail tells all ranks of an error of this one, or of what it has heard of another one, since that may have ended. No
// run can continue or begin.
func (w *World) Fail(err error, class string) {
	m := &Message{Kind: failed, Text: err.Error(), Class: class, Rank: w.place.Rank}
	var remote *Error
	if errors.As(err, &remote) {
		m.Text, m.Class, m.Rank = remote.Text, remote.Class, remote.Rank
	}
	for _, p := range w.others {
		p.send(m)
	}
	w.fail(err)
}

// fail notes the first failure, and ends the run in progress.
func (w *World) fail(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.lost)
		w.mu.Lock()
		r := w.run
		w.mu.Unlock()
		if r != nil {
			r.handler.Lost(err)
		}
	})
}

// Close says goodbye to all ranks, after an error of this one with its text.
func (w *World) Close(err error) {
	if err != nil {
		w.Fail(err, "")
	}
	for _, p := range w.others {
		p.send(&Message{Kind: bye})
	}
	for _, p := range w.others {
		p.close()
	}
}

// await returns the next message of a kind.
func (w *World) await(ctx context.Context, k Kind) (*Message, error) {
	select {
	case m := <-w.control[k]:
		return m, nil
	case <-w.lost:
		return nil, w.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// received handles a message of another rank. s are its rows, which it takes over.
func (w *World) received(from int, m *Message, s *gpu.Stride) {
	if c := w.control[m.Kind]; c != nil {
		select {
		case c <- m:
		default: // nobody waits for so many
		}
		return
	}
	r := w.runOf(m.Run)
	if r == nil {
		if s != nil {
			s.Release()
		}
		return // of a run that has ended
	}
	if m.Kind == Rows {
		r.handler.Rows(from, m.Exchange, m.Order, s)
		return
	}
	r.handler.Message(from, m)
}

// reader reads from a connection, which has an end if nothing comes for some time.
type reader struct {
	net.Conn
	silence time.Duration
}

func (r reader) Read(b []byte) (int, error) {
	_ = r.SetReadDeadline(time.Now().Add(r.silence))
	return r.Conn.Read(b)
}

func buffered(c net.Conn, patience time.Duration) *bufio.Reader {
	if patience == 0 {
		patience = silence
	}
	return bufio.NewReaderSize(reader{c, patience}, 1<<20)
}
