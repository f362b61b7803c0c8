package main

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/operators/bench"
)

// published is a result of other code for a case of a benchmark.
type published struct {
	Chart string  `json:"chart"`
	At    string  `json:"at"`
	Rows  int64   `json:"rows"`
	Name  string  `json:"name"`
	Ms    float64 `json:"ms"`
}

// plot draws each case as a bar: its rate as a fraction of its bound. Cases of the benchmarks join
// and groupby are in charts below the bars: lines where the cases are a scale, otherwise bars. Charts also have the
// bounds, and the references for the same numbers of rows.
func plot(w io.Writer, r benchReport, refs []published) error {
	const bar, gap, width = 16, 6, 420
	var bars []bench.Result
	var charts []*chart
	for _, res := range r.Results {
		p := res.Point()
		if p == nil {
			bars = append(bars, res)
			continue
		}
		at := slices.IndexFunc(charts, func(c *chart) bool { return c.title == p.Chart })
		if at < 0 {
			at, charts = len(charts), append(charts, &chart{title: p.Chart})
		}
		charts[at].add(res, refs)
	}
	left, right := 60, 0 // of a bar with its texts
	for _, res := range bars {
		left = max(left, pixels(res.Benchmark+": "+res.Case)+16)
		right = max(right, int(min(res.Fraction(), 1.2)*width)+6+pixels(barLabel(res)))
	}
	const top = 40
	below := top
	if len(bars) > 0 {
		below += len(bars)*(bar+gap) + 30
	}
	height := below + (len(charts)+chartsAbreast-1)/chartsAbreast*chartHeight
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12">`+"\n", max(left+max(right, width+200), chartsAbreast*chartWidth), height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">%s, %s, %s</text>`+"\n", xml(r.Device.Name),
		xml(r.Device.Details), r.Date.Format(time.DateOnly))
	for pct := 0; pct <= 100 && len(bars) > 0; pct += 25 {
		x := left + width*pct/100
		fmt.Fprintf(&b,
			`<line x1="%d" y1="36" x2="%d" y2="%d" stroke="#ddd"/><text x="%d" y="%d" fill="#666" text-anchor="middle">%d %%</text>`+"\n", x, x, below-24, x, below-10, pct)
	}
	if len(bars) > 0 {
		fmt.Fprintf(&b, `<text x="8" y="%d" fill="#666">rate as a fraction of the bound</text>`+"\n", below-10)
	}
	for i, res := range bars {
		y := top + i*(bar+gap)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+bar-4,
			xml(res.Benchmark+": "+res.Case))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b7dd8"/>`, left, y,
			min(res.Fraction(), 1.2)*width, bar)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", float64(left)+min(res.Fraction(), 1.2)*width+6, y+bar-4,
			barLabel(res))
	}
	for i, c := range charts {
		c.draw(&b, i%chartsAbreast*chartWidth, below+i/chartsAbreast*chartHeight)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// barLabel returns the text after a bar.
func barLabel(r bench.Result) string {
	return fmt.Sprintf("%.0f %%, %.2f G rows/s, %.1f GB/s", 100*r.Fraction(), r.RowsPerSecond()/1e9, r.Rate()/1e9)
}

// pixels returns the most pixels that a text takes in most fonts.
func pixels(s string) int { return 8 * len([]rune(s)) }

const (
	chartsAbreast = 2
	chartLabels   = 28 // at most, below a chart
	chartWidth    = 620
	chartHeight   = 340
)

// chart is a figure of the benchmarks join and groupby: rows per second over a parameter, one line or bar for
// each algorithm.
type chart struct {
	title  string
	at     []string // values of the parameter
	lines  []string // algorithms, and the names of references
	values map[[2]string]float64
	bounds map[string]float64 // rows per second that the bound allows, by the value of the parameter
}

// scale is a value of a parameter that lies on a scale, as 2^12, 1/16, 0.5 or 10 % do.
var scale = regexp.MustCompile(`^[0-9.]+([/^][0-9.]+)?( ?%)?$`)

// isScale reports whether the values of the parameter are numbers.
func (c *chart) isScale() bool {
	return len(c.at) > 1 && !slices.ContainsFunc(c.at, func(at string) bool { return !scale.MatchString(at) })
}

// put sets a value of a line, and of its reference.
func (c *chart) put(at, line string, v float64) {
	if !slices.Contains(c.lines, line) {
		c.lines = append(c.lines, line)
	}
	if c.values == nil {
		c.values = map[[2]string]float64{}
	}
	c.values[[2]string{at, line}] = v
}

// add adds a point, and the references of its case. A case that failed has none.
func (c *chart) add(r bench.Result, refs []published) {
	j := r.Point()
	if !slices.Contains(c.at, j.At) {
		c.at = append(c.at, j.At)
	}
	if j.Error != "" {
		return
	}
	c.put(j.At, j.Algorithm, r.RowsPerSecond())
	if r.BoundRate > 0 && r.Bytes > 0 {
		if c.bounds == nil {
			c.bounds = map[string]float64{}
		}
		c.bounds[j.At] = float64(r.Rows) / float64(r.Bytes) * r.BoundRate
	}
	for _, ref := range refs {
		if ref.Chart == j.Chart && ref.At == j.At && ref.Rows == r.Rows && ref.Ms > 0 {
			c.put(j.At, ref.Name, float64(r.Rows)/ref.Ms*1e3)
		}
	}
}

// draw draws the chart with its upper left corner at (left, top).
func (c *chart) draw(b *strings.Builder, left, top int) {
	const width, height = 420, 220
	x0, y0 := left+60, top+30
	most := 0.0
	for _, v := range c.values {
		most = max(most, v)
	}
	for _, v := range c.bounds {
		most = max(most, v)
	}
	step := tick(most / 4)
	most = max(step*math.Ceil(most/step), step)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s: input rows per second</text>`+"\n", x0, y0-12,
		xml(c.title))
	y := func(v float64) float64 { return float64(y0) + height*(1-v/most) }
	for i := range int(math.Round(most/step)) + 1 {
		v := float64(i) * step
		fmt.Fprintf(b,
			`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" fill="#666" text-anchor="end">%s</text>`+"\n",
			x0, y(v), x0+width, y(v), x0-6, y(v)+4, rateLabel(v))
	}
	x := func(i int) float64 { return float64(x0) + width*(float64(i)+0.5)/float64(len(c.at)) }
	every := 1 + (len(c.at)-1)/chartLabels
	for i, at := range c.at {
		if i%every > 0 {
			continue
		}
		fmt.Fprintf(b, `<text transform="translate(%.1f %d) rotate(20)" fill="#666">%s</text>`+"\n", x(i)-8,
			y0+height+16, xml(at))
	}
	colours := []string{"#3b7dd8", "#d9534f", "#3a9b57", "#e0912f", "#8455b8", "#1f9ea8", "#a0622d", "#d864a9", "#777",
		"#222"}
	slot := width / float64(len(c.at))
	for n, line := range c.lines {
		colour := colours[n%len(colours)]
		var points []string
		for i, at := range c.at {
			v, ok := c.values[[2]string{at, line}]
			if !ok {
				continue
			}
			title := fmt.Sprintf("<title>%s, %s: %s</title>", xml(line), xml(at), rateLabel(v))
			if c.isScale() {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(v)))
				fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s">%s</circle>`, x(i), y(v), colour, title)
				continue
			}
			bar := 0.8 * slot / float64(len(c.lines))
			fmt.Fprintf(b, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s">%s</rect>`,
				x(i)-0.4*slot+bar*float64(n), y(v), bar, float64(y0)+height-y(v), colour, title)
		}
		if len(points) > 0 {
			fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`,
				strings.Join(points, " "), colour)
		}
		c.legend(b, x0+width, y0+n*18, line, `stroke="`+colour+`" stroke-width="3"`)
	}
	const dashed = `stroke="#444" stroke-width="1.5" stroke-dasharray="4 3"`
	for i, at := range c.at {
		if v, ok := c.bounds[at]; ok {
			fmt.Fprintf(b,
				`<line class="bound" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s><title>bound, %s: %s</title></line>`,
				x(i)-0.45*slot, y(v), x(i)+0.45*slot, y(v), dashed, xml(at), rateLabel(v))
		}
	}
	if len(c.bounds) > 0 {
		c.legend(b, x0+width, y0+len(c.lines)*18, "bound", dashed)
	}
}

// legend draws the name of a line, to the right of the chart.
func (c *chart) legend(b *strings.Builder, x, y int, name, style string) {
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" %s/><text x="%d" y="%d">%s</text>`+"\n", x+12, y+6, x+28, y+6,
		style, x+34, y+10, xml(name))
}

// tick returns the next 1, 2 or 5 times a power of ten.
func tick(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*power {
			return f * power
		}
	}
	return 10 * power
}

// rateLabel formats rows per second with three digits.
func rateLabel(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3g G", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	}
	return fmt.Sprintf("%.3g", v)
}

func xml(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
