package parquet

import (
	"context"

	"github.com/gstream/gstream/sink/staging"
)

// target is an output that is being written, and appears at publish: a file or folder of the local file system
// (output), or objects of a store (objects).
type target interface {
	// create begins file number i of a folder of the output. It returns the file and its name for complete.
	create(folder string, i int) (outFile, string, error)
	// complete records a complete file, of a size. The caller has the lock of the Writer.
	complete(name string, size, rows int64)
	// publish gives the output its name. After an error the caller calls discard.
	publish(ctx context.Context) error
	// stage does all of publish but the last step, and returns the changes that give the output its name. It ends with
	// published or discard.
	stage(ctx context.Context) ([]staging.Change, error)
	published() error
	// discard removes everything that was written.
	discard() error
	// removeTemporary is discard for a process that ends while others write.
	removeTemporary() error
	// named returns the path as given.
	named() string
	// mostOpen bounds the files of partitions that are open.
	mostOpen() int
}

// localTarget is an output as a target.
type localTarget struct{ *output }

func (o localTarget) create(folder string, i int) (outFile, string, error) {
	path, err := o.part(folder, i)
	if err != nil {
		return nil, "", err
	}
	f, err := o.storage.create(path)
	if err == nil && o.directory {
		if err = o.fileAccess.Give(path, true); err != nil {
			f.Close()
		}
	}
	return f, path, err
}

func (o localTarget) complete(name string, size, _ int64)                 { o.ended(name, size) }
func (o localTarget) publish(ctx context.Context) error                   { return o.output.publish() }
func (o localTarget) stage(ctx context.Context) ([]staging.Change, error) { return o.output.stage() }

func (o localTarget) named() string { return o.name }
func (o localTarget) mostOpen() int { return maxOpenFiles }

// removeTemporary leaves a temporary that may be getting its name: the next process makes or undoes that.
func (o localTarget) removeTemporary() error {
	if o.staged.Load() {
		return nil
	}
	return o.storage.remove(o.temporary)
}
