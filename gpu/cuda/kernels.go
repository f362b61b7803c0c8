package cuda

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"unsafe"

	"github.com/gstream/gstream/gpu/cuda/internal/manifest"
)

//go:generate bash kernels/build.sh
//go:generate bash kernels/resources.sh

//go:embed kernels/*.fatbin kernels/manifest.json
var embedded embed.FS

// fatbins are the compiled kernels, one file per source, and the manifest that lists them.
var fatbins fs.FS = embedded

// fatbinOf maps a kernel to its fatbin.
var fatbinOf = sync.OnceValues(func() (map[string]string, error) {
	list, err := fs.ReadFile(fatbins, "kernels/"+manifest.File)
	if err != nil {
		return nil, err
	}
	return manifest.Kernels(list)
})

// kernels finds compiled kernels by name. It loads a module at the first use of one of its kernels.
type kernels struct {
	dev *Device

	mu      sync.RWMutex
	modules map[string]uintptr // by fatbin
	byName  map[string]*kernel
}

// kernel is a loaded kernel.
type kernel struct {
	handle    uintptr
	arguments uintptr // bytes of its argument struct
	mu        sync.Mutex
	shared    int // bytes of dynamic shared memory that it is allowed to use
}

// defaultShared is the shared memory, static and dynamic together, that every kernel may use without permission.
const defaultShared = 48 << 10

// maxDynamicShared is the driver's number of the attribute that allows more. At first it is defaultShared less
// the static shared memory of the kernel.
const maxDynamicShared = 8

func newKernels(d *Device) *kernels {
	return &kernels{dev: d, modules: map[string]uintptr{}, byName: map[string]*kernel{}}
}

// find returns the kernel with a name.
func (k *kernels) find(name string) (*kernel, error) {
	k.mu.RLock()
	f := k.byName[name]
	k.mu.RUnlock()
	if f != nil {
		return f, nil
	}
	files, err := fatbinOf()
	if err != nil {
		return nil, err
	}
	file, ok := files[name]
	if !ok {
		return nil, fmt.Errorf("no kernel is named %s", name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if f = k.byName[name]; f != nil { // a kernel has only one record, since it says how much memory the kernel may use
		return f, nil
	}
	module, err := k.load(file)
	if err != nil {
		return nil, err
	}
	cname := append([]byte(name), 0)
	f = &kernel{}
	if err := k.dev.ctx.do(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), module,
		uintptr(unsafe.Pointer(&cname[0]))); err != nil {
		return nil, fmt.Errorf("find kernel %s: %w", name, err)
	}
	var shared int32
	if err := k.dev.ctx.do(cuFuncGetAttribute, uintptr(unsafe.Pointer(&shared)), maxDynamicShared,
		f.handle); err != nil {
		return nil, fmt.Errorf("find the shared memory that kernel %s may use: %w", name, err)
	}
	f.shared = int(shared)
	var offset uintptr
	if err := k.dev.ctx.do(cuFuncGetParamInfo, f.handle, 0, uintptr(unsafe.Pointer(&offset)),
		uintptr(unsafe.Pointer(&f.arguments))); err != nil {
		return nil, fmt.Errorf("find the size of the arguments of kernel %s: %w", name, err)
	}
	k.byName[name] = f
	return f, nil
}

// taking returns the kernel with a name, whose argument struct A mirrors. It returns an error if the struct has another
// size than the kernel's: the kernel would read beyond it, or misread it.
func taking[A any](k *kernels, name string) (*kernel, error) {
	f, err := k.find(name)
	if err != nil {
		return nil, err
	}
	var a A
	if unsafe.Sizeof(a) != f.arguments {
		return nil, fmt.Errorf("kernel %s takes %d bytes of arguments, and %T has %d: a defect of gstream, report it",
			name, f.arguments, a, unsafe.Sizeof(a))
	}
	return f, nil
}

// load returns the module of a fatbin. The caller holds the lock.
func (k *kernels) load(file string) (uintptr, error) {
	if m, ok := k.modules[file]; ok {
		return m, nil
	}
	image, err := fs.ReadFile(fatbins, "kernels/"+file)
	if err != nil {
		return 0, err
	}
	defer k.dev.setsUp("load " + file)()
	var m uintptr
	if err := k.dev.ctx.do(cuModuleLoadData, uintptr(unsafe.Pointer(&m)),
		uintptr(unsafe.Pointer(&image[0]))); err != nil {
		return 0, fmt.Errorf("load kernels of %s: %w", file, err)
	}
	k.modules[file] = m
	return m, nil
}

// allow permits the kernel to use shared bytes of dynamic shared memory.
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
