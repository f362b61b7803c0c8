package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/spill"
)

func newDoctor() *cobra.Command {
	var format, dir string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine is ready for jobs, and say what to change",
		Long: `doctor checks what jobs need: CPU cores and memory within the limits of the container,
open files, the spill folder with its free space and speed, and on a GPU the driver, the
memory, page-locked memory, the link, and copies from other GPUs. Each line begins with ok,
note (jobs run, but something may be slow or missing) or problem; → says what to change.
doctor takes some seconds and leaves nothing behind. To measure the folder, it writes at most
256 MiB there.

The exit code is 0 unless there is a problem: 1 with the GPU, 4 with memory, 5 with the
folder.`,
		Example: "  gstream doctor\n  gstream doctor --spill-dir /nvme\n  gstream doctor --format json | jq " +
			"'.findings[] | select(.state != \"ok\")'",
		Args: args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usageError(fmt.Errorf("--format %s: must be text or json", format))
			}
			facts, err := lookAround(cmp.Or(dir, os.Getenv("GSTREAM_SPILL_DIR"), spill.DefaultDir()))
			if err != nil {
				return err
			}
			d := diagnose(facts)
			if err := printValue(cmd.OutOrStdout(), format, d); err != nil {
				return err
			}
			if d.problem != nil {
				return reported{d.problem}
			}
			return nil
		},
	}
	registerFormat(cmd, &format)
	cmd.Flags().StringVar(&dir, "spill-dir", "",
		"folder to check for rows that do not fit memory, or none (default: $GSTREAM_SPILL_DIR, $TMPDIR, or "+
			"else /var/tmp)")
	return cmd
}

// facts are what gstream doctor judges.
type facts struct {
	cores, cpus             int   // used by Go, and allowed for the process
	memory, free, installed int64 // bytes: within all limits, free, and of the machine
	lockable, files         uint64
	spill                   spillFacts
	driver                  error // why there is no GPU
	visible                 string
	gpus                    []gpuFacts
	peers                   []cuda.PeerLink
	peersErr                error
}

type gpuFacts struct {
	deviceInfo
	err error
}

// spillFacts describe the spill folder. Rates are in bytes per second.
type spillFacts struct {
	dir         string
	free        int64
	inMemory    bool
	write, read float64
	err         error
}

// lookAround collects the facts. The error is a failure of gstream itself.
func lookAround(dir string) (f facts, err error) {
	h, err := host.Open(host.Options{})
	if err != nil {
		return f, err
	}
	p := h.Properties()
	if err := h.Close(); err != nil {
		return f, err
	}
	f.cores, f.cpus, f.memory, f.free = runtime.GOMAXPROCS(0), runtime.NumCPU(), p.Memory, p.Free
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		f.installed = int64(info.Totalram) * int64(info.Unit)
	}
	f.lockable, f.files = limitOf(unix.RLIMIT_MEMLOCK), limitOf(unix.RLIMIT_NOFILE)
	f.spill = lookAtSpill(dir)
	f.visible = os.Getenv("CUDA_VISIBLE_DEVICES")
	n, err := cuda.Count("")
	if f.driver = err; err == nil && n == 0 {
		f.driver = errors.New("the NVIDIA driver sees no GPU")
	}
	for i := range n {
		info, err := measureGPU(i)
		info.ID = cmp.Or(info.ID, fmt.Sprintf("cuda:%d", i))
		f.gpus = append(f.gpus, gpuFacts{info, err})
	}
	f.peers, f.peersErr = measurePeers(f.gpus)
	return f, nil
}

