package pipeline

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/logical"
)

//go:embed explain.html
var explainHTML string

var explainPage = template.Must(template.New("explain").Parse(explainHTML))

// Sizes of the graph, in pixels.
const (
	boxWidth, boxHeight = 250, 92
	boxAcross, boxDown  = boxWidth + 24, boxHeight + 36
	boxText             = 34 // most characters of a line
)

// planPage is what the page of a plan shows.
type planPage struct {
	Job, Output   string
	Notes         []string
	Width, Height int
	Boxes         []*planBox
	Arrows        []planArrow
	Columns       []ColumnInfo
	Rules         []RuleApplied
	Ran           bool
}

// planBox is a stage, or the output.
type planBox struct {
	X, Y         int
	Title, Lines []string // in the box; the first one is bold
	Heat         float64  // share of the work of the run, 0 to 1
	Name         string
	Facts        [][2]string
	Detail       []string
	depth        int
	below        []*planBox
}

// planArrow carries the rows of a stage to the one that reads them.
type planArrow struct {
	From, To [2]int // numbers of boxes at first, then positions
	Middle   int    // where it turns
	Thick    float64
	Rows     string
}

// WritePage writes the plan as a self-contained HTML page: a graph of the stages with rows, times and what each stage
// was bound by, if the plan has run, and what each of them does.
func (e *Explanation) WritePage(w io.Writer) error {
	p := &planPage{Job: e.Job, Output: e.Output, Columns: e.Schema, Rules: e.Rules, Ran: e.Actual != nil}
	if e.Choice != nil {
		p.Notes = append(p.Notes, e.Choice.String())
	}
	if e.Unsampled != "" {
		p.Notes = append(p.Notes, "estimates are guesses, without a sample of a table: "+e.Unsampled)
	}
	var busy time.Duration
	if r := e.Actual; r != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("took %.3f s on %s%s", r.Wall.Seconds(), r.Device, r.Activity))
		p.Notes = append(p.Notes, strings.Split(strings.TrimSpace(r.UseText()), "\n")...)
		for _, s := range r.Stages {
			busy = max(busy, s.Work())
		}
		busy = max(busy, r.Output.Busy)
	}
	out := &planBox{Title: []string{"output"}, Name: "output", Facts: [][2]string{{"target", e.Output}}}
	if r := e.Actual; r != nil {
		o := r.Output
		out.Lines = []string{humanize.Comma(o.Rows) + " rows, " + humanize.IBytes(uint64(o.Bytes)),
			fmt.Sprintf("busy %.3f s, waited %.3f s", o.Busy.Seconds(), o.Wait.Seconds())}
		out.Heat = share(o.Busy, busy)
		out.Facts = append(out.Facts, [2]string{"files", humanize.Comma(o.Files)},
			[2]string{"peak memory", humanize.IBytes(uint64(o.Peak))})
	}
	p.Boxes = append(p.Boxes, out)
	root, _ := p.place(e.Root, 1, busy)
	p.arrow(root, out, e.Root)
	root.move(0)
	for _, b := range p.Boxes {
		p.Width, p.Height = max(p.Width, b.X+boxWidth+12), max(p.Height, b.Y+boxHeight+12)
	}
	out.X, out.Y = root.X, 12
	for i := range p.Arrows {
		a := &p.Arrows[i]
		from, to := p.Boxes[a.From[0]], p.Boxes[a.To[0]]
		a.From = [2]int{from.X + boxWidth/2, from.Y}
		a.To = [2]int{to.X + boxWidth/2 + a.To[1], to.Y + boxHeight}
		a.Middle = to.Y + boxHeight + 22
	}
	return explainPage.Execute(w, p)
}

// reach is how far boxes reach at a level, to the left and to the right of the first box of a part of the plan.
type reach struct{ left, right int }

// place adds the boxes of a stage and of its inputs. The first input is below the stage, others are to the right of it,
// as near as their boxes allow. It returns the box, and the reach of its part, the lowest level first. Positions are
// relative to the box above.
func (p *planPage) place(s *StageExplained, depth int, busy time.Duration) (*planBox, []reach) {
	b := boxOf(s, busy)
	b.depth = depth
	p.Boxes = append(p.Boxes, b)
	var levels []reach
	for _, in := range s.Inputs {
		below, its := p.place(in, depth+1, busy)
		b.below = append(b.below, below)
		p.arrow(below, b, in)
		if levels == nil {
			levels = its
			continue
		}
		n := min(len(levels), len(its))
		mine, theirs := levels[len(levels)-n:], its[len(its)-n:]
		for i := range n {
			below.X = max(below.X, mine[i].right-theirs[i].left+boxAcross)
		}
		for i := range its {
			its[i].left, its[i].right = its[i].left+below.X, its[i].right+below.X
		}
		for i := range n {
			mine[i].right = theirs[i].right
		}
		if len(its) > len(levels) {
			levels = append(its[:len(its)-n:len(its)-n], mine...)
		}
	}
	return b, append(levels, reach{})
}

