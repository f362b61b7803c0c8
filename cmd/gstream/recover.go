package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/sink/staging"
)

func newRecover() *cobra.Command {
	return &cobra.Command{
		Use:   "recover FOLDER...",
		Short: "Complete or undo the outputs of runs that were killed",
		Long: `recover looks in folders for what killed runs have left. If a run was killed while it gave
several outputs their names, recover makes the renames that are missing, or undoes those
that were not yet to count. Then it removes files that never got their names. It leaves what
belongs to runs that still work. Every run does the same in the folders that it writes into
or reads from.`,
		Example: "  gstream recover out",
		Args: func(_ *cobra.Command, list []string) error {
			if len(list) == 0 {
				return usageError(errors.New("recover needs the folders of outputs"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, folders []string) error {
			for _, folder := range folders {
				info, err := os.Stat(folder)
				if err == nil && !info.IsDir() {
					err = &fs.PathError{Op: "recover", Path: folder, Err: syscall.ENOTDIR}
				}
				if err != nil {
					return err
				}
				if err := staging.Sweep(folder); err != nil {
					return fmt.Errorf("%s: %w", folder, err)
				}
			}
			return nil
		},
	}
}
