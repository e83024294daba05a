package rules

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

const (
	// MaxCost is the budget of one evaluation, in the units of CEL.
	MaxCost = 10_000
	// MaxIntakeCost is the budget of all intake rules together for one occurrence.
	MaxIntakeCost = 100_000
	// MaxExpression is the maximum size of an expression, in bytes.
	MaxExpression = 10 << 10
	// unbounded is less than any estimate of what is not known, and more than one that is.
	unbounded = 1 << 40
)

// Compile returns the set of a configuration that Load has returned. Its error, a
// utilerrors.Aggregate, has an error with the path of the field for every wrong expression. An
// expression that could be over budget with an Event of events.k8s.io/v1 is wrong, and so are
// intake rules that could be together.
func Compile(config *v1alpha1.EventdConfiguration) (*Set, error) {
	set := &Set{routes: make([]*route, 0, len(config.Routes))}
	var errs field.ErrorList
	add := func(r *rule, match string, path *field.Path) {
		if match == "" {
			return
		}
		program, _, err := compile(match, path.Child("match"))
		if err != nil {
			errs = append(errs, err)
		}
		r.program = program
	}
	for i := range config.Routes {
		from := &config.Routes[i]
		r := &route{rule: rule{name: from.Name}, definition: from, throttle: newThrottle(from.Throttle)}
		add(&r.rule, from.Match, field.NewPath("routes").Index(i))
		set.routes = append(set.routes, r)
	}
	for i := range config.Metrics {
		m := newMetric(&config.Metrics[i])
		add(&m.rule, m.definition.Match, field.NewPath("metrics").Index(i))
		set.metrics = append(set.metrics, m)
	}
	errs = append(errs, set.compileIntake(config.Intake)...)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	for i := range config.Receivers {
		f := newFilter(config.Receivers[i].Name, set.routes)
		f.all = len(set.routes) == 0
		set.filters = append(set.filters, f)
	}
	return set, nil
}

// compile returns the program of an expression, and what it may cost. The messages leave the
// expression out, which may be long, and say where in it the error is.
func compile(expression string, path *field.Path) (cel.Program, uint64, *field.Error) {
	invalid := func(format string, args ...any) (cel.Program, uint64, *field.Error) {
		return nil, 0, field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(format, args...))
	}
	if len(expression) > MaxExpression {
		return nil, 0, field.TooLong(path, "", MaxExpression)
	}
	env, err := newEnvironment()
	if err != nil {
		return nil, 0, field.InternalError(path, err)
	}
	tree, issues := env.Parse(expression)
	if issues.Err() != nil {
		return invalid("%s", locate(issues.Errors()))
	}
	// Before anything infers types, or compiles regular expressions.
	if err := cmp.Or(checkSyntax(tree.NativeRep().Expr()), checkLiterals(tree)); err != nil {
		return invalid("%v", err)
	}
	tree, issues = env.Check(tree)
	switch {
	case issues.Err() != nil:
		return invalid("%s", locate(issues.Errors()))
	case !tree.OutputType().IsExactType(cel.BoolType):
		return invalid("must be a bool, is %s", tree.OutputType())
	}
	cost, err := env.EstimateCost(tree, &estimator{library.CostEstimator{SizeEstimator: sizes{}}})
	switch {
	case err != nil:
		return nil, 0, field.InternalError(path, err)
	case cost.Max > unbounded:
		return invalid("what it costs has no bound: a loop or a function may make any number of values")
	case cost.Max > MaxCost:
		return invalid("may cost %d units for one Event, and %d is the limit: loops and long regular expressions cost most", cost.Max, MaxCost)
	}
	program, err := env.Program(tree, cel.CostLimit(MaxCost))
	if err != nil {
		return invalid("%v", err)
	}
	return program, cost.Max, nil
}

// locate returns errors on one line, each with its line and column, which count from 1. That of the
// whole expression has none.
func locate(errs []*common.Error) string {
	messages := make([]string, len(errs))
	for i, err := range errs {
		messages[i] = err.Message
		if line := err.Location.Line(); line > 0 {
			messages[i] = fmt.Sprintf("%d:%d: %s", line, err.Location.Column()+1, err.Message)
		}
	}
	return strings.Join(messages, "; ")
}
