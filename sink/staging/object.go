package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source/store"
)

// Staged is an output of one file, local or an object, that is not yet visible.
type Staged interface {
	io.Writer
	// Commit gives the file its name. With sync it waits until it is on disk. After an error there is no output.
	Commit(ctx context.Context, sync bool) error
	// Abort removes what was written. It does nothing after Commit.
	Abort() error
	// RemoveTemporary is Abort for a process that ends while others write.
	RemoveTemporary() error
	// Stage does all of Commit but the last step, and returns the change that gives the file its name.
	Stage(ctx context.Context, sync bool) (Change, error)
	// Published ends the output once the change is made.
	Published() error
}

// Stage starts the output of a file at a path, local or of an object. The lease pays for the parts of an object until
// they are sent, which ends with ctx.
func Stage(ctx context.Context, path string, overwrite bool, lease *gpu.Lease) (Staged, error) {
	if !IsObject(path) {
		o, err := Create(path, overwrite)
		if err != nil {
			return nil, err
		}
		return localFile{o}, nil
	}
	others, err := CheckObject(ctx, path, overwrite)
	if err != nil {
		return nil, err
	}
	return &objectFile{NewObject(ctx, path, lease, others), overwrite}, nil
}

// localFile is an Output.
type localFile struct{ *Output }

func (f localFile) Commit(_ context.Context, sync bool) error { return f.Output.Commit(sync) }
func (f localFile) RemoveTemporary() error                    { return f.Abort() }
func (f localFile) Published() error                          { return f.Close() }

func (f localFile) Stage(_ context.Context, sync bool) (Change, error) { return f.Output.Stage(sync) }

// objectFile is an Object that is written from a queue by one goroutine.
type objectFile struct {
	*Object
	overwrite bool
}

func (f *objectFile) Commit(ctx context.Context, _ bool) error {
	err := f.Close()
	if err == nil {
		err = f.Object.Commit(ctx, f.overwrite)
	}
	if err != nil {
		return errors.Join(err, f.Abort())
	}
	return nil
}

// Stage completes the object, which does not appear yet.
func (f *objectFile) Stage(ctx context.Context, _ bool) (Change, error) {
	if err := f.Object.Close(); err != nil {
		return Change{}, err
	}
	r, err := f.Object.Stage(ctx, f.overwrite)
	return Change{Remote: r}, err
}

// Published implements Staged.
func (f *objectFile) Published() error { return nil }

// IsObject reports whether a path is the address of an object, as s3://bucket/key, or another one.
func IsObject(path string) bool { return store.Scheme(path) != "" }

// Abandoned is the age from which on an upload that has not ended is taken for one of a process that was killed.
const Abandoned = 24 * time.Hour

