package regex

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reference returns Go's automaton of a pattern.
func reference(t testing.TB, pattern string, o Options) *regexp.Regexp {
	flags := ""
	if o&Literal != 0 {
		pattern = regexp.QuoteMeta(pattern)
	} else if _, err := syntax.Parse(pattern+`\E`, syntax.Perl); err == nil {
		pattern += `\E` // \Q was open: it would quote what is put behind the pattern
	}
	if o&Fold != 0 {
		flags += "i"
	}
	if o&DotAll != 0 {
		flags += "s"
	}
	if flags != "" {
		pattern = "(?" + flags + ":" + pattern + ")"
	}
	if o&Full != 0 {
		pattern = `\A(?:` + pattern + `)\z`
	}
	re, err := regexp.Compile(pattern)
	require.NoError(t, err)
	return re
}

// requireMatches compares the matches of a text with Go's.
func requireMatches(t testing.TB, pattern string, o Options, text string) {
	a, err := Compile(pattern, o)
	if err != nil {
		require.ErrorIs(t, err, errTooComplex, pattern)
		return
	}
	requireAutomaton(t, a, pattern, o, text)
	if a.Words <= MaxWords { // the same, without the states
		sets := *a
		sets.Next, sets.Starts, sets.Live = nil, nil, nil
		requireAutomaton(t, &sets, pattern, o, text)
	}
}

func requireAutomaton(t testing.TB, a *Automaton, pattern string, o Options, text string) {
	re := reference(t, pattern, o)
	what := fmt.Sprintf("%q (%d) in %q", pattern, o, text)
	require.Equal(t, re.MatchString(text), a.Match(text), what)
	s := a.NewSearch()
	s.Reset(text)
	want := re.FindStringSubmatchIndex(text)
	require.Equal(t, want != nil, s.Next(0), what)
	if want != nil {
		require.Equal(t, want[:min(len(want), Slots)], s.Slots[:min(len(want), Slots)], what)
	}
	got, ok := s.Replace(nil, `<\0\\>`, true, 1<<30)
	require.True(t, ok)
	require.Equal(t, re.ReplaceAllString(text, `<${0}\>`), string(got), what)
	got, ok = s.Replace(nil, `<\1\2>`, false, 1<<30)
	require.True(t, ok)
	first := text
	if want != nil {
		first = text[:want[0]] + string(re.ExpandString(nil, "<${1}${2}>", text, want)) + text[want[1]:]
	}
	require.Equal(t, first, string(got), what)
}