// measurePeers copies between the GPUs that work.
func measurePeers(gpus []gpuFacts) (links []cuda.PeerLink, err error) {
	var numbers []int
	for i, g := range gpus {
		if g.err == nil {
			numbers = append(numbers, i)
		}
	}
	if len(numbers) < 2 {
		return nil, nil
	}
	g, err := cuda.OpenGroup(cuda.Options{}, numbers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return g.PeerLinks()
}

func limitOf(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Cur
}

// The bounds of the measurement of a disk.
const (
	diskTestBytes = 256 << 20
	diskTestTime  = 2 * time.Second
)

const tmpfsMagic, ramfsMagic = 0x01021994, 0x858458f6

// lookAtSpill creates a file without a name in a folder, writes it and reads it.
func lookAtSpill(dir string) (s spillFacts) {
	s.dir = dir
	if dir == spill.None {
		return s
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		s.err = &os.PathError{Op: "look at", Path: dir, Err: err}
		return s
	}
	s.free = int64(st.Bavail) * int64(st.Bsize)
	s.inMemory = int64(st.Type) == tmpfsMagic || int64(st.Type) == ramfsMagic
	f, err := os.CreateTemp(dir, ".gstream-doctor-*")
	if err != nil {
		s.err = err
		return s
	}
	defer f.Close()
	if s.err = os.Remove(f.Name()); s.err != nil || s.inMemory {
		return s
	}
	s.write, s.read, s.err = diskRates(f, min(diskTestBytes, s.free/4))
	return s
}

// diskRates writes at most that many bytes to a file, waits until they are on the disk, and reads
// them back from the disk.
func diskRates(f *os.File, most int64) (write, read float64, err error) {
	block := make([]byte, 4<<20)
	seed := rand.NewChaCha8([32]byte{})
	seed.Read(block) // a file system may compress
	var n int64
	begin := time.Now()
	for n+int64(len(block)) <= most && time.Since(begin) < diskTestTime {
		if _, err := f.Write(block); err != nil {
			return 0, 0, err
		}
		n += int64(len(block))
	}
	if n == 0 {
		return 0, 0, nil
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return 0, 0, &os.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	write = float64(n) / time.Since(begin).Seconds()
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // otherwise the page cache is measured
	begin = time.Now()
	var got int64
	for got < n && time.Since(begin) < diskTestTime {
		k, err := f.ReadAt(block, got)
		if got += int64(k); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		if k == 0 {
			break
		}
	}
	return write, float64(got) / time.Since(begin).Seconds(), nil
}

// diagnosis is the output of gstream doctor.
type diagnosis struct {
	Version  string    `json:"version"`
	Findings []finding `json:"findings"`

	problem error
}

// finding is one line of a diagnosis.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, note or problem
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

func (d diagnosis) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gstream %s %s/%s\n", d.Version, runtime.GOOS, runtime.GOARCH)
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.State, f.Check, f.Found)
		if f.Advice != "" {
			fmt.Fprintf(&b, "         → %s\n", f.Advice)
		}
	}
	return b.String()
}

func (d *diagnosis) ok(check, found string, args ...any) {
	d.Findings = append(d.Findings, finding{check, "ok", fmt.Sprintf(found, args...), ""})
}

func (d *diagnosis) note(check, advice, found string, args ...any) {
	d.Findings = append(d.Findings, finding{check, "note", fmt.Sprintf(found, args...), advice})
}

// fail adds a problem. class is an error that has the exit code.
func (d *diagnosis) fail(check string, class error, advice, found string, args ...any) {
	d.Findings = append(d.Findings, finding{check, "problem", fmt.Sprintf(found, args...), advice})
	d.problem = errors.Join(d.problem, fmt.Errorf("%s: %w", check, class))
}

// Bounds below which doctor makes a note.
const (
	littleMemory = 1 << 30
	noMemory     = 128 << 20
	fewFiles     = 1024
	slowDisk     = 300e6 // bytes per second
	littleDisk   = 4 << 30
	slowLink     = 10e9 // bytes per second; a PCIe 4.0 link of 16 lanes has some 25 GB/s
)

