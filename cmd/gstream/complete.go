package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// completer completes what is typed in the shell.
type completer struct {
	*shell
	columns map[string][]string // of the tables that were named, by their text
}

// sqlWords are the words that statements begin with, and those of queries.
var sqlWords = strings.Fields(`SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET DISTINCT JOIN LEFT RIGHT FULL INNER
	CROSS SEMI ANTI ON USING UNION ALL INTERSECT EXCEPT WITH AS AND OR NOT IN IS NULL BETWEEN LIKE CASE WHEN THEN ELSE END
	EXISTS VALUES QUALIFY WINDOW OVER PARTITION DESC ASC NULLS FIRST LAST COPY TO CREATE REPLACE VIEW TEMP TABLE EXPLAIN
	ANALYZE DESCRIBE SUMMARIZE SET read_parquet( EXCLUDE COLUMNS( FILTER ROLLUP CUBE`)

var shellCommands = []string{".help", ".tables", ".timer on", ".timer off", ".quit"}

var (
	lastWord    = regexp.MustCompile(`[A-Za-z_0-9.]*$`)
	beforeTable = regexp.MustCompile(`(?i)\b(from|join|describe|summarize|copy|table)\s*$`)
	tableNamed  = regexp.MustCompile(`(?i)\b(?:from|join|describe|summarize|copy|,)\s*('(?:[^']|'')+'|[a-z_][a-z_0-9]*)`)
)

// complete returns the words that may stand at the end of a text, and the part of them that is typed. Where a word
// begins behind another character, such as a parenthesis, both have this character too. after is the text behind, which
// may name tables.
func (c *completer) complete(text, after string) (words []string, typed string) {
	blank := strings.LastIndexAny(text, " \t\n") + 1
	if strings.HasPrefix(text, ".") && !strings.ContainsAny(text, "\n") {
		return startingWith(shellCommands, "", text), text
	}
	if open := openString(text); open >= 0 {
		lead := ""
		if blank <= open {
			lead = text[blank : open+1]
		}
		typed := text[max(open+1, blank):]
		if blank > open+1 {
			return nil, typed // a path with a blank
		}
		return startingWith(paths(c.session.Dir, typed), lead, typed), lead + typed
	}
	word := lastWord.FindString(text)
	lead := text[blank : len(text)-len(word)]
	list := c.session.Tables()
	if !beforeTable.MatchString(text[:len(text)-len(word)]) {
		for _, m := range tableNamed.FindAllStringSubmatch(text+after, -1) {
			list = append(list, c.columnsOf(m[1])...)
		}
		for _, name := range expr.FunctionNames() {
			if isName(name) {
				list = append(list, name+"(")
			}
		}
		list = append(list, sqlWords...)
	}
	if strings.HasSuffix(lead, `"`) {
		var names []string
		for _, name := range list {
			if rest, ok := strings.CutPrefix(name, `"`); ok {
				names = append(names, rest)
			}
		}
		list = names
	}
	if table, _, ok := strings.Cut(word, "."); ok { // of whatever table: an alias may be any name
		for _, name := range slices.Clone(list) {
			list = append(list, table+"."+name)
		}
	}
	return startingWith(list, lead, word), lead + word
}

var nameForm = regexp.MustCompile(`^[a-z_][a-z_0-9]*$`)

func isName(s string) bool { return nameForm.MatchString(s) }

// startingWith returns the words that start with what is typed, in any case, behind lead.
func startingWith(words []string, lead, typed string) (list []string) {
	for _, w := range words {
		if len(w) >= len(typed) && strings.EqualFold(w[:len(typed)], typed) {
			list = append(list, lead+w)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// openString returns the position of the quote of the string in which a text ends, or -1.
func openString(text string) int {
	open := -1
	for i := range len(text) {
		if text[i] == '\'' {
			if open < 0 {
				open = i
			} else {
				open = -1
			}
		}
	}
	return open
}

// paths returns the folders and Parquet files whose paths begin with what is typed.
func paths(dir, typed string) (list []string) {
	folder, _ := filepath.Split(typed)
	at := folder
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	if at == "" {
		at = "."
	}
	entries, _ := os.ReadDir(at)
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			list = append(list, folder+e.Name()+"/")
		case strings.HasSuffix(e.Name(), ".parquet"):
			list = append(list, folder+e.Name()+"'")
		}
	}
	return list
}

// columnsOf returns the names of the columns of a table, none if there is no such table.
func (c *completer) columnsOf(table string) []string {
	names, ok := c.columns[table]
	if !ok {
		ctx, cancel := context.WithTimeout(c.cmd.Context(), time.Second)
		defer cancel()
		fields, err := c.session.Columns(ctx, table)
		if err != nil {
			return nil
		}
		for _, f := range fields {
			names = append(names, syntax.QuoteName(f.Name))
		}
		if strings.HasPrefix(table, "'") { // a view may change
			c.columns[table] = names
		}
	}
	return names
}
