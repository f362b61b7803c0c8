package bench

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/join"
)

// workload is a join to measure: R is the build side, S the probe side. R has equally many rows of
// every key. S has the keys of R with equal frequencies, or distributed by Zipf.
type workload struct {
	// chart names the chart that has the case as a point, and at is its position there: the value
	// of the parameter that the chart varies.
	family, chart, at string
	build, probe      int // rows
	// distinct is the number of distinct keys of R; 0 means that all keys are distinct.
	distinct     int
	oneIn        int     // one in oneIn keys of R is also a key of S
	zipf         float64 // exponent of the frequencies of keys in S, 0 for uniform
	payloads     int     // columns of each side besides its key
	key, payload int     // bytes per value, 4 or 8
}

// full is the size of the largest workloads, which Options.Rows replaces.
const full = 1 << 27

// Families are the groups of workloads of the benchmark join: the acceptance cases, and a family
// for each parameter.
func Families() []string {
	return []string{"acceptance", "sizes", "payloads", "match", "zipf", "widths", "many", "rui"}
}

// workloads are those of Wu et al. (SIGMOD 2025, §5) and, as "rui", of Rui & Tu (SSDBM
// 2017, §4), at full size.
func workloads() (all []workload) {
	usual := workload{build: full, probe: full, oneIn: 1, payloads: 2, key: 4, payload: 4}
	add := func(family, chart, at string, change func(*workload)) {
		w := usual
		w.family, w.chart, w.at = family, chart, at
		change(&w)
		all = append(all, w)
	}
	for _, c := range []struct {
		at     string
		change func(*workload)
	}{
		{"|R| = |S|", func(*workload) {}},
		{"10 % match", func(w *workload) { w.oneIn = 10 }},
		{"Zipf 1", func(w *workload) { w.zipf = 1 }},
		{"Zipf 1.5", func(w *workload) { w.zipf = 1.5 }},
		{"|R| = |S|/2", func(w *workload) { w.build /= 2 }},
		{"|R| = |S|/2, 1+1", func(w *workload) { w.build, w.payloads = w.build/2, 1 }},
		{"8 bytes", func(w *workload) { w.key, w.payload = 8, 8 }},
		{"|R| = 2^22", func(w *workload) { w.build = 1 << 22 }},
		{"|R| = 2^20", func(w *workload) { w.build = 1 << 20 }},
	} {
		add("acceptance", "acceptance", c.at, c.change)
	}
	for _, payloads := range []int{1, 2} {
		for _, log := range []int{25, 26, 27} {
			add("sizes", fmt.Sprintf("|S| = 2 |R|, %d+%d payloads", payloads, payloads), fmt.Sprint("|R| = 2^", log),
				func(w *workload) {
					w.build, w.probe, w.payloads = 1<<log, 2<<log, payloads
				})
		}
	}
	for _, log := range []int{20, 22, 23, 24, 25, 26, 27} {
		add("sizes", "|S| = 2^27", fmt.Sprint("|R| = 2^", log), func(w *workload) { w.build = 1 << log })
	}
	for n := 1; n <= 6; n++ {
		add("payloads", "payload columns", fmt.Sprintf("%d+%d", n, n), func(w *workload) { w.payloads = n })
	}
	for _, n := range []int{1, 2, 4, 8, 16} {
		add("match", "share of rows with a match", fmt.Sprint("1/", n), func(w *workload) { w.oneIn = n })
	}
	for _, n := range []int{1, 2, 4, 8, 16} {
		add("match", "share of rows with a match, 6+6 payloads", fmt.Sprint("1/", n),
			func(w *workload) { w.oneIn, w.payloads = n, 6 })
	}
	for _, s := range []float64{0, 0.5, 1, 1.5, 2} {
		add("zipf", "foreign keys by Zipf", fmt.Sprint(s), func(w *workload) { w.zipf = s })
	}
	for _, log := range []int{22, 24} {
		for _, s := range []float64{0, 1, 2} {
			add("zipf", fmt.Sprintf("|R| = 2^%d, foreign keys by Zipf", log), fmt.Sprint(s),
				func(w *workload) { w.build, w.zipf = 1<<log, s })
		}
	}
	for _, b := range [][2]int{{4, 4}, {4, 8}, {8, 8}} {
		add("widths", "bytes of keys and payloads", fmt.Sprintf("%d/%d", b[0], b[1]),
			func(w *workload) { w.key, w.payload = b[0], b[1] })
	}
	for _, log := range []int{23, 24, 25} {
		add("many", "many to many, distinct keys", fmt.Sprint("2^", log),
			func(w *workload) { w.build, w.probe, w.distinct = full/2, full/2, 1<<log })
	}
	add("many", "more pairs than row ids", "2^31",
		func(w *workload) { w.build, w.probe, w.distinct, w.payloads = 1<<24, 1<<24, 1<<17, 1 })
	for _, m := range []int{16, 32, 64, 128} {
		add("rui", "tuples of 8 bytes", fmt.Sprint(m, "M"),
			func(w *workload) { w.build, w.probe, w.payloads = m<<20, m<<20, 1 })
	}
	for _, x := range []string{"1/4", "1/2", "1", "2", "4", "8", "16"} {
		add("rui", "32M tuples of 8 bytes, output of so many times their rows", x, func(w *workload) {
			w.build, w.probe, w.payloads = 32<<20, 32<<20, 1
			if of, share := strings.CutPrefix(x, "1/"); share {
				w.oneIn, _ = strconv.Atoi(of)
			} else {
				times, _ := strconv.Atoi(x)
				w.distinct = w.build / times
			}
		})
	}
	return all
}

