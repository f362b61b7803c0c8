package cuda

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"unsafe"
)

//go:generate bash kernels/build.sh

// fatbins are the compiled kernels, one file a source.
//
//go:embed kernels/*.fatbin
var fatbins embed.FS

// kernels finds compiled kernels by name. Modules are loaded when first needed.
type kernels struct {
	dev *Device

	mu      sync.RWMutex
	pending []string // fatbins not loaded yet
	modules []uintptr
	byName  map[string]*kernel
}

// kernel is a loaded kernel.
type kernel struct {
	handle uintptr
	mu     sync.Mutex
	shared int // bytes of dynamic shared memory it may use
}

// staticShared is the dynamic shared memory every kernel may use without asking.
const staticShared = 48 << 10

// maxDynamicShared is the driver's number of the attribute that asks for more.
const maxDynamicShared = 8

func newKernels(d *Device) *kernels {
	k := &kernels{dev: d, byName: map[string]*kernel{}}
	k.pending, _ = fs.Glob(fatbins, "kernels/*.fatbin") // the pattern is well-formed
	return k
}

// find returns the kernel of a name.
func (k *kernels) find(name string) (*kernel, error) {
	k.mu.RLock()
	f := k.byName[name]
	k.mu.RUnlock()
	if f != nil {
		return f, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := 0; ; i++ {
		if i == len(k.modules) {
			if len(k.pending) == 0 {
				return nil, fmt.Errorf("no kernel is named %s", name)
			}
			if err := k.load(k.pending[0]); err != nil {
				return nil, err
			}
			k.pending = k.pending[1:]
		}
		cname := append([]byte(name), 0)
		f = &kernel{shared: staticShared}
		err := k.dev.ctx.do(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), k.modules[i], uintptr(unsafe.Pointer(&cname[0])))
		if err == nil {
			k.byName[name] = f
			return f, nil
		}
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != 500 { // not found
			return nil, fmt.Errorf("find kernel %s: %w", name, err)
		}
	}
}

// loadAll loads what is not loaded yet. What cannot be loaded is reported to whom
// needs it.
func (k *kernels) loadAll() {
	for {
		k.mu.Lock()
		if len(k.pending) == 0 || k.load(k.pending[0]) != nil {
			k.mu.Unlock()
			return
		}
		k.pending = k.pending[1:]
		k.mu.Unlock()
	}
}

func (k *kernels) load(file string) error {
	image, err := fatbins.ReadFile(file)
	if err != nil {
		return err
	}
	defer k.dev.step("load " + path.Base(file))()
	var m uintptr
	if err := k.dev.ctx.do(cuModuleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0]))); err != nil {
		return fmt.Errorf("load kernels of %s: %w", path.Base(file), err)
	}
	k.modules = append(k.modules, m)
	return nil
}

// allow lets the kernel use so many bytes of dynamic shared memory.
func (k *kernels) allow(f *kernel, shared int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if shared <= f.shared {
		return nil
	}
	if err := k.dev.ctx.do(cuFuncSetAttribute, f.handle, maxDynamicShared, uintptr(shared)); err != nil {
		return err
	}
	f.shared = shared
	return nil
}

func (k *kernels) close() {
	for _, m := range k.modules {
		_ = k.dev.ctx.do(cuModuleUnload, m)
	}
}
