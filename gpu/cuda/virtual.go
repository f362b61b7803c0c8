package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Virtual is a range of addresses whose pages are mapped to device memory or to host memory, extent
// by extent: one array over both (Lutz et al., SIGMOD 2022, §5.3). Kernels see one address range
// and read its host part over the link. It is not safe for concurrent use.
type Virtual struct {
	dev    *Device
	addr   uintptr
	size   int64
	page   int64
	mapped []mapping
}

// mapping is memory to which a part of the range is mapped.
type mapping struct {
	offset, size int64
	handle       uintptr
	lease        *gpu.Lease
}

// Tier is the memory to which a part of a Virtual is mapped.
type Tier int

// The tiers.
const (
	OnDevice Tier = iota
	OnHost        // on the NUMA node closest to the device
)

// location is the driver's CUmemLocation.
type location struct{ kind, id int32 }

// The driver's kinds of locations.
const (
	locationDevice   = 1
	locationHostNUMA = 3
)

// allocationProp is the driver's CUmemAllocationProp.
type allocationProp struct {
	kind, handleTypes int32 // kind 1: pinned to its location
	location          location
	windows           uintptr
	flags             [8]byte
}

// accessDesc is the driver's CUmemAccessDesc.
type accessDesc struct {
	location location
	flags    int32 // 3: read and write
}

// location returns the location of a tier.
func (d *Device) location(t Tier) (location, error) {
	if t == OnDevice {
		return location{locationDevice, int32(d.props.ordinal)}, nil
	}
	if d.props.hostNUMA < 0 {
		return location{}, fmt.Errorf("%s cannot map host memory of a NUMA node", d.props.name)
	}
	return location{locationHostNUMA, int32(d.props.hostNUMA)}, nil
}

// Reserve reserves a range of at least size bytes of addresses, without memory.
func (d *Device) Reserve(size int64) (*Virtual, error) {
	if !d.props.virtualMemory {
		return nil, fmt.Errorf("%s has no virtual memory management", d.props.name)
	}
	v := &Virtual{dev: d}
	for _, t := range []Tier{OnDevice, OnHost} {
		l, err := d.location(t)
		if err != nil {
			continue // Map returns the error
		}
		var page uint64
		prop := allocationProp{kind: 1, location: l}
		if err := d.ctx.do(cuMemGetAllocationGranularity, uintptr(unsafe.Pointer(&page)),
			uintptr(unsafe.Pointer(&prop)), 0); err != nil {
			return nil, fmt.Errorf("reserve %s of addresses: %w", bytesText(size), err)
		}
		v.page = max(v.page, int64(page))
	}
	if size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("reserve %d bytes of addresses: impossible size", size)
	}
	v.size = v.round(size)
	if err := d.ctx.do(cuMemAddressReserve, uintptr(unsafe.Pointer(&v.addr)), uintptr(v.size), 0, 0, 0); err != nil {
		return nil, fmt.Errorf("reserve %s of addresses: %w", bytesText(v.size), err)
	}
	return v, nil
}

func (v *Virtual) round(n int64) int64 { return (n + v.page - 1) / v.page * v.page }

// Addr returns the device address of the range.
func (v *Virtual) Addr() uintptr { return v.addr }

// Size returns the bytes of the range.
func (v *Virtual) Size() int64 { return v.size }

// Page returns the unit of mapping in bytes: offsets and sizes of Map are multiples of
// it.
func (v *Virtual) Page() int64 { return v.page }

// Map maps memory of a tier to bytes [offset, offset + size) of the range, which must not be mapped
// yet. Both numbers are multiples of Page. The lease belongs to the budget of that tier and pays
// until Close. If memory is denied, the range is unchanged.
func (v *Virtual) Map(lease *gpu.Lease, offset, size int64, t Tier) error {
	if offset < 0 || size <= 0 || offset%v.page != 0 || size%v.page != 0 || offset > v.size-size {
		return fmt.Errorf("map bytes [%d, %d) of a range of %d in pages of %d", offset, offset+size, v.size, v.page)
	}
	l, err := v.dev.location(t)
	if err != nil {
		return err
	}
	if err := lease.Reserve(size); err != nil {
		return err
	}
	fail := func(err error) error {
		lease.Unreserve(size)
		return fmt.Errorf("map %s at offset %d: %w", bytesText(size), offset, err)
	}
	m := mapping{offset: offset, size: size, lease: lease}
	prop := allocationProp{kind: 1, location: l}
	if err := v.dev.ctx.do(cuMemCreate, uintptr(unsafe.Pointer(&m.handle)), uintptr(size),
		uintptr(unsafe.Pointer(&prop)), 0); err != nil {
		tier := "device"
		if t == OnHost {
			tier = "host"
		}
		return fail(&gpu.AllocError{Stage: lease.Name(), Tier: tier, Size: size, Err: err})
	}
	at := v.addr + uintptr(offset)
	if err := v.dev.ctx.do(cuMemMap, at, uintptr(size), 0, m.handle, 0); err != nil {
		return fail(errors.Join(err, v.dev.ctx.do(cuMemRelease, m.handle)))
	}
	access := accessDesc{location: location{locationDevice, int32(v.dev.props.ordinal)}, flags: 3}
	if err := v.dev.ctx.do(cuMemSetAccess, at, uintptr(size), uintptr(unsafe.Pointer(&access)), 1); err != nil {
		return fail(errors.Join(err, v.dev.ctx.do(cuMemUnmap, at, uintptr(size)), v.dev.ctx.do(cuMemRelease, m.handle)))
	}
	v.mapped = append(v.mapped, m)
	return nil
}

// Close waits until the device is idle, then releases the memory and the addresses. If it cannot
// wait, the device is unusable or kernels may still run: the memory is then lost, and the error
// says why.
func (v *Virtual) Close() error {
	if v.addr == 0 {
		return nil
	}
	errs := []error{v.dev.ctx.do(cuCtxSynchronize)}
	for _, p := range v.mapped {
		if errs[0] == nil {
			errs = append(errs, v.dev.ctx.do(cuMemUnmap, v.addr+uintptr(p.offset), uintptr(p.size)),
				v.dev.ctx.do(cuMemRelease, p.handle))
		}
		p.lease.Unreserve(p.size)
	}
	if errs[0] == nil {
		errs = append(errs, v.dev.ctx.do(cuMemAddressFree, v.addr, uintptr(v.size)))
	}
	v.addr, v.mapped = 0, nil
	return errors.Join(errs...)
}