// move gives a box, and those below it, their positions.
func (b *planBox) move(x int) {
	b.X += x
	for _, below := range b.below {
		below.move(b.X)
	}
	b.X, b.Y = b.X+12, 12+b.depth*boxDown
}

// arrow adds the arrow between two boxes. Its ends are numbers of boxes until all have their positions. Arrows of
// several inputs end next to each other.
func (p *planPage) arrow(from, to *planBox, s *StageExplained) {
	rows, text := s.Rows, "about "+logical.Approximate(s.Rows)
	if s.Actual != nil {
		rows, text = float64(s.Actual.RowsOut), humanize.Comma(s.Actual.RowsOut)
	}
	before := 0
	at := slices.Index(p.Boxes, to)
	for _, a := range p.Arrows {
		if a.To[0] == at {
			before++
		}
	}
	p.Arrows = append(p.Arrows, planArrow{From: [2]int{slices.Index(p.Boxes, from)}, To: [2]int{at, 24 * before},
		Thick: 1 + math.Log10(max(rows, 1))/2, Rows: text + " rows"})
}

// boxOf returns the box of a stage. busy is the work of the stage that works most.
func boxOf(s *StageExplained, busy time.Duration) *planBox {
	b := &planBox{Name: s.Kind + " (" + s.Step + ")", Title: []string{clipped(s.Kind), clipped(s.Step)},
		Detail: s.Detail,
		Facts:  [][2]string{{"runs on", s.Device}, {"rows expected", "about " + logical.Approximate(s.Rows)}}}
	a := s.Actual
	if a == nil {
		b.Lines = []string{"about " + logical.Approximate(s.Rows) + " rows"}
		return b
	}
	b.Lines = []string{fmt.Sprintf("%s rows, about %s expected", humanize.Comma(a.RowsOut),
		logical.Approximate(s.Rows)), fmt.Sprintf("busy %.3f s", a.Busy.Seconds()), a.Bound()}
	b.Heat = share(a.Work(), busy)
	fact := func(name, format string, args ...any) {
		b.Facts = append(b.Facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	fact("rows in", "%s", humanize.Comma(a.RowsIn))
	fact("rows out", "%s", humanize.Comma(a.RowsOut))
	fact("busy", "%.3f s", a.Busy.Seconds())
	fact("waited for input", "%.3f s", a.Wait.Seconds())
	fact("waited for the next stage", "%.3f s", a.Blocked.Seconds())
	fact("time", "%s", a.Bound())
	fact("peak memory", "%s", humanize.IBytes(uint64(a.Peak)))
	if text := a.Spill.String(); text != "" {
		fact("spilled", "to %s", text)
	}
	if a.Choice != "" {
		fact("chose", "%s", a.Choice)
	}
	if a.Activity != nil {
		fact("on the GPU", "%s", strings.TrimPrefix(a.Activity.String(), "; "))
	}
	if a.Dropped > 0 {
		fact("dropped by filters of joins", "%s rows", humanize.Comma(a.Dropped))
	}
	if a.Iterations > 0 {
		fact("iterations", "%s", humanize.Comma(a.Iterations))
	}
	if a.Scan != nil && a.Scan.BytesFirst > 0 {
		fact("decides first", "%s", execution.Filtered(a.Scan))
	}
	return b
}

// Lightness returns the lightness of the colour of a box, in percent.
func (b *planBox) Lightness() float64 { return 97 - 30*b.Heat }

// TitleY and LineY return the base lines of the texts of a box.
func (b *planBox) TitleY(n int) int { return 20 + 16*n }
func (b *planBox) LineY(n int) int  { return 54 + 15*n }

// Hottest returns the number of the box that did most of the work.
func (p *planPage) Hottest() int {
	most := slices.MaxFunc(p.Boxes, func(a, b *planBox) int { return cmp.Compare(a.Heat, b.Heat) })
	return slices.Index(p.Boxes, most)
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return min(float64(part)/float64(whole), 1)
}

// clipped shortens a text to the width of a box.
func clipped(s string) string {
	if r := []rune(s); len(r) > boxText {
		return string(r[:boxText-1]) + "…"
	}
	return s
}