// CheckObject returns an error if an object cannot be written, or exists and must not be replaced. It aborts abandoned
// uploads of the object, and returns the numbers of the others.
func CheckObject(ctx context.Context, path string, overwrite bool) (others map[string]bool, err error) {
	if err := store.CheckOutput(path); err != nil {
		return nil, &os.PathError{Op: "write", Path: store.Display(path), Err: err}
	}
	if !overwrite {
		if _, err := store.Stat(ctx, path); err == nil {
			return nil, &os.PathError{Op: "write", Path: path, Err: os.ErrExist}
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return SweepUploads(ctx, path, func(p string) bool { return p == path })
}

// SweepUploads aborts abandoned uploads below a prefix of objects that a function takes for ours. It returns the
// numbers of the others. A user who may not list uploads gets none. It is an error if there is no such bucket.
func SweepUploads(ctx context.Context, prefix string, ours func(path string) bool) (others map[string]bool,
	err error) {
	others = map[string]bool{}
	var old []store.Pending
	err = store.Uploads(ctx, prefix, func(p store.Pending) error {
		if others[p.Number] = true; ours(p.Path) && !p.Began.IsZero() && time.Since(p.Began) > Abandoned {
			old = append(old, p)
		}
		return nil
	})
	for _, p := range old {
		_ = p.Abort(ctx)
	}
	if errors.Is(err, os.ErrNotExist) || ctx.Err() != nil {
		return nil, err
	}
	return others, nil
}

const (
	// partBytes is the size of the first parts of an upload. Parts grow, since their number is bounded.
	partBytes = 8 << 20
	// growth is the number of parts after which parts are larger by partBytes.
	growth = 500
	// unpaid bounds the bytes that wait without memory of the lease: a file may be begun where nothing may wait.
	unpaid = 64
	// sending bounds the parts of an object that are sent at a time.
	sending = 8
)

// PartBytes is the memory that an open object takes at least, within a limit of memory.
func PartBytes(limit int64) int64 { return min(max(limit/64, store.MinPart), partBytes) }

// Object is an object that is written from its beginning to its end. It appears at Commit. One goroutine at a time
// writes.
type Object struct {
	Path   string
	ctx    context.Context
	end    context.CancelCauseFunc
	lease  *gpu.Lease
	others map[string]bool
	buffer []byte
	paid   int64 // for the buffer
	size   int64
	number int // of the next part

	running chan struct{} // an item for each part that is being sent
	work    sync.WaitGroup
	done    bool

	mu     sync.Mutex
	upload *store.Upload // from the first part on, until it has ended
}

// NewObject returns an object. others are the numbers of uploads of its path by other processes.
func NewObject(ctx context.Context, path string, lease *gpu.Lease, others map[string]bool) *Object {
	o := &Object{Path: path, lease: lease, others: others, running: make(chan struct{}, sending)}
	o.ctx, o.end = context.WithCancelCause(ctx)
	return o
}

// AdoptObject returns an object that another process has written and closed. ctx ends with the output.
func AdoptObject(ctx context.Context, state store.UploadState) (_ *Object, err error) {
	o := NewObject(ctx, state.Path, nil, nil)
	o.done = true
	o.upload, err = state.Upload()
	return o, err
}

// State returns the upload of an object after Close, for AdoptObject.
func (o *Object) State() (*store.UploadState, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.upload == nil {
		return nil, errAborted
	}
	state := o.upload.State()
	return &state, nil
}

// Size returns the number of bytes that were written.
func (o *Object) Size() int64 { return o.size }

// WriteAt writes bytes at the end, which is at an offset.
func (o *Object) WriteAt(p []byte, off int64) (int, error) {
	if off != o.size {
		return 0, fmt.Errorf("internal error: bytes at %d of an object that has %d; please report it", off, o.size)
	}
	return o.Write(p)
}

// Write implements io.Writer. Errors may be those of earlier parts.
func (o *Object) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if err := context.Cause(o.ctx); err != nil {
			return n, err
		}
		if o.paid == 0 && len(o.buffer)+len(p) <= unpaid {
			o.buffer = append(o.buffer, p...)
			o.size += int64(len(p))
			return n + len(p), nil
		}
		if o.paid == 0 {
			part := PartBytes(o.lease.Limit()) + int64(o.number/growth)*partBytes
			if err := o.reserve(part); err != nil {
				return n, err
			}
			o.buffer, o.paid = append(make([]byte, 0, part), o.buffer...), part
		}
		k := min(len(p), int(o.paid)-len(o.buffer))
		o.buffer = append(o.buffer, p[:k]...)
		p, n, o.size = p[k:], n+k, o.size+int64(k)
		if int64(len(o.buffer)) == o.paid {
			if err := o.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// reserve takes memory for a part. If it is short, parts that are being sent come first.
func (o *Object) reserve(part int64) error {
	if o.lease.Available() < 4*part {
		o.work.Wait()
	}
	return o.lease.Patiently(o.ctx, func() error { return o.lease.Reserve(part) })
}

// send sends the buffer as a part, while others are written.
func (o *Object) send() (err error) {
	upload := o.upload
	if upload == nil {
		if upload, err = store.Begin(o.ctx, o.Path, o.others); err != nil {
			o.end(err)
			return err
		}
		o.mu.Lock()
		o.upload = upload
		o.mu.Unlock()
	}
	data, paid, number := o.buffer, o.paid, o.number
	o.buffer, o.paid = nil, 0
	o.number++
	o.running <- struct{}{}
	o.work.Go(func() {
		defer func() { <-o.running }()
		defer o.lease.Unreserve(paid)
		// Others wait for this memory as long as it may be released.
		alive := time.NewTicker(300 * time.Millisecond)
		sent := make(chan error, 1)
		go func() { sent <- upload.Part(o.ctx, number, data) }()
		defer alive.Stop()
		for {
			select {
			case <-alive.C:
				o.lease.Unreserve(0)
			case err := <-sent:
				if err != nil {
					o.end(err)
				}
				return
			}
		}
	})
	return nil
}

// Close sends what was written. The object does not appear yet.
func (o *Object) Close() error {
	if o.done {
		return nil
	}
	o.done = true
	err := context.Cause(o.ctx)
	if err == nil && (len(o.buffer) > 0 || o.number == 0) {
		err = o.send()
	}
	o.work.Wait()
	o.lease.Unreserve(o.paid)
	o.buffer, o.paid = nil, 0
	if cause := context.Cause(o.ctx); cause != nil {
		return cause
	}
	return err
}

// Commit makes the object appear, after Close. Unless it replaces an object, it fails with fs.ErrExist if there is one.
func (o *Object) Commit(ctx context.Context, replace bool) error {
	err := o.upload.Complete(ctx, replace)
	if err == nil {
		o.take()
		o.end(nil)
	}
	return err
}

// Stage returns the change that makes the object appear, after Close. ctx ends with the output.
func (o *Object) Stage(ctx context.Context, replace bool) (*Remote, error) {
	r := &Remote{Path: o.Path, Replace: replace, Appear: func() error { return o.Commit(ctx, replace) }}
	var err error
	if r.Upload, err = o.State(); err != nil {
		return nil, err
	}
	upload := o.upload
	_, err = store.Stat(ctx, o.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.Undo = func() error { return upload.Remove(context.WithoutCancel(ctx)) }
	case err != nil:
		return nil, err
	case !replace:
		return nil, &os.PathError{Op: "write", Path: o.Path, Err: os.ErrExist}
	}
	return r, nil
}

// take returns the upload, which the caller ends.
func (o *Object) take() *store.Upload {
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.upload
	o.upload = nil
	return u
}

// Abort ends the upload.
func (o *Object) Abort() error {
	o.end(errAborted)
	_ = o.Close()
	return o.RemoveTemporary()
}

// RemoveTemporary is Abort for a process that ends while others write: it does not wait for them.
func (o *Object) RemoveTemporary() error {
	o.end(errAborted)
	u := o.take()
	if u == nil {
		return nil
	}
	ctx, end := context.WithTimeout(context.Background(), cleaning)
	defer end()
	return u.Abort(ctx)
}

// cleaning bounds the time to abort an upload.
const cleaning = time.Minute

var errAborted = errors.New("the output was aborted")

// Sync does nothing: an object is on disk when it appears.
func (o *Object) Sync() error { return nil }
