package gpu

import "errors"

// Group is several devices of one machine that a run uses together. As a Device it is the first of them. They share the
// budget of host memory.
type Group struct {
	Device
	Devices []Device
}

// NewGroup returns a group of at least one device.
func NewGroup(devices []Device) *Group { return &Group{devices[0], devices} }

// DevicesOf returns the devices of a group, or the device itself.
func DevicesOf(d Device) []Device {
	if g, ok := d.(interface{ Members() []Device }); ok {
		return g.Members()
	}
	return []Device{d}
}

// Members returns the devices.
func (g *Group) Members() []Device { return g.Devices }

// Close closes all devices, the first one last.
func (g *Group) Close() error {
	var errs []error
	for i := len(g.Devices) - 1; i >= 0; i-- {
		errs = append(errs, g.Devices[i].Close())
	}
	return errors.Join(errs...)
}
