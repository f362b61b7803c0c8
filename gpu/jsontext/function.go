package jsontext

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Function is an instruction with gpu.OpJSON or gpu.OpParseNested. It keeps memory from row to row, and serves one
// goroutine.
type Function struct {
	in     *gpu.Instr
	path   *Path
	text   string // of path, if an argument has it
	finder Finder
}

// New returns the function of an instruction. The error is that of its path.
func New(in *gpu.Instr) (*Function, error) {
	f := &Function{in: in, path: &Path{}}
	if in.Op != gpu.OpJSON || !in.Value.Valid {
		return f, nil
	}
	var err error
	if f.path, err = ParsePath(in.Value.Str); err != nil {
		return nil, gpu.FailedIn(in.Text, "%v", err)
	}
	return f, nil
}

// Row is the function on one row. x is the first argument, y the second one, if there are two. It appends a text or an
// encoding to out, or returns a number. ok is false for a null. The error says why there is no result, as
// gpu.Instr.Failed takes it.
func (f *Function) Row(out []byte, x, y string) (_ []byte, number uint64, ok bool, err error) {
	if f.in.Op == gpu.OpParseNested {
		from := len(out)
		if out, err = gpu.AppendParsed(out, x, f.in.Value.Type, f.in.N == 1); err != nil {
			return out, 0, false, err
		}
		return out, 0, out[from] != gpu.TagNull, nil
	}
	out, number, ok, err = f.json(out, x, y)
	if err != nil {
		err = fmt.Errorf("%w: %.60q", err, x)
	}
	return out, number, ok, err
}

func (f *Function) json(out []byte, x, y string) (_ []byte, number uint64, ok bool, err error) {
	switch fn := gpu.JSONFunc(f.in.N); fn {
	case gpu.JSONValid:
		return out, numberOf(f.finder.Check(x) == nil), true, nil
	case gpu.JSONCheck, gpu.JSONTryCheck:
		if err = f.finder.Check(x); err != nil && fn == gpu.JSONTryCheck {
			return out, 0, false, nil
		}
		return append(out, x...), 0, err == nil, err
	case gpu.JSONContains:
		ok, err = f.finder.Contains(x, y)
		return out, numberOf(ok), err == nil, err
	case gpu.JSONMerge:
		out, err = f.finder.Merge(out, x, y)
		return out, 0, err == nil, err
	case gpu.JSONStructure:
		out, err = f.finder.AppendStructure(out, x)
		return out, 0, err == nil, err
	case gpu.JSONPretty, gpu.JSONTransform, gpu.JSONTransformStrict, gpu.JSONCast, gpu.JSONTryCast:
		value, _, err := f.finder.Find(x, f.path)
		if err != nil {
			return out, 0, false, err
		}
		if fn == gpu.JSONPretty {
			return AppendPretty(out, value), 0, true, nil
		}
		out, ok, err = transformers[fn].root(out, value, f.in.Value.Type)
		return out, 0, ok, err
	}
	if len(f.in.Args) > 1 && y != f.text {
		p, err := ParsePath(y)
		if err == nil && p.many {
			err = fmt.Errorf("a path that is not constant cannot have wildcards, as '%.60s' has", y)
		}
		if err != nil {
			return out, 0, false, err
		}
		f.path, f.text = p, y
	}
	if f.path.many {
		values, err := f.finder.All(x, f.path)
		if err != nil {
			return out, 0, false, err
		}
		return f.list(out, values), 0, true, nil
	}
	value, found, err := f.finder.Find(x, f.path)
	if err != nil {
		return out, 0, false, err
	}
	return f.of(out, value, found)
}

// list appends the list of the results for values.
func (f *Function) list(out []byte, values []string) []byte {
	t := f.in.Type.Element()
	out = gpu.OpenNested(out)
	var text []byte
	for _, v := range values {
		var n uint64
		var ok bool
		switch text, n, ok, _ = f.of(text[:0], v, true); {
		case !ok:
			out = gpu.AppendNull(out)
		case t.IsNested():
			out = append(out, text...)
		case t.IsVar():
			out = gpu.AppendBytes(out, text)
		default:
			out = gpu.AppendFixed(out, t, gpu.Int128FromUint(n))
		}
	}
	return gpu.CloseNested(out)
}

// of is the function of one value.
func (f *Function) of(out []byte, value string, found bool) (_ []byte, number uint64, ok bool, err error) {
	fn := gpu.JSONFunc(f.in.N)
	if fn == gpu.JSONExists {
		return out, numberOf(found), true, nil
	}
	if !found {
		return out, 0, false, nil
	}
	switch kind := value[0]; {
	case fn == gpu.JSONExtract:
		out = AppendJSON(out, value)
	case fn == gpu.JSONType:
		out = append(out, kindOf(value)...)
	case fn == gpu.JSONLength:
		if kind == '[' {
			for range children(value) {
				number++
			}
		}
	case fn == gpu.JSONKeys:
		out = gpu.OpenNested(out)
		if kind == '{' {
			for key := range children(value) {
				out = gpu.AppendBytes(out, TextOf(key))
			}
		}
		out = gpu.CloseNested(out)
	case value == "null", fn == gpu.JSONScalar && (kind == '{' || kind == '['):
		return out, 0, false, nil
	case fn == gpu.JSONText && kind == '"':
		out = AppendText(out, value)
	default:
		out = AppendJSON(out, value)
	}
	return out, number, true, nil
}

func numberOf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
