package machine

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func files(texts map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range texts {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const (
	mountTwo = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountOne = "33 28 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n34 28 0:30 / /sys/fs/cgroup/memory rw - " +
		"cgroup cgroup rw,memory\n"
	none = int64(math.MaxInt64)
)

func TestTheLeastLimitOfTheEnclosingGroupsCounts(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		limit, free int64
	}{
		"no control groups": {nil, none, none},
		"version 2, without a limit": {map[string]string{"proc/self/mountinfo": mountTwo,
			"proc/self/cgroup":                    "0::/user.slice\n",
			"sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.current": "5\n"}, none,
			none},
		"version 2, of the group itself": {map[string]string{"proc/self/mountinfo": mountTwo,
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.current": "400\n"}, 1000, 600},
		"version 2, of a slice around it that is fuller": {map[string]string{"proc/self/mountinfo": mountTwo,
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.current": "400\n",
			"sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/memory.current": "1900\n"}, 1000, 100},
		"version 2, the high mark": {map[string]string{"proc/self/mountinfo": mountTwo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.high": "700\n",
			"sys/fs/cgroup/a/memory.current": "100\n"}, 700, 600},
		"page cache is not used": {map[string]string{"proc/self/mountinfo": mountTwo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "900\n",
			"sys/fs/cgroup/a/memory.stat": "anon 300\nfile 600\ninactive_file 350\nactive_file 150\nshmem 100\n"}, 1000,
			600},
		"version 2, the container's own part": {map[string]string{"proc/self/cgroup": "0::/docker/x\n",
			"proc/self/mountinfo":          "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory.max":     "1000\n",
			"sys/fs/cgroup/memory.current": "1\n"}, 1000, 999},
		"version 1": {map[string]string{"proc/self/mountinfo": mountOne,
			"proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/y\n",
			"sys/fs/cgroup/memory/docker/y/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/docker/y/memory.usage_in_bytes": "900\n",
			"sys/fs/cgroup/memory/docker/y/memory.stat": "cache 700\ntotal_inactive_file " +
				"200\ntotal_active_file 100\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1000, 400},
	} {
		limit, free := cgroupMemory(files(c.files))
		require.Equal(t, c.limit, limit, name)
		require.Equal(t, c.free, free, name)
	}
}

func TestMemoryIsThatOfThisMachine(t *testing.T) {
	total, free := Memory()
	require.Greater(t, total, int64(64<<20))
	require.Positive(t, free)
	require.LessOrEqual(t, free, total)
}
