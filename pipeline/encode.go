package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/sink/ordered"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// planVersion is the version of the format of encoded plans. It changes with the meaning of
// anything in them, such as the number of an operation.
const planVersion = 3

// encodedPlan is a plan in JSON.
type encodedPlan struct {
	Version int `json:"version"`
	Written written
	Tables  map[string]*sourceparquet.Snapshot
	Outputs []encodedOutput
	Stages  *physical.Plan
}

// encodedOutput is a parquetTarget in JSON.
type encodedOutput struct {
	Path    string
	Options sinkparquet.Options
}

// Encode returns the plan as data. DecodePlan makes the plan again, in another process or on
// another machine that sees the same files. The data names files by absolute paths, in the versions
// that were planned. A plan that reads or writes anything but Parquet files is an error. The data
// contains the values of the job's variables, including ${env:…}: keep it equally private.
func (p *Plan) Encode() ([]byte, error) {
	out := encodedPlan{Version: planVersion, Written: p.written, Tables: map[string]*sourceparquet.Snapshot{},
		Stages: p.stages}
	for _, t := range p.targets {
		target, ok := t.(*parquetTarget)
		if !ok {
			return nil, errors.New("encode the plan: its output is no Parquet file, so nobody else can write it")
		}
		path, err := absolute(target.path)
		if err != nil {
			return nil, fmt.Errorf("encode the plan: %w", err)
		}
		out.Outputs = append(out.Outputs, encodedOutput{path, target.opt})
	}
	var err error
	p.stages.Visit(func(s *physical.Stage) {
		scan := s.Scan()
		if scan == nil || err != nil || out.Tables[scan.Source] != nil {
			return
		}
		t, ok := scan.Table.(*sourceparquet.Table)
		if !ok {
			err = fmt.Errorf("encode the plan: the source %q is no Parquet file, so nobody else can read it",
				scan.Source)
			return
		}
		out.Tables[scan.Source], err = t.Snapshot()
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// absolute returns the absolute path of an output, or its address.
func absolute(path string) (string, error) {
	if staging.IsObject(path) {
		return path, nil
	}
	whole, err := filepath.Abs(path)
	if strings.HasSuffix(path, "/") && !strings.HasSuffix(whole, "/") {
		whole += "/" // it is a folder of files
	}
	return whole, err
}

// identity is what a run of a plan does, in JSON.
type identity struct {
	Stages  *physical.Plan
	Written written
	Tables  map[string]any
	Outputs []any
}

// versioned is a table of files other than Parquet.
type versioned interface {
	// Identity returns the files in their versions, and how they are read. It fails for standard input.
	Identity() (any, error)
}

// Identity returns data that is the same for two plans if their runs do the same: they compute the same, read the same
// files in the same versions, and write the same outputs. Unlike that of Encode, it cannot be run. A plan that reads
// standard input or a table of the program, or writes to standard output or a target of the program, is an error. The
// data is as private as that of Encode.
func (p *Plan) Identity() ([]byte, error) {
	out := identity{Stages: p.stages, Written: p.written, Tables: map[string]any{}}
	for _, t := range p.targets {
		path, opt := "", any(nil)
		switch t := t.(type) {
		case *parquetTarget:
			path, opt = t.path, t.opt
		case *textTarget:
			path, opt = t.path, t.opt
		case *arrowTarget:
			path, opt = t.path, t.opt
		}
		if path == "" || path == ordered.Standard {
			return nil, errors.New("an output is no file")
		}
		path, err := absolute(path)
		if err != nil {
			return nil, err
		}
		out.Outputs = append(out.Outputs, path, fmt.Sprintf("%T", t), opt)
	}
	var err error
	p.stages.Visit(func(s *physical.Stage) {
		scan := s.Scan()
		if scan == nil || err != nil || out.Tables[scan.Source] != nil {
			return
		}
		switch t := scan.Table.(type) {
		case *sourceparquet.Table:
			out.Tables[scan.Source], err = t.Snapshot()
		case versioned:
			out.Tables[scan.Source], err = t.Identity()
		default:
			err = errors.New("it is no file")
		}
		if err != nil {
			err = fmt.Errorf("the source %q: %w", scan.Source, err)
		}
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// DecodePlan returns the plan that Encode has written, with its files opened. The error is
// source.ErrChanged if a file has changed since the plan was made. Run only data from a trusted
// source: a plan reads and writes whatever files it names.
func DecodePlan(data []byte) (_ *Plan, err error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("decode the plan: %w", err)
	}
	if version.Version != planVersion {
		return nil,
			fmt.Errorf("decode the plan: it has version %d, and this program reads version %d: plan the job again",
				version.Version, planVersion)
	}
	var in encodedPlan
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("decode the plan: %w", err)
	}
	if in.Stages == nil {
		return nil, fmt.Errorf("decode the plan: %w", io.ErrUnexpectedEOF)
	}
	p := &Plan{written: in.Written, tables: map[string]source.Table{}, stages: in.Stages}
	if want := len(in.Stages.Written()); len(in.Outputs) != want {
		return nil, fmt.Errorf("decode the plan: it has the rows of %d outputs and the paths of %d", want,
			len(in.Outputs))
	}
	for _, o := range in.Outputs {
		o.Options.EnsureDefaults()
		if err := o.Options.Validate(); err != nil {
			return nil, fmt.Errorf("decode the plan: the output: %w", err)
		}
		p.targets = append(p.targets, &parquetTarget{path: o.Path, opt: o.Options})
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for name, snapshot := range in.Tables {
		if p.tables[name], err = openSnapshot(name, snapshot); err != nil {
			delete(p.tables, name)
			return nil, err
		}
	}
	for _, t := range p.targets {
		p.noteRead(t.(*parquetTarget))
	}
	if err = p.stages.Bind(p.tables); err != nil {
		return nil, fmt.Errorf("decode the plan: %w", err)
	}
	return p, nil
}

func openSnapshot(name string, s *sourceparquet.Snapshot) (source.Table, error) {
	if s == nil {
		return nil, fmt.Errorf("decode the plan: the table %q has no files", name)
	}
	t, err := s.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
