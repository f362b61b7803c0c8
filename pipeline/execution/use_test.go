package execution

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

func TestAReportSaysWhatLimitsTheRun(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		use  Use
		want string
	}{
		{Use{Cores: 0.9}, "busy: cores 90 %\nwhat limits the run: cores"},
		{Use{Start: second, Cores: 0.3, Decoding: 0.8, Kernels: 0.1, Up: 0.4},
			"busy: cores 30 %, decoding pages 80 %, kernels 10 %, copies up 40 %; the GPU was ready after 1.000 s\n" +
				"what limits the run: decoding pages"},
		{Use{Start: 3 * second, Kernels: 0.9},
			"busy: kernels 90 %; the GPU was ready after 3.000 s\nwhat limits the run: the start of the GPU"},
		{Use{Kernels: 0.7, Down: 0.8}, "busy: kernels 70 %, copies down 80 %\nwhat limits the run: copies down"},
		{Use{Cores: 0.2, FromDisks: 700 << 20},
			"busy: cores 20 %; 700 MiB came from disks\nwhat limits the run: disks"},
		{Use{Cores: 0.2, FromDisks: 5 << 20}, "busy: cores 20 %; 5.0 MiB came from disks\n" +
			"what limits the run: nothing alone; the timeline shows what waits for what"},
	} {
		r := &Report{Use: &c.use, Wall: 4 * second,
			Stages: []StageReport{{Scan: &source.Progress{BytesRead: 1 << 30}}, {}}}
		require.Equal(t, c.want, r.UseText())
	}
	require.Empty(t, (&Report{}).UseText())
}
