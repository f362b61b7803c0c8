package ranks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

func TestFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		env  string
		want Place
		text string
	}{
		{"RANK=2 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5", Place{2, 4, "a:5"}, ""},
		{"RANK=2 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True", Place{2, 4, "a:6"}, ""},
		{"SLURM_PROCID=1 SLURM_NTASKS=2 MASTER_ADDR=::1 MASTER_PORT=5", Place{1, 2, "[::1]:5"}, ""},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", Place{Size: 1}, ""},
		{"RANK=0", Place{}, "PMI_RANK and PMI_SIZE (MPICH)"},
		{"RANK=4 WORLD_SIZE=4", Place{}, "RANK=4 and WORLD_SIZE=4"},
		{"RANK=0 WORLD_SIZE=65", Place{}, "at most 64"},
		{"RANK=x WORLD_SIZE=2", Place{}, "RANK=x"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", Place{}, "MASTER_PORT="},
		{"RANK=0 WORLD_SIZE=2 MASTER_PORT=7", Place{}, "MASTER_ADDR="},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		got, err := FromEnvironment(func(name string) string { return env[name] })
		if c.text != "" {
			require.ErrorContains(t, err, c.text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// join joins ranks in this process, each with options of its own.
func join(t testing.TB, sizes []int, opts []Options) ([]*World, []error) {
	address := gputest.FreeAddress(t)
	worlds, errs := make([]*World, len(opts)), make([]error, len(opts))
	var all sync.WaitGroup
	for i, opt := range opts {
		all.Go(func() {
			worlds[i], errs[i] = Join(context.Background(), Place{i, sizes[i], address}, opt)
		})
	}
	all.Wait()
	return worlds, errs
}

func TestRanksThatDoNotFitEachOtherAreRefused(t *testing.T) {
	opt := Options{Version: "1", Plane: TCP, Patience: 2 * time.Second}
	other := func(change func(*Options)) Options {
		o := opt
		change(&o)
		return o
	}
	for _, c := range []struct {
		size int
		opt  Options
		text string
	}{
		{3, other(func(o *Options) { o.Version = "2" }), "use one version on all machines"},
		{3, other(func(o *Options) { o.Plane = NCCL }), "sends rows by nccl"},
		{2, opt, "was started as one of 2 ranks"},
		{3, other(func(o *Options) { o.Plane = "pigeons" }), "pigeons"},
	} {
		worlds, errs := join(t, []int{3, c.size, 3}, []Options{opt, c.opt, opt})
		for i := range worlds {
			if c.text != "pigeons" || i == 1 {
				require.ErrorContains(t, errs[i], c.text, "rank %d", i)
			} else {
				require.ErrorContains(t, errs[i], "not all 3 ranks came within 2s", "rank %d", i)
			}
		}
	}
}

func TestStrangersAreTurnedAway(t *testing.T) {
	address := gputest.FreeAddress(t)
	done := make(chan struct{})
	var strangers sync.WaitGroup
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x02{}", ""} {
		strangers.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if c, err := net.Dial("tcp", address); err == nil {
					_, _ = c.Write([]byte(text))
					_ = c.Close()
				}
			}
		})
	}
	worlds, errs := make([]*World, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range worlds {
		all.Go(func() {
			time.Sleep(time.Duration(30*(3-i)) * time.Millisecond)
			worlds[i], errs[i] = Join(context.Background(), Place{i, 3, address}, Options{Plane: TCP})
		})
	}
	all.Wait()
	close(done)
	strangers.Wait()
	for i, w := range worlds {
		require.NoError(t, errs[i])
		before, n := w.Local()
		require.Equal(t, []int{i, 3}, []int{before, n})
	}
	for _, w := range worlds {
		all.Go(func() { w.Close(nil) })
	}
	all.Wait()
}

// TestARankThatIsSilentOrGoneIsLost has one rank that stops to speak, or whose process ends, before a run and in it.
func TestARankThatIsSilentOrGoneIsLost(t *testing.T) {
	for _, silent := range []bool{false, true} {
		opt := Options{Plane: TCP, Patience: 1500 * time.Millisecond}
		worlds, errs := join(t, []int{3, 3, 3}, []Options{opt, opt, opt})
		for _, err := range errs {
			require.NoError(t, err)
		}
		for _, p := range worlds[1].others {
			if silent { // it writes nothing more
				p.mu.Lock()
				defer p.mu.Unlock()
			} else {
				_ = p.conn.Close()
			}
		}
		var all sync.WaitGroup
		for _, i := range []int{0, 2} {
			all.Go(func() {
				r, err := worlds[i].Begin(t.Context(), &struct{}{})
				if err == nil {
					err = r.Ready(nothing{}, nil)
				}
				want := "its process has ended"
				if silent {
					want = "it is silent"
				}
				if !silent {
					want = "is lost"
				}
				var lost *Error
				require.ErrorAs(t, err, &lost)
				require.Equal(t, 1, lost.Rank)
				require.ErrorContains(t, err, want)
			})
		}
		all.Wait()
	}
}

// nothing is a Handler of a run without exchanges.
type nothing struct{}

func (nothing) Room(int) (*gpu.Schema, *gpu.Lease) { return nil, nil }
func (nothing) Rows(int, int, int, *gpu.Stride)    {}
func (nothing) Message(int, *Message)              {}
func (nothing) Lost(error)                         {}

// FuzzRowsThatArrive reads messages, and makes strides of their layouts.
func FuzzRowsThatArrive(f *testing.F) {
	schema := gpu.NewSchema(gpu.Field{Name: "i", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "s", Type: gpu.Of(gpu.String)})
	for _, l := range []layout{
		{1, []columnLayout{{Length: 1, Data: 8}, {Length: 1, Offsets: 8, Data: 3}}},
		{2, []columnLayout{{Length: 2, Data: 16, Valid: 8}, {Length: 2, Data: 8,
			Values: &columnLayout{Length: 1, Offsets: 8, Data: 1}}}},
		{2, []columnLayout{{Length: 2, Data: 8, CodeWidth: 4}, {Length: 2, Data: 8, Same: true}}},
		{-1, []columnLayout{{Length: -1}, {Data: -5, Offsets: 1 << 60}}},
	} {
		text, err := (&Message{Kind: Rows, Rows: &l}).encode()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMessage(bytes.NewReader(data), 1<<20)
		if err != nil || m.Rows == nil {
			return
		}
		received := dictionaries{}
		defer received.release()
		used := int64(0)
		alloc := func(n int64) (*gpu.Buffer, error) {
			if used += n; used > 1<<20 {
				return nil, fmt.Errorf("the budget is %d bytes", 1<<20)
			}
			return gpu.WrapBytes(make([]byte, n)), nil
		}
		s, parts, err := m.Rows.receive(schema, 0, received, alloc)
		if err != nil {
			require.Nil(t, s)
			return
		}
		require.NoError(t, s.Check())
		n, err := m.Rows.bytes()
		require.NoError(t, err)
		for _, p := range parts {
			n -= p.Bytes
		}
		require.Zero(t, n)
		// What arrived is sent again with the same layout, but for a dictionary that was known.
		again, _, err := layoutOf(s, 0, dictionaries{})
		require.NoError(t, err)
		require.Equal(t, s.Rows, again.Rows)
		s.Release()
	})
}

func TestMessagesKeepTheirForm(t *testing.T) {
	in := &Message{Kind: Sample, Run: 3, Exchange: 2, Order: 7, Text: "t", Data: json.RawMessage(`{"a":1}`)}
	text, err := in.encode()
	require.NoError(t, err)
	out, err := readMessage(bytes.NewReader(text), maxMessage)
	require.NoError(t, err)
	require.Equal(t, in, out)
	for n := range text {
		_, err := readMessage(bytes.NewReader(text[:n]), maxMessage)
		require.Error(t, err)
	}
	_, err = readMessage(bytes.NewReader(text), 3)
	require.ErrorContains(t, err, "more than 3")
}
