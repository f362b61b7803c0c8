package syntax

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseStatements checks what untrusted text may do. It gives an *Error with a position, or trees whose printed
// form has the same trees.
func FuzzParseStatements(f *testing.F) {
	for _, c := range statementCases(f) {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, src string) {
		statements, err := ParseStatements(src)
		if err != nil {
			var mistake *Error
			require.ErrorAs(t, err, &mistake)
			require.NotEmpty(t, mistake.Error())
			return
		}
		requireReparsed(t, statements)
	})
}
