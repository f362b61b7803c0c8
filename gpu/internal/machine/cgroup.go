package machine

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// controller is a version of the memory controller of Linux: the names of its files, and
// the fields of memory.stat that are page cache, which the system reclaims under
// pressure.
type controller struct {
	limits []string
	used   string
	cache  []string
}

var (
	v1 = controller{[]string{"memory.limit_in_bytes"}, "memory.usage_in_bytes",
		[]string{"total_inactive_file", "total_active_file"}}
	v2 = controller{[]string{"memory.max", "memory.high"}, "memory.current", []string{"inactive_file", "active_file"}}
)

// cgroupMemory returns the lowest limit of the control groups that enclose this process,
// and the least memory that one of them leaves free. Both are math.MaxInt64 without a
// limit. root is the file system at its root.
func cgroupMemory(root fs.FS) (limit, free int64) {
	limit, free = math.MaxInt64, math.MaxInt64
	for _, m := range mounts(root) {
		c, group, ok := memberOf(root, m)
		if !ok {
			continue
		}
		// Every group from the process's own up to the mount is a bound.
		for dir := path.Join(m.point, group); ; dir = path.Dir(dir) {
			most := int64(math.MaxInt64)
			for _, name := range c.limits {
				most = min(most, number(root, path.Join(dir, name)))
			}
			if most < math.MaxInt64 {
				limit = min(limit, most)
				if used := number(root, path.Join(dir, c.used)); used < math.MaxInt64 {
					free = min(free, most-used+c.cached(root, dir))
				}
			}
			if len(dir) <= len(m.point) {
				break
			}
		}
	}
	return limit, free
}

// mount is the folder where a hierarchy of control groups is mounted. top is the group at
// the mount point.
type mount struct {
	version    controller
	two        bool
	top, point string // point is relative to the root
}

func mounts(root fs.FS) (out []mount) {
	text, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for _, line := range strings.Split(string(text), "\n") {
		// id parent device root point options … - type source options
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{version: v2, two: kind[0] == "cgroup2", top: fields[3], point: strings.TrimPrefix(fields[4], "/")}
		if kind[0] == "cgroup" && contains(kind[2], "memory") {
			m.version = v1
		} else if !m.two {
			continue
		}
		out = append(out, m)
	}
	return out
}

// memberOf returns the group of this process, relative to a mount.
func memberOf(root fs.FS, m mount) (c controller, group string, ok bool) {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.SplitN(line, ":", 3) // number:controllers:group
		if len(f) < 3 || m.two != (f[1] == "") || !m.two && !contains(f[1], "memory") {
			continue
		}
		// A container may see only the part of the hierarchy below top.
		group, below := strings.CutPrefix(f[2], strings.TrimSuffix(m.top, "/"))
		if !below {
			group = "/"
		}
		return m.version, group, true
	}
	return controller{}, "", false
}

// contains reports whether a word is in a list separated by commas.
func contains(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// number reads a file with one number. It returns math.MaxInt64 when the file has none,
// for example "max".
func number(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return math.MaxInt64
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || v > math.MaxInt64/2 { // v1 writes a large number of pages for no limit
		return math.MaxInt64
	}
	return v
}

// cached returns the bytes of page cache of a group.
func (c controller) cached(root fs.FS, dir string) (sum int64) {
	text, _ := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	for _, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(line, " ")
		for _, name := range c.cache {
			if v, err := strconv.ParseInt(value, 10, 64); key == name && err == nil {
				sum += v
			}
		}
	}
	return sum
}
