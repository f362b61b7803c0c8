package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// scalarJSON is a Scalar in JSON. A float is stored as its bits, because JSON has neither NaN nor
// infinities. A string is stored as bytes, because it may be a BLOB.
type scalarJSON struct {
	Type  Type
	Valid bool   `json:",omitempty"`
	Int   Int128 `json:",omitzero"`
	Float string `json:",omitempty"`
	Str   []byte `json:",omitempty"`
}

// MarshalJSON implements json.Marshaler. UnmarshalJSON restores the same bits.
func (s Scalar) MarshalJSON() ([]byte, error) {
	out := scalarJSON{Type: s.Type, Valid: s.Valid, Int: s.Int, Str: []byte(s.Str)}
	if bits := math.Float64bits(s.Float); bits != 0 {
		out.Float = strconv.FormatUint(bits, 16)
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Scalar) UnmarshalJSON(data []byte) error {
	var in scalarJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = Scalar{Type: in.Type, Valid: in.Valid, Int: in.Int, Str: string(in.Str)}
	if in.Float != "" {
		bits, err := strconv.ParseUint(in.Float, 16, 64)
		if err != nil {
			return fmt.Errorf("the bits of a float: %w", err)
		}
		s.Float = math.Float64frombits(bits)
	}
	return nil
}
