package expr

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// uuidLiteral converts the text of a UUID to its bytes. Braces around it are allowed, and
// hyphens may be missing.
func uuidLiteral(x *Expr) (*Expr, error) {
	text := x.value.Str
	if inner, ok := strings.CutPrefix(text, "{"); ok && strings.HasSuffix(inner, "}") {
		text = strings.TrimSuffix(inner, "}")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		return nil,
			fmt.Errorf("'%s' is not a UUID, which is 32 hexadecimal digits: xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
				syntax.Cut(x.value.Str, 60))
	}
	return newConstant(gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: string(b)}), nil
}
