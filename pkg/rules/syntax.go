package rules

import (
	"errors"
	"fmt"
	"maps"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// Limits of a syntax tree. They bound the work of the type checker, which copies all inferred types at each call, once
// for each overload, and writes types out to compare them. Without limits, 2 KB can take minutes and all memory.
const (
	// maxDepth is that of the tree, in which a variable of a loop is as deep as what it loops over: the depth of a type.
	maxDepth = 24
	// maxLoops is how many comprehensions, as map, exists and optMap are, may be within each other.
	maxLoops = 4
	// maxCalls is the number of calls, operators, lists and maps, after the expansion of macros.
	maxCalls = 128
	// maxEmptyMaps is the number of maps without entries, after the expansion of macros. The type of their keys is
	// inferred, so it can be a map: n of them make a type of 2ⁿ parts.
	maxEmptyMaps = 2
	// maxCopied limits what optMap and optFlatMap are called on, in nodes: their expansion has it twice.
	maxCopied = 32
)

var (
	errDepth  = fmt.Errorf("is nested too deeply: %d levels are the limit", maxDepth)
	errLoops  = fmt.Errorf("has more than %d loops within each other", maxLoops)
	errCalls  = fmt.Errorf("has more than %d operators, calls and lists: to compare with many values, use the operator in and a list", maxCalls)
	errMaps   = fmt.Errorf("has more than %d empty maps", maxEmptyMaps)
	errMapKey = errors.New("a key of a map must be a literal")
)

// checkSyntax refuses a tree over the limits. A key of a map that is no literal can be a map: each level of such a
// type has the one below twice.
func checkSyntax(e ast.Expr) error {
	s := &measured{}
	s.depth(e, nil, 0)
	return s.err
}

// measured is what was found so far.
type measured struct {
	calls, emptyMaps int
	err              error // the first
}

// depth returns that of an expression within so many loops. variables has the depths of their variables.
func (s *measured) depth(e ast.Expr, variables map[string]int, loops int) int {
	deepest := 0
	within := func(variables map[string]int, parts ...ast.Expr) {
		for _, part := range parts {
			if s.err == nil {
				deepest = max(deepest, s.depth(part, variables, loops))
			}
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		deepest = variables[e.AsIdent()]
	case ast.SelectKind:
		within(variables, e.AsSelect().Operand())
	case ast.CallKind:
		s.calls++
		if e.AsCall().IsMemberFunction() {
			within(variables, e.AsCall().Target())
		}
		within(variables, e.AsCall().Args()...)
	case ast.ListKind:
		s.calls++ // it has a type to infer, as a call
		within(variables, e.AsList().Elements()...)
	case ast.MapKind:
		s.calls += 2
		if e.AsMap().Size() == 0 {
			s.emptyMaps++
		}
		for _, entry := range e.AsMap().Entries() {
			if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
				s.err = errMapKey
			}
			within(variables, entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			within(variables, f.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		loops++
		within(variables, c.IterRange())
		inner := map[string]int{}
		maps.Copy(inner, variables)
		inner[c.IterVar()], inner[c.IterVar2()] = deepest, deepest
		within(variables, c.AccuInit())
		inner[c.AccuVar()] = deepest
		within(inner, c.LoopCondition(), c.LoopStep(), c.Result())
	}
	switch {
	case s.err != nil:
	case loops > maxLoops:
		s.err = errLoops
	case s.calls > maxCalls:
		s.err = errCalls
	case s.emptyMaps > maxEmptyMaps:
		s.err = errMaps
	case deepest >= maxDepth:
		s.err = errDepth
	}
	return deepest + 1
}

// boundedMacros has the macros that copy what they are called on limited: a chain of them would double at each link.
func boundedMacros(env *cel.Env) (*cel.Env, error) {
	var bounded []cel.Macro
	for _, m := range env.Macros() {
		if name := m.Function(); name != "optMap" && name != "optFlatMap" {
			continue
		}
		bounded = append(bounded, cel.ReceiverMacro(m.Function(), m.ArgCount(), func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			if nodes(target) > maxCopied {
				return nil, f.NewError(target.ID(), fmt.Sprintf("%s is called on more than %d terms and operators", m.Function(), maxCopied))
			}
			return m.Expander()(f, target, args)
		}))
	}
	return env.Extend(cel.Macros(bounded...))
}

func nodes(e ast.Expr) (n int) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { n++ }))
	return n
}
