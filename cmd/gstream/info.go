package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
)

// deviceList is the output of gstream devices.
type deviceList struct {
	Devices []deviceInfo `json:"devices"`
	// NoGPU is the reason why no GPU is listed.
	NoGPU string `json:"no_gpu,omitempty"`
}

// deviceInfo is a device and the measured link of a GPU.
type deviceInfo struct {
	gpu.Properties
	Link *gpu.Link `json:"link,omitempty"`
}

func (l deviceList) String() string {
	var b strings.Builder
	for _, p := range l.Devices {
		fmt.Fprintf(&b, "%s: %s, %d cores, %s memory, %s free", p.ID, p.Name, p.Cores, size(p.Memory), size(p.Free))
		if p.Details != "" {
			b.WriteString(", " + p.Details)
		}
		if l := p.Link; l != nil {
			fmt.Fprintf(&b, ", link %.1f GB/s up, %.1f down, %.1f both, copies at %.0f GB/s", l.Up/1e9, l.Down/1e9,
				l.Both/1e9, l.Copy/1e9)
		}
		b.WriteByte('\n')
	}
	if l.NoGPU != "" {
		fmt.Fprintf(&b, "no GPU: %s\n", l.NoGPU)
	}
	return b.String()
}

func newDevices() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that jobs can run on, and measure the links to GPUs",
		Long: `devices lists the CPU and every NVIDIA GPU with its memory. For a GPU it measures, in GB/s,
copies over the link (up, down, and both at once) and copies within the GPU's memory (bytes
read plus bytes written). If there is no GPU, it says why.`,
		Example: "  gstream devices\n  gstream devices --format json",
		Args:    args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listDevices()
			if err != nil {
				return err
			}
			return printValue(cmd.OutOrStdout(), format, list)
		},
	}
	registerFormat(cmd, &format)
	return cmd
}

// listDevices opens every device. A GPU that cannot be opened is not an error: the list has the
// reason.
func listDevices() (list deviceList, err error) {
	h, err := host.Open(host.Options{})
	if err != nil {
		return list, err
	}
	list.Devices = append(list.Devices, deviceInfo{Properties: h.Properties()})
	if err := h.Close(); err != nil {
		return list, err
	}
	n, err := cuda.Count("")
	if err != nil {
		list.NoGPU = err.Error()
		return list, nil
	}
	if n == 0 {
		list.NoGPU = "the NVIDIA driver sees none"
	}
	for i := range n {
		info, err := measureGPU(i)
		if err != nil {
			list.NoGPU = err.Error()
			continue
		}
		list.Devices = append(list.Devices, info)
	}
	return list, nil
}

func measureGPU(ordinal int) (info deviceInfo, err error) {
	d, err := cuda.Open(cuda.Options{Ordinal: ordinal})
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	link, err := d.Link()
	if err != nil {
		return info, err
	}
	return deviceInfo{Properties: d.Properties(), Link: &link}, nil
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, as --version does",
		Example: "  gstream version",
		Args:    args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("gstream %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version returns the module's version and the commit it was built from.
func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				version += " " + s.Value
			}
		}
	}
	return version
}
