package rules

import (
	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Expression is a compiled expression as in a match of the configuration. It does not change, and is
// safe for concurrent use.
type Expression struct{ program cel.Program }

// CompileExpression returns an expression that a client sends, with the limits of Compile. path is what
// its errors name.
func CompileExpression(expression, path string) (*Expression, error) {
	program, _, err := compile(expression, field.NewPath(path))
	if err != nil {
		return nil, err
	}
	return &Expression{program}, nil
}

// Matches evaluates the expression for an Event, which it only reads. It costs at most MaxCost units. An
// evaluation that fails or is over budget does not match.
func (e *Expression) Matches(event *corev1.Event) bool {
	result, _, _ := match(e.program, &activation{eventType.new(event)})
	return result == Match
}