var patterns = []string{``, `a`, `l+`, `(h)(e)`, `a|b`, `(a|ab)(c|bcd)(d*)`, `(a+)(b+)?`, `x*`, `(|a)*`, `(|a)+`,
	`(a|)+`, `(a*)*`, `(a*)+`, `(?:(a)|b)*`,
	`^`, `$`, `^a`, `a$`, `^a*$`, `(?m)^a`, `(?m)a$`, `(?m)^`, `(?m)$`, `\bfoo\b`, `\B`, `\b`, `a\b`, `\Aa`, `a\z`, `.`,
	`(?s).`, `.*`, `.*?b`, `a{2,4}`, `a{2,4}?`,
	`[^a]`, `[[:alpha:]]+`, `\pL+`, `\p{Greek}`, `(?i)straße`, `(?i)k`, `ä+`, `[ä-ü]`, `\d{1,3}(\.\d{1,3}){3}`,
	`([a-z]+)@([a-z]+)\.com`, `(a?){5}a{5}`,
	`^(([^:/?#]+):)?(//([^/?#]*))?([^?#]*)(\?([^#]*))?(#(.*))?`, `(((((((((((a)))))))))))`, `a.{0,20}b`, `\x{10ffff}`,
	`[^\x00-\x{10ffff}]`, `(?U)a+`, `(^|b)a`, `(?:^a|\bb)+`, `(\b|a)*`, `(?:$|a)+`, `\Qa.`, `b\Q\`, `(a\b|b)*c`}

func TestMatchesAreThoseOfGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "c", "d", "l", "h", "e", "ä", "ß", "K", "\n", " ", "\xff", "\xc3", "foo", "1", ".",
		":", "@", "\U0010ffff", "😀", "_"}
	for _, p := range patterns {
		for _, o := range []Options{0, Fold, DotAll, Full, Full | Fold, Literal} {
			for range 20 {
				var b strings.Builder
				for range r.IntN(12) {
					b.WriteString(alphabet[r.IntN(len(alphabet))])
				}
				requireMatches(t, p, o, b.String())
			}
		}
	}
}

// drawPattern draws a pattern over a few letters.
func drawPattern(r *rand.Rand, depth int) string {
	leaves := []string{"a", "b", "ä", ".", "[ab]", "[^a]", "^", "$", `\b`, `\B`, "", `\w`, `\A`, `\z`, "(?m:^)",
		"(?m:$)", "(?i:A)", `\n`, " "}
	if depth == 0 {
		return leaves[r.IntN(len(leaves))]
	}
	sub := func() string { return drawPattern(r, r.IntN(depth)) }
	switch r.IntN(6) {
	case 0:
		return "(" + sub() + ")"
	case 1:
		return "(?:" + sub() + "|" + sub() + ")"
	case 2:
		return "(?:" + sub() + ")" + []string{"*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?"}[r.IntN(9)]
	}
	return sub() + sub()
}

func TestRandomPatternsMatchAsInGo(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := drawPattern(r, 5)
		if _, err := syntax.Parse(p, syntax.Perl); err != nil {
			continue
		}
		for range 10 {
			text := ""
			for range r.IntN(8) {
				text += []string{"a", "b", "ä", "\n", " ", "A", "_"}[r.IntN(7)]
			}
			requireMatches(t, p, Options(r.IntN(2))*Full, text)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, p := range patterns {
		f.Add(p, "ab foo 1.2.3.4", byte(0))
	}
	f.Add(`\Qa`, "a", byte(Full|Fold))
	f.Fuzz(func(t *testing.T, pattern, text string, o byte) {
		if len(text) > 1000 {
			return
		}
		options := Options(o) & (Fold | DotAll | Literal | Full)
		from := time.Now()
		_, err := Compile(pattern, options)
		require.Less(t, time.Since(from), 20*time.Second)
		if err == nil {
			requireMatches(t, pattern, options, text)
		}
	})
}

// TestPatternsThatAreTooComplexAreRefused draws on patterns whose automata grow
// exponentially.
func TestPatternsThatAreTooComplexAreRefused(t *testing.T) {
	for _, p := range []string{`a.{20}b.*c[ab]{25}a[ab]{20}`, `(a?){1000}`, `(x+x+)+y`, `[ab]{30}b`,
		`((a{10}){10}){10}`, `(\pL{100}|\pN{100}){9}`, `b[ab]{14}`, `(.{0,300}x){3}`, `^.{30}Y`} {
		from := time.Now()
		a, err := Compile(p, 0)
		if err != nil {
			require.ErrorIs(t, err, errTooComplex)
		} else {
			require.LessOrEqual(t, len(a.Next)*2, 2*maxTable)
			requireMatches(t, p, 0, strings.Repeat("abY", 20))
		}
		t.Log(p, err, time.Since(from), a != nil && a.Next == nil)
	}
}

func TestAPatternThatIsNoneIsRefused(t *testing.T) {
	for p, want := range map[string]string{`[`: "missing closing ]: [", `(`: "missing closing ): (",
		`a**`: "invalid nested repetition operator: **", `a{1001}`: "invalid repeat count: {1001}",
		`\Z`: `invalid escape sequence: \Z`, `(?=a)`: "invalid or unsupported Perl syntax: (?="} {
		_, err := Compile(p, 0)
		require.EqualError(t, err, want)
	}
}

func BenchmarkMatch(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog ", 3)
	for _, p := range []string{`fo[xy]`, `^the.*cat`, `(\w+) (\w+)$`} {
		a, err := Compile(p, 0)
		require.NoError(b, err)
		re := regexp.MustCompile(p)
		b.Run(p, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				a.Match(text)
			}
		})
		b.Run("regexp "+p, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				re.MatchString(text)
			}
		})
	}
}
