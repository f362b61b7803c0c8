package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source/store"
)

// finished is a line of the file of --resume: a run that has succeeded.
type finished struct {
	Job string `json:"job"`
	// Plan is a hash of the plan: of what it computes, of its sources in their versions, and of its outputs.
	Plan string `json:"plan"`
	// Outputs are the versions of the outputs after the run, by their paths. Of a folder it is that of its manifest.
	Outputs map[string]store.Version `json:"outputs"`
}

// resumption is what a run knows of earlier runs.
type resumption struct {
	file, plan string
	job        *pipeline.Job
	earlier    *finished // of the same plan; nil if there is none
}

// resume finds the earlier run of a plan. It returns nil if nothing can be said about the plan: the job then runs.
func (f *runFlags) resume(p *pipeline.Plan, job *pipeline.Job) (*resumption, error) {
	if f.resumeFrom == "" {
		return nil, nil
	}
	data, err := p.Identity()
	if err != nil {
		slog.Warn("the job runs, as --resume cannot tell whether its sources have changed", "job", job.Name, "reason",
			err)
		return nil, nil
	}
	hash := sha256.Sum256(append([]byte(version()+"\n"), data...))
	r := &resumption{file: f.resumeFrom, plan: hex.EncodeToString(hash[:]), job: job}
	text, err := os.ReadFile(f.resumeFrom)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		var one finished
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || one.Plan == "" {
			if bytes.HasPrefix(lines.Bytes(), []byte(`{"job":`)) {
				continue // a run was killed while it wrote the line
			}
			return nil, usageError(fmt.Errorf("--resume %s: line %d is none that gstream has written; name another "+
				"file", f.resumeFrom, n))
		}
		if one.Plan == r.plan {
			r.earlier = &one
		}
	}
	return r, nil
}

// done reports whether an earlier run did the same, and its outputs are still as it left them.
func (r *resumption) done(ctx context.Context) bool {
	if r == nil || r.earlier == nil {
		return false
	}
	now, err := versionsOf(ctx, r.job)
	if err != nil || len(now) != len(r.earlier.Outputs) {
		return false
	}
	for path, v := range now {
		then, ok := r.earlier.Outputs[path]
		if !ok || then.Size != v.Size || then.ETag != v.ETag || !then.Modified.Equal(v.Modified) ||
			then.Device != v.Device || then.Inode != v.Inode {
			return false
		}
	}
	return true
}

// record adds a run that has succeeded to the file.
func (r *resumption) record(ctx context.Context) error {
	if r == nil {
		return nil
	}
	outputs, err := versionsOf(ctx, r.job)
	if err != nil {
		return fmt.Errorf("--resume %s: %w", r.file, err)
	}
	line, err := json.Marshal(finished{r.job.Name, r.plan, outputs})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte("\n"), line...) // after the line of a run that was killed
		}
	}
	_, err = f.Write(append(line, '\n')) // in one write, since several runs may share the file
	return errors.Join(err, f.Sync(), f.Close())
}

// versionsOf returns the versions of the outputs of a job. It is an error if one is missing, or lacks a file.
func versionsOf(ctx context.Context, job *pipeline.Job) (map[string]store.Version, error) {
	out := map[string]store.Version{}
	for _, o := range job.Written() {
		path, key := o.Path()
		at := path
		if key == "parquet" && o.Directory(path) {
			at = strings.TrimRight(path, "/") + "/" + staging.LockName
		}
		v, err := store.Stat(ctx, at)
		if err != nil {
			return nil, err
		}
		if at != path && store.Scheme(path) == "" {
			if err := allThere(at); err != nil {
				return nil, err
			}
		}
		out[path] = v
	}
	return out, nil
}

// allThere returns an error unless all files that a manifest lists are there.
func allThere(manifest string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	var m struct {
		Files []struct {
			Name  string
			Bytes int64
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	for _, f := range m.Files {
		info, err := os.Stat(filepath.Join(filepath.Dir(manifest), filepath.FromSlash(f.Name)))
		if err != nil {
			return err
		}
		if info.Size() != f.Bytes {
			return fmt.Errorf("%s has another size", f.Name)
		}
	}
	return nil
}