// scaled returns the workload with so many rows instead of the full size, and all other sizes in
// proportion.
func (w workload) scaled(rows int) workload {
	scale := func(n int) int {
		hi, lo := bits.Mul64(uint64(n), uint64(rows))
		q, _ := bits.Div64(hi, lo, full)
		return max(int(q), 1)
	}
	w.build, w.probe = scale(w.build), scale(w.probe)
	if w.distinct == 0 {
		w.distinct = w.build
	} else {
		w.distinct = scale(w.distinct)
	}
	return w
}

// name describes the workload.
func (w workload) name() string {
	name := fmt.Sprintf("%s ⋈ %s, %d+%d payloads, %d/%d bytes", size(w.build), size(w.probe), w.payloads, w.payloads,
		w.key, w.payload)
	if w.distinct < w.build {
		name += fmt.Sprintf(", %s distinct keys", size(w.distinct))
	}
	if w.oneIn > 1 {
		name += fmt.Sprintf(", 1/%d match", w.oneIn)
	}
	if w.zipf > 0 {
		name += fmt.Sprintf(", Zipf %v", w.zipf)
	}
	return name
}

// size formats a number of rows, as a power of two if it is one.
func size(n int) string {
	if n >= 1<<10 && n&(n-1) == 0 {
		return fmt.Sprint("2^", bits.Len(uint(n))-1)
	}
	return fmt.Sprint(n)
}

// bytes returns the bytes that must be moved: both sides are read once, and a result of the key and
// all payloads is written once.
func (w workload) bytes(pairs int64) int64 {
	side := int64(w.key + w.payloads*w.payload)
	return int64(w.build+w.probe)*side + pairs*(side+int64(w.payloads*w.payload))
}

// spec is the join of the workload with an algorithm. The result has the key, and the payloads of S
// and of R. The estimates are accurate.
func (w workload) spec(algorithm string) join.Spec {
	s := join.Spec{Kind: join.Inner, Algorithm: algorithm, Probe: w.schema("s"), Build: w.schema("r"),
		ProbeKeys: []int{0}, BuildKeys: []int{0},
		NullSafe: []bool{false}, ProbeOut: []int{0}, ProbeRows: int64(w.probe), BuildRows: int64(w.build),
		UniqueBuild: w.distinct == w.build,
		PairRows:    int64(w.probe / w.oneIn * (w.build / w.distinct)), AnyOrder: true}
	if algorithm == Chosen {
		s.Algorithm = ""
	}
	for i := range w.payloads {
		s.ProbeOut, s.BuildOut = append(s.ProbeOut, i+1), append(s.BuildOut, i+1)
	}
	s.Out = gpu.NewSchema(append(slices.Clone(s.Probe.Fields), s.Build.Fields[1:]...)...)
	return s
}

