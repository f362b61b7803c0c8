package job

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// variables expands ${name}, ${env:NAME}, ${env:NAME:-default} and $$ in the values of a job file.
type variables struct {
	declared map[string]Var
	set      map[string]string
	env      func(string) (string, bool)
	// resolved caches the expanded defaults, so that a variable is expanded only once.
	resolved map[string]expanded
}

// expanded is a value with its variables replaced.
type expanded struct {
	text string
	// outside says that the value begins with text from outside of the job file: from --set or the
	// environment.
	outside  bool
	segments []segment
	// env says that a part of the value comes from the environment. Expressions do not show it.
	env bool
	// values are the values of the variables in the text of an expression.
	values syntax.Values
}

// expand replaces the variables of a value. It does not expand values of variables again, except
// defaults, which may use other variables.
func (v *variables) expand(s string) (expanded, error) { return v.expandIn(s, nil) }

func (v *variables) expandIn(s string, using []string) (expanded, error) {
	var out strings.Builder
	var e expanded
	whole := len(s)
	from := func(variable bool) {
		e.segments = append(e.segments, segment{out.Len(), whole - len(s), variable})
	}
	for first := true; s != ""; first = false {
		from(false)
		i := strings.IndexByte(s, '$')
		if i < 0 {
			out.WriteString(s)
			break
		}
		out.WriteString(s[:i])
		rest := s[i+1:]
		s = s[i:]
		from(true)
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return e, fmt.Errorf("${ without a closing }")
			}
			val, err := v.value(rest[1:end], using)
			if err != nil {
				return e, err
			}
			if first && i == 0 {
				e.outside = val.outside
			}
			e.env = e.env || val.env
			out.WriteString(val.text)
			s = rest[end+1:]
		default:
			return e, fmt.Errorf("$ must be followed by {name}; write $$ for a dollar sign")
		}
		if out.Len() > maxJobBytes {
			return e, fmt.Errorf("value grows beyond %d bytes", maxJobBytes)
		}
	}
	if s == "" {
		from(false)
	}
	e.text = out.String()
	return e, nil
}

func (v *variables) value(name string, using []string) (expanded, error) {
	if env, ok := strings.CutPrefix(name, "env:"); ok {
		env, standard, hasDefault := strings.Cut(env, ":-")
		val, ok := v.env(env)
		if hasDefault && val == "" {
			return expanded{text: standard}, nil
		}
		if !ok {
			return expanded{}, fmt.Errorf("environment variable %s is not set; ${env:%s:-VALUE} has a default", env,
				env)
		}
		return expanded{text: val, outside: true, env: true}, nil
	}
	if val, ok := v.set[name]; ok {
		return expanded{text: val, outside: true}, nil
	}
	decl, ok := v.declared[name]
	switch {
	case !ok:
		return expanded{}, fmt.Errorf("unknown variable ${%s}%s; declare it under vars", name,
			DidYouMean(name, keys(v.declared)))
	case decl.Default == nil:
		return expanded{},
			fmt.Errorf("variable %s is not set and has no default; set it with %s", name,
				gpu.Variables.To(name+"=VALUE"))
	}
	if val, ok := v.resolved[name]; ok {
		return val, nil
	}
	if slices.Contains(using, name) {
		return expanded{}, fmt.Errorf("variable %s is defined by itself", name)
	}
	val, err := v.expandIn(*decl.Default, append(using, name))
	if err == nil {
		v.resolved[name] = val
	}
	return val, err
}
