// Package phrase has phrases that errors and reports of all packages share.
package phrase

import (
	"fmt"
	"strings"
)

// Some joins the first show strings, and adds how many more there are.
func Some(texts []string, show int, separator string) string {
	if len(texts) <= show {
		return strings.Join(texts, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:show], separator), len(texts)-show)
}