// schema has a key and the payloads.
func (w workload) schema(side string) *gpu.Schema {
	fields := []gpu.Field{{Name: "key", Type: integer(w.key)}}
	for i := range w.payloads {
		fields = append(fields, gpu.Field{Name: fmt.Sprint(side, i+1), Type: integer(w.payload)})
	}
	return gpu.NewSchema(fields...)
}

func integer(bytes int) gpu.Type {
	if bytes == 4 {
		return gpu.Of(gpu.Int32)
	}
	return gpu.Of(gpu.Int64)
}

// chosenWorkloads returns the workloads of the named families, and those whose name, chart or
// position contains a text, each once, in their order. Without names it returns "acceptance".
func chosenWorkloads(names []string, rows int) (out []workload, err error) {
	var all []workload
	for _, w := range workloads() {
		all = append(all, w.scaled(rows))
	}
	out, err = pickCases("join", names, Families(), all, func(w workload) (family, text string) {
		return w.family, w.family + ": " + w.chart + ": " + w.at + ": " + w.name()
	})
	for _, w := range out {
		if max(w.build, w.probe) > gpu.MaxRows {
			return nil, fmt.Errorf("%s has more than %d rows a side: lower --rows", w.name(), gpu.MaxRows)
		}
	}
	return out, err
}

// pickCases returns cases, each once, in their order. A name selects the cases of a family, or
// those whose text contains it; "join:0.5" selects those cases of family join whose text contains
// 0.5. Without names it returns "acceptance".
func pickCases[C any](benchmark string, names, families []string, all []C,
	describe func(C) (family, text string)) (out []C, err error) {
	if len(names) == 0 {
		names = []string{"acceptance"}
	}
	found := make([]bool, len(names))
	for _, c := range all {
		of, text := describe(c)
		text = strings.ToLower(text)
		wanted := false
		for i, n := range names {
			family, part, _ := strings.Cut(n, ":")
			if !slices.Contains(families, family) {
				family, part = of, n
			}
			if n == "all" || family == of && strings.Contains(text, strings.ToLower(part)) {
				found[i], wanted = true, true
			}
		}
		if wanted {
			out = append(out, c)
		}
	}
	for i, f := range found {
		if !f {
			return nil,
				fmt.Errorf("no case of the benchmark %s is named %q: name all, a family (%s), a part of a case's "+
					"name, or both as in FAMILY:PART", benchmark, names[i], strings.Join(families, ", "))
		}
	}
	return out, nil
}

// Chosen stands for the algorithm that an operator chooses itself.
const Chosen = "chosen"

// named has the algorithms of an operator.
type named struct {
	operator string
	all      func() []string
	on       func(gpu.Properties) []string
}

var joinAlgorithms = named{"join", join.Algorithms, join.AlgorithmsOn}

// chosen resolves names of algorithms: no names mean Chosen, and "all" means Chosen and all
// algorithms.
func (a named) chosen(names []string, p gpu.Properties) (out []string, err error) {
	if len(names) == 0 {
		names = []string{Chosen}
	}
	for _, n := range names {
		switch {
		case n == "all":
			out = append(append(out, Chosen), a.on(p)...)
		case n == Chosen || slices.Contains(a.all(), n):
			out = append(out, n)
		default:
			return nil, fmt.Errorf("no %s algorithm is named %q: name all, chosen, %s", a.operator, n,
				strings.Join(a.all(), ", "))
		}
	}
	return out, nil
}