// diagnose turns facts into findings.
func diagnose(f facts) (d diagnosis) {
	d.Version = version() + " " + runtime.Version()
	if f.cores < f.cpus {
		d.note("cores", "raise the CPU quota of the container or GOMAXPROCS, if this is not intended",
			"%d of %d CPU cores are used", f.cores, f.cpus)
	} else {
		d.ok("cores", "%d", f.cores)
	}
	d.memory(f)
	if f.files < fewFiles {
		d.note("open files", "ulimit -n 4096, or more", "at most %d", f.files)
	} else {
		d.ok("open files", "at most %s", limitText(f.files, func(n uint64) string { return fmt.Sprint(n) }))
	}
	d.spill(f.spill, f.memory)
	d.gpus(f)
	return d
}

func (d *diagnosis) memory(f facts) {
	text := fmt.Sprintf("%s free of %s, so --host-memory is %s by default", size(f.free), size(f.memory),
		size(grant.HostBudget.Of(f.free)))
	limited := f.memory < f.installed
	if limited {
		text += fmt.Sprintf("; the control group (cgroup) allows %s of the machine's %s", size(f.memory),
			size(f.installed))
	}
	advice := "stop other programs, or use a machine with more memory"
	if limited {
		advice = "raise the memory limit of the container, or stop other programs in it"
	}
	switch {
	case f.free < noMemory:
		d.fail("memory", gpu.ErrBudget, advice, "%s", text)
	case f.free < littleMemory:
		d.note("memory", advice+"; large joins, groups and sorts will spill", "%s", text)
	default:
		d.ok("memory", "%s", text)
	}
}

func (d *diagnosis) spill(s spillFacts, memory int64) {
	const check = "spill folder"
	const other = "choose another folder with --spill-dir or GSTREAM_SPILL_DIR"
	text := fmt.Sprintf("%s has %s free", s.dir, size(s.free))
	if s.write > 0 {
		text += fmt.Sprintf(", writes %.0f MB/s, reads %.0f", s.write/1e6, s.read/1e6)
	}
	switch {
	case s.dir == spill.None:
		d.note(check, "name a folder with --spill-dir if a run fails for lack of memory",
			"none, so a job that does not fit memory fails")
	case s.err != nil:
		d.fail(check, s.err, other+", or make it writable", "%v", s.err)
	case s.inMemory:
		d.note(check, other+" on a disk: files in this one use memory", "%s, but is in memory (tmpfs)", text)
	case s.free < littleDisk || s.free < memory/2:
		d.note(check, "free some space, or "+other, "%s, which is little compared with %s of memory", text,
			size(memory))
	case s.write > 0 && s.write < slowDisk:
		d.note(check, other+" on a faster disk (NVMe), or give runs more --host-memory", "%s, which is slow", text)
	default:
		d.ok(check, "%s", text)
	}
}

