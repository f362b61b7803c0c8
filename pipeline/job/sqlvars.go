package job

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// The types of variables that are not texts.
const (
	typeNumber  = "number"
	typeBoolean = "boolean"
	typeDate    = "date"
	typeSQL     = "sql"
)

var (
	dateForm   = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	numberForm = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
	dollarTag  = regexp.MustCompile(`^\$\$([A-Za-z_][A-Za-z_0-9]*)?\$\$`)
)

// looksLike returns the type that the form of a YAML scalar suggests, "" for a text.
func looksLike(n ast.Node) string {
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return typeNumber
	case *ast.BoolNode:
		return typeBoolean
	case *ast.StringNode:
		if n.GetToken().Type == token.StringType && dateForm.MatchString(n.Value) {
			return typeDate
		}
	}
	return ""
}

// expandAll replaces the variables of a value, which may be an expression.
func (v *variables) expandAll(s string, sql bool) (expanded, error) {
	if !sql || !strings.Contains(s, "$") {
		return v.expand(s)
	}
	x := expression{variables: v, raw: s, expanded: expanded{values: syntax.Values{}}}
	err := x.expand()
	x.text = x.out.String()
	return x.expanded, err
}

// expression expands the variables of an expression. A variable is a value. Outside of literals it
// stays as written, and the parser looks up its value. Within a literal its text becomes a part of
// the literal. Only a variable of type sql is replaced by its text.
type expression struct {
	*variables
	expanded
	raw string
	at  int // in raw
	out strings.Builder
}

// from records that the text continues with the raw text at an offset.
func (x *expression) from(raw int, variable bool) {
	x.segments = append(x.segments, segment{x.out.Len(), raw, variable})
}

func (x *expression) expand() error {
	x.from(0, false)
	for x.at < len(x.raw) {
		rest := x.raw[x.at:]
		var err error
		switch tag := dollarTag.FindString(rest); {
		case tag != "":
			err = x.dollars(tag)
		case strings.HasPrefix(rest, "$$"):
			x.dollar()
		case strings.HasPrefix(rest, "${"):
			err = x.value()
		case rest[0] == '\'' || rest[0] == '"':
			err = x.quoted(rest[0])
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			x.copy(end)
		case strings.HasPrefix(rest, "/*"):
			x.copy(commentEnd(rest))
		default:
			x.copy(1)
		}
		if err != nil {
			return err
		}
		if x.out.Len() > maxJobBytes {
			return fmt.Errorf("value grows beyond %d bytes", maxJobBytes)
		}
	}
	return nil
}

// commentEnd returns the length of a comment at the start of a text. Comments may be nested.
func commentEnd(s string) int {
	for i, depth := 0, 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			i += 2
			if depth--; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// copy copies text.
func (x *expression) copy(n int) {
	x.out.WriteString(x.raw[x.at : x.at+n])
	x.at += n
}

// dollar copies $$ as $.
func (x *expression) dollar() {
	x.from(x.at, true)
	x.out.WriteByte('$')
	x.at += 2
	x.from(x.at, false)
}

// dollars copies a literal in $tag$, written as $$tag$$ in a job.
func (x *expression) dollars(tag string) error {
	body, rest, closed := strings.Cut(x.raw[x.at+len(tag):], tag)
	if strings.Contains(strings.ReplaceAll(body, "$$", ""), "${") {
		return fmt.Errorf("a variable is not possible in %[1]s…%[1]s; write the text in '…'",
			strings.ReplaceAll(tag, "$$", "$"))
	}
	end := len(x.raw)
	if closed {
		end = len(x.raw) - len(rest)
	}
	for x.at < end {
		if strings.HasPrefix(x.raw[x.at:end], "$$") {
			x.dollar()
		} else {
			x.copy(1)
		}
	}
	return nil
}

// variable returns the variable at an offset of the raw text, its name and its end.
func (x *expression) variable(at int) (val expanded, name string, end int, err error) {
	n := strings.IndexByte(x.raw[at:], '}')
	if n < 0 {
		return val, "", 0, fmt.Errorf("${ without a closing }")
	}
	name, end = x.raw[at+2:at+n], at+n+1
	val, err = x.variables.value(name, nil)
	if err == nil && val.env && x.declared[name].Type == typeSQL {
		err = fmt.Errorf("the variable %s is of type sql, so its text appears in plans and errors; it cannot have a "+
			"value of the environment", name)
	}
	return val, name, end, err
}

// value handles a variable outside of a literal.
func (x *expression) value() error {
	val, name, end, err := x.variable(x.at)
	if err != nil {
		return err
	}
	if x.declared[name].Type == typeSQL {
		x.from(x.at, true)
		x.out.WriteString(val.text)
		x.at = end
		x.from(x.at, false)
		return nil
	}
	literal, err := x.literal(name, val.text)
	if err != nil {
		if val.env {
			err = fmt.Errorf("the value of ${%s} is no %s", name, x.typeOf(name))
		}
		return err
	}
	x.values[x.raw[x.at:end]] = syntax.Value{SQL: literal, Text: val.text, Hidden: val.env}
	x.copy(end - x.at)
	return nil
}

// typeOf returns the type of a variable.
func (x *expression) typeOf(name string) string {
	v := x.declared[name]
	if v.Type != "" {
		return v.Type
	}
	return v.looks
}

// literal returns the value of a variable as SQL.
func (x *expression) literal(name, text string) (string, error) {
	switch typ := x.typeOf(name); typ {
	case typeNumber:
		if !numberForm.MatchString(text) {
			return "", x.not(name, text, "number")
		}
		if text = strings.TrimPrefix(text, "+"); text[0] == '-' {
			text = "(" + text + ")"
		}
		return text, nil
	case typeBoolean:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return "", x.not(name, text, "true or false")
		}
		return strings.ToUpper(strconv.FormatBool(b)), nil
	case typeDate, "timestamp":
		if typ == typeDate && x.declared[name].Type == "" && !dateForm.MatchString(text) {
			return "", x.not(name, text, "date")
		}
		return strings.ToUpper(typ) + " " + syntax.Quote(text), nil
	}
	return syntax.Quote(text), nil
}

