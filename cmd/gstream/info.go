package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// deviceList is what gstream devices prints.
type deviceList struct {
	Devices []gpu.Properties `json:"devices"`
}

func (l deviceList) String() string {
	var b strings.Builder
	for _, p := range l.Devices {
		fmt.Fprintf(&b, "%s: %s, %d cores, %s memory, %s free", p.Kind, p.Name, p.Cores, size(p.Memory), size(p.Free))
		if p.Details != "" {
			b.WriteString(", " + p.Details)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func newDevices() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "devices",
		Short:   "List the devices that stages can run on",
		Example: "  gstream devices\n  gstream devices --format json",
		Args:    args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := host.Open(host.Options{})
			if err != nil {
				return err
			}
			defer d.Close()
			return printValue(cmd.OutOrStdout(), format, deviceList{[]gpu.Properties{d.Properties()}})
		},
	}
	registerFormat(cmd, &format)
	return cmd
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  gstream version",
		Args:    args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, commit := "(devel)", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				if info.Main.Version != "" {
					version = info.Main.Version
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						commit = " " + s.Value
					}
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "gstream %s%s %s %s/%s\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
