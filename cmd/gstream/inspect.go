package main

import (
	"github.com/spf13/cobra"

	"github.com/gstream/gstream/source/parquet"
)

func newInspect() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what a Parquet file says of itself",
		Long: `inspect prints a file's schema, row groups, codecs, encodings, sizes and
statistics. It reads the file's footer only.`,
		Example: "  gstream inspect data/orders.parquet\n  gstream inspect data/orders.parquet --format json",
		Args:    args(1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := parquet.Inspect(args[0])
			if err != nil {
				return err
			}
			return printValue(cmd.OutOrStdout(), format, fileInfo{info})
		},
	}
	registerFormat(cmd, &format)
	return cmd
}