// not returns the error for a value that does not have the type of its variable.
func (x *expression) not(name, text, want string) error {
	if x.declared[name].Type == "" {
		return fmt.Errorf("%s is %q, but its default is a %s; give the variable another type, as in {default: "+
			"…, type: text}", name, text, want)
	}
	return fmt.Errorf("%s is %q, which is no %s", name, text, want)
}

// quoted handles a literal or a name in quotes.
func (x *expression) quoted(quote byte) error {
	start, written, segments := x.at, x.out.Len(), len(x.segments)
	q := string(quote)
	prefix := byte(0)
	if start > 0 && (start < 2 || !isWord(x.raw[start-2])) {
		prefix = x.raw[start-1] | 0x20
	}
	var text strings.Builder // the content
	env := false
	x.copy(1)
	for {
		rest := x.raw[x.at:]
		switch {
		case rest == "":
			return nil // the parser reports it
		case strings.HasPrefix(rest, q+q):
			text.WriteByte(quote)
			x.copy(2)
		case prefix == 'e' && rest[0] == '\\' && strings.HasPrefix(rest[1:], "${"):
			return fmt.Errorf("a variable is not possible behind a backslash")
		case prefix == 'e' && rest[0] == '\\' && len(rest) > 1 && rest[1] != '$':
			x.copy(2)
		case strings.HasPrefix(rest, "$$"):
			text.WriteByte('$')
			x.dollar()
		case strings.HasPrefix(rest, "${"):
			val, name, end, err := x.variable(x.at)
			if err != nil {
				return err
			}
			if val.env && (quote == '"' || prefix == 'e' || prefix == 'x') {
				return fmt.Errorf("${%s} has a value of the environment, which is not possible in a name or an "+
					"escaped text; write it by itself", name)
			}
			env = env || val.env
			text.WriteString(val.text)
			pasted := strings.ReplaceAll(val.text, q, q+q)
			if prefix == 'e' {
				pasted = strings.ReplaceAll(pasted, `\`, `\\`)
			}
			x.from(x.at, true)
			x.out.WriteString(pasted)
			x.at = end
			x.from(x.at, false)
		case rest[0] == quote:
			x.copy(1)
			if env { // the literal stays as written, since its value must not be shown
				raw := x.raw[start:x.at]
				before := x.out.String()[:written]
				x.out.Reset()
				x.out.WriteString(before + raw)
				x.segments = append(x.segments[:segments], segment{written, start, false})
				x.values[raw] = syntax.Value{SQL: syntax.Quote(text.String()), Text: text.String(), Hidden: true}
			}
			return nil
		default:
			text.WriteByte(rest[0])
			x.copy(1)
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
