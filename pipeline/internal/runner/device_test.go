package runner

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/job"
)

func TestDevicesHaveNames(t *testing.T) {
	for name, want := range map[string]string{"": "auto []", "auto": "auto []", "host": "host []", "cuda": "cuda []",
		"cuda:0": "cuda [0]", "cuda:1": "cuda [1]", "cuda:12": "cuda [12]", "cuda:2,0": "cuda [2 0]",
		"cuda:all":  "cuda [] all",
		"auto+host": "auto [] with host", "cuda+host": "cuda [] with host", "cuda:1+host": "cuda [1] with host",
		"cuda:0,2+host": "cuda [0 2] with host", "cuda:all+host": "cuda [] all with host"} {
		w, err := parseDevice(name)
		require.NoError(t, err)
		got := fmt.Sprint(w.kind, " ", w.numbers)
		if w.all {
			got += " all"
		}
		if w.withHost {
			got += " with host"
		}
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"tpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:01", "cuda:1 ",
		"cuda:70000", "cuda:1:2", "host:0", "auto:1", ":1", "host+host", "+host", "auto+", "auto+cuda", "cuda+host:1",
		"cuda+host+host", "host+cuda", "cuda:0,", "cuda:0,0", "cuda:all,1",
		"host:all"} {
		err := CheckDevice(name)
		require.ErrorIs(t, err, job.ErrInvalid, name)
		require.ErrorContains(t, err, "device "+name+": must be auto, host, cuda or", name)
		_, err = OpenDevice(execution.Options{Use: name})
		require.ErrorIs(t, err, job.ErrInvalid, name)
	}
}
