package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// maxJobBytes bounds a job file and every value in it.
const maxJobBytes = 1 << 20

// LoadOptions configure Load and Parse.
type LoadOptions struct {
	// Set has values for variables that the job declares.
	Set map[string]string
	// LookupEnv finds ${env:NAME}; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
}

// Load reads a job file. The error is Diagnostics if the content is wrong, or the operating
// system's error if the file cannot be read.
func Load(path string, opt LoadOptions) (*Job, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxJobBytes+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, src, opt)
}

// Parse parses the bytes of a job file. path names the file in errors and is the base of relative
// paths. The error is Diagnostics.
func Parse(path string, src []byte, opt LoadOptions) (*Job, error) {
	src = bytes.TrimPrefix(src, []byte("\ufeff")) // a byte order mark
	job := &Job{file: path, source: string(src), locations: map[string]Location{}, origins: map[string]*origin{},
		values: syntax.Values{}, dir: filepath.Dir(path)}
	d := &decoder{job: job, dir: filepath.Dir(path),
		vars: variables{set: opt.Set, env: opt.LookupEnv, resolved: map[string]expanded{}}}
	if d.vars.env == nil {
		d.vars.env = os.LookupEnv
	}
	if len(src) > maxJobBytes {
		d.faultf(Location{}, "job file is larger than %d bytes", maxJobBytes)
		return nil, d.faults
	}
	if root := d.parse(src); root != nil {
		d.document(root)
		d.checkVariables(opt.Set)
		if job.Query != "" && len(d.faults) == 0 {
			d.query()
		}
	}
	if len(d.faults) > 0 {
		return nil, d.faults
	}
	return job, nil
}

// parse returns the single document of a YAML file, or nil after a fault. The bytes are
// untrusted, so a panic of the parser is a fault too.
func (d *decoder) parse(src []byte) (root ast.Node) {
	defer func() {
		if r := recover(); r != nil {
			d.faultf(Location{}, "not valid YAML: %v", r)
			root = nil
		}
	}()
	file, err := parser.ParseBytes(src, 0)
	var syntax *yaml.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Token != nil:
		at := Location{syntax.Token.Position.Line, syntax.Token.Position.Column}
		if whole := quotedStart(string(src), at.Line); whole != "" {
			d.faultf(at, "YAML ends a value that begins with a quote at the next quote; quote all of it: %s", whole)
		} else {
			d.faultf(at, "not valid YAML: %s", syntax.Message)
		}
		return nil
	case err != nil:
		d.faultf(Location{}, "not valid YAML: %s", strings.TrimSpace(err.Error()))
		return nil
	}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
			continue
		}
		if root != nil {
			d.faultf(locationOf(doc.Body), "a job file holds one document")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		d.faultf(Location{}, "job file is empty")
		return nil
	}
	a := aliases{decoder: d, anchors: map[string]anchored{}}
	root, _ = a.resolve(root)
	if len(d.faults) > 0 {
		return nil
	}
	return root
}

// textBehind matches a line whose value begins with a quoted literal and continues after it.
var textBehind = regexp.MustCompile(`^\s*(?:-\s+)*(?:[^\s'"#:][^'"#:]*:\s+)?('[^']*'|"[^"]*")\s*[^\s,:#\]}].*$`)

// quotedStart returns the value of a line of YAML if it begins with an SQL literal and continues
// after it, quoted as YAML requires; otherwise "".
func quotedStart(src string, line int) string {
	lines := strings.Split(src, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	m := textBehind.FindStringSubmatchIndex(lines[line-1])
	if m == nil {
		return ""
	}
	value := strings.TrimSpace(lines[line-1][m[2]:])
	if !strings.Contains(value, `"`) {
		return `"` + value + `"`
	}
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

// checkVariables reports values for unknown variables.
func (d *decoder) checkVariables(set map[string]string) {
	for _, name := range sortedKeys(set) {
		if _, ok := d.job.Vars[name]; !ok {
			d.faultf(Location{}, "%s: the job has no such variable%s", gpu.Variables.To(name),
				DidYouMean(name, keys(d.job.Vars)))
		}
	}
}

func (d *decoder) faultf(at Location, format string, args ...any) {
	d.faults = append(d.faults, &Diagnostic{File: d.job.file, Location: at, Msg: fmt.Sprintf(format, args...)})
}
