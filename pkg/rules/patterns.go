package rules

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxPattern is the maximum number of instructions of a regular expression. The time that it takes
// grows with their product with the length of the string: 450 instructions, "(.{45}){10}", and 16 KiB
// take 45 ms. Its cost in CEL, by its own length, does not tell.
const maxPattern = 500

// maxPatterns is that of all regular expressions of an expression together, each of which is compiled twice.
const maxPatterns = 4 * maxPattern

// patternFunctions are the functions with a regular expression, and the place of that among the
// arguments, of which the target is one.
var patternFunctions = map[string]int{"matches": 1, "find": 1, "findAll": 1}

// quantityFunctions parse a quantity. Their cost is that of its length, but parsing 1e-999999999, or
// comparing 1e999999999, computes a number of so many digits.
var quantityFunctions = map[string]int{"quantity": 0, "isQuantity": 0}

// maxQuantity is the maximum length of a quantity, and longExponent an exponent that it may not have: the
// apiserver stores no quantity above 2^63, and none below 1e-9.
const maxQuantity = 64

var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

var (
	errNoLiteral         = errors.New("a regular expression must be a string in the expression, and not a field: whoever creates an Event could write one that takes minutes")
	errLargeQuantity     = fmt.Errorf("a quantity may have %d characters, and two digits in its exponent", maxQuantity)
	errNoLiteralQuantity = errors.New("a quantity must be a string in the expression, and not a field: whoever creates an Event could write one that takes minutes")
)

// instructions returns about how many instructions a regular expression compiles to. It compiles none: "a{1000}", a few
// hundred times, takes 100 MB.
func instructions(pattern *syntax.Regexp) int {
	n := 1
	if pattern.Op == syntax.OpLiteral {
		n = len(pattern.Rune)
	}
	for _, sub := range pattern.Sub {
		n += instructions(sub)
	}
	if pattern.Op == syntax.OpRepeat {
		n *= max(1, pattern.Min, pattern.Max)
	}
	return n
}

// checkLiterals refuses regular expressions and quantities that may take long. The expression need not be checked, as
// the checker compiles regular expressions.
func checkLiterals(expression *cel.Ast) error {
	root, all := ast.NavigateAST(expression.NativeRep()), 0
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.CallKind)) {
		switch quantity, found, isLiteral := literalOf(e.AsCall(), quantityFunctions); {
		case found && !isLiteral:
			return errNoLiteralQuantity
		case len(quantity) > maxQuantity || longExponent.MatchString(string(quantity)):
			return errLargeQuantity
		}
		pattern, found, isLiteral := literalOf(e.AsCall(), patternFunctions)
		switch {
		case !found:
			continue
		case !isLiteral:
			return errNoLiteral
		}
		parsed, err := syntax.Parse(string(pattern), syntax.Perl)
		if err != nil {
			at := expression.NativeRep().SourceInfo().GetStartLocation(e.ID())
			return fmt.Errorf("%d:%d: %.200v", at.Line(), at.Column()+1, err)
		}
		n := instructions(parsed)
		if n > maxPattern {
			return fmt.Errorf("a regular expression has %d instructions, and %d is the limit: repeat less", n, maxPattern)
		}
		if all += n; all > maxPatterns {
			return fmt.Errorf("the regular expressions have more than %d instructions together", maxPatterns)
		}
	}
	return nil
}

// literalOf returns the argument of one of the functions, if the call is of one, and whether it is a
// string in the expression.
func literalOf(call ast.CallExpr, functions map[string]int) (literal types.String, found, isLiteral bool) {
	at, found := functions[strings.TrimPrefix(call.FunctionName(), ".")] // ".matches" is its full name
	args := call.Args()
	if call.IsMemberFunction() {
		args = slices.Insert(slices.Clone(args), 0, call.Target())
	}
	if !found || at >= len(args) {
		return "", false, false
	}
	literal, isLiteral = args[at].AsLiteral().(types.String)
	return literal, true, isLiteral
}
