package ranks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gstream/gstream/gpu"
)

// Kind says what a message is about.
type Kind string

// The kinds of messages of an exchange.
const (
	Start   Kind = "start"   // rows are wanted
	Rows    Kind = "rows"    // rows of a sender, with their position
	Pass    Kind = "pass"    // later rows of a sender have at least this position
	End     Kind = "end"     // a sender has no more rows
	Room    Kind = "room"    // a receiver has taken rows of a sender
	Stopped Kind = "stopped" // a receiver needs no more rows
	Sample  Kind = "sample"  // keys of rows of a sender
)

// The kinds of messages that the package itself uses.
const (
	ping   Kind = "ping"
	bye    Kind = "bye"
	failed Kind = "failed"
	hello  Kind = "hello"
	all    Kind = "all" // the addresses of all ranks

	plan   Kind = "plan"   // from rank 0: a run begins
	ready  Kind = "ready"  // to rank 0: it may begin
	begin  Kind = "begin"  // from rank 0: all are ready
	finish Kind = "finish" // from rank 0: no more rows are needed
	quiet  Kind = "quiet"  // to rank 0: no more rows will come
	over   Kind = "over"   // from rank 0: the outputs are complete

	want  Kind = "want"  // to rank 0: there are rows to send in a round
	round Kind = "round" // from rank 0: a round begins
	part  Kind = "part"  // rows that come in a round, or none
)

// Message is what one rank tells another one.
type Message struct {
	Kind     Kind            `json:"kind"`
	Run      int             `json:"run,omitempty"`
	Exchange int             `json:"exchange,omitempty"`
	Order    int             `json:"order,omitempty"`
	Round    int             `json:"round,omitempty"`
	Text     string          `json:"text,omitempty"`
	Class    string          `json:"class,omitempty"` // of an error
	Rank     int             `json:"rank,omitempty"`  // that has failed
	Data     json.RawMessage `json:"data,omitempty"`
	Rows     *layout         `json:"rows,omitempty"`

	stride *gpu.Stride // that is sent; the message owns it
}

// inOrder reports whether a message must not overtake another one of its sender.
func (m *Message) inOrder() bool { return m.Kind == Rows || m.Kind == Pass || m.Kind == End }

// maxMessage bounds the bytes of a message without its rows.
const maxMessage = 256 << 20

// encode returns a message with its length.
func (m *Message) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > maxMessage {
		return nil, fmt.Errorf("a message for another rank has %d bytes, at most %d", len(text), maxMessage)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, len(text)+4), uint32(len(text))), text...), nil
}

// readMessage reads a message. Its rows follow.
func readMessage(r io.Reader, most uint32) (*Message, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > most {
		return nil, fmt.Errorf("a message of %d bytes, more than %d: it is not of a gstream of this version", n, most)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(n))) // memory grows with what arrives
	if err != nil {
		return nil, err
	}
	if len(text) < int(n) {
		return nil, io.ErrUnexpectedEOF
	}
	m := &Message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("decode a message: %w", err)
	}
	return m, nil
}