func (d *diagnosis) gpus(f facts) {
	const install = "jobs run on the CPU. For a GPU install driver 580 or newer; in a container, start it with the " +
		"GPU (docker run --gpus all)"
	lockable := limitText(f.lockable, func(n uint64) string { return size(int64(n)) })
	switch {
	case errors.Is(f.driver, cuda.ErrNoDriver):
		d.note("driver", install, "%v", f.driver)
	case f.driver != nil && f.visible != "":
		d.fail("driver", pipeline.ErrDefect,
			"look at nvidia-smi and CUDA_VISIBLE_DEVICES; until then jobs run on the CPU",
			"%v (CUDA_VISIBLE_DEVICES is %q)", f.driver, f.visible)
	case f.driver != nil:
		d.fail("driver", pipeline.ErrDefect, "look at nvidia-smi; until then jobs run on the CPU", "%v", f.driver)
	default:
		d.ok("driver", "%s", plural(int64(len(f.gpus)), "GPU"))
	}
	for _, g := range f.gpus {
		if g.err != nil {
			advice := "look at nvidia-smi; until then run jobs with --device host or another GPU"
			if failed := (*cuda.Error)(nil); errors.As(g.err, &failed) && failed.PageLocks() {
				advice = "lower --host-memory, raise ulimit -l (it is " + lockable +
					"), and look at the permissions of /dev/nvidia*"
			}
			d.fail(g.ID, pipeline.ErrDefect, advice, "%v", g.err)
			continue
		}
		text := fmt.Sprintf("%s, %s free of %s, %s", g.Name, size(g.Free), size(g.Memory), g.Details)
		if g.Free < g.Memory/2 {
			d.note(g.ID, "stop other programs on the GPU (nvidia-smi lists them), or choose another with --device",
				"%s", text)
		} else {
			d.ok(g.ID, "%s", text)
		}
		if l := g.Link; l != nil {
			text := fmt.Sprintf("%.1f GB/s up, %.1f down, %.1f both", l.Up/1e9, l.Down/1e9, l.Both/1e9)
			if min(l.Up, l.Down) < slowLink {
				d.note(g.ID+" link",
					"look at the generation and width of the link (nvidia-smi -q), and whether another program copies",
					"%s, which is slow", text)
			} else {
				d.ok(g.ID+" link", "%s", text)
			}
			d.ok(g.ID+" page-locked memory", "locked and copied by the measurement of the link; ulimit -l is %s",
				lockable)
		}
	}
	d.peers(f.peers, f.peersErr)
	if len(f.gpus) == 0 {
		d.ok("page-locked memory", "not used without a GPU; ulimit -l is %s", lockable)
	}
}

// peers judges copies between GPUs.
func (d *diagnosis) peers(links []cuda.PeerLink, err error) {
	const check = "copies between GPUs"
	if err != nil {
		d.fail(check, pipeline.ErrDefect, "look at nvidia-smi; until then run jobs with one GPU", "%v", err)
	}
	if err != nil || len(links) == 0 {
		return
	}
	var changed []string
	var direct, detours []cuda.PeerLink
	for _, l := range links {
		if l.Changed {
			changed = append(changed, l.From+" to "+l.To)
		}
		if l.Direct {
			direct = append(direct, l)
		} else {
			detours = append(detours, l)
		}
	}
	found := "direct: " + pairsOf(direct)
	switch {
	case len(changed) > 0:
		d.fail(check, pipeline.ErrDefect, "run jobs with one GPU, as in --device cuda:0; switch off the IOMMU, or ACS "+
			"of PCIe switches, which damage such copies", "bytes arrive changed: %s", strings.Join(changed, ", "))
	case len(detours) > 0:
		if len(direct) == 0 {
			found = "no pair has direct access"
		}
		d.note(check, "jobs run, but exchange rows more slowly: take GPUs that NVLink or one PCIe switch connects "+
			"(nvidia-smi topo -m), and look at the IOMMU and at virtualisation",
			"no direct access: %s; these go through host memory; %s", pairsOf(detours), found)
	default:
		d.ok(check, "%s", found)
	}
}

// mostPairs is the most pairs of GPUs whose rates are all shown: those of four GPUs.
const mostPairs = 12

// pairsOf lists pairs of GPUs with the rates of their copies; of many pairs it has the slowest and the fastest one.
func pairsOf(links []cuda.PeerLink) string {
	text := func(l cuda.PeerLink) string { return fmt.Sprintf("%s to %s %.1f GB/s", l.From, l.To, l.Rate/1e9) }
	if len(links) > mostPairs {
		byRate := func(a, b cuda.PeerLink) int { return cmp.Compare(a.Rate, b.Rate) }
		return fmt.Sprintf("%d pairs, from %s up to %s", len(links), text(slices.MinFunc(links, byRate)),
			text(slices.MaxFunc(links, byRate)))
	}
	var list []string
	for _, l := range links {
		list = append(list, text(l))
	}
	return strings.Join(list, ", ")
}

// limitText formats a resource limit.
func limitText(n uint64, format func(uint64) string) string {
	if n >= 1<<62 {
		return "unlimited"
	}
	return format(n)
}
