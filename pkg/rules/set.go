// Package rules decides what becomes of an Event, by a configuration: on the way in, whether it is
// dropped or has another budget; on the way out, which receivers get it, without which fields, and
// which metrics count it.
//
// A rule, route or metric matches by a CEL expression, in the environment that the apiserver has for
// its own policies, with one variable, event. What an evaluation can cost is bounded: Compile refuses
// an expression that could be over budget with an Event of usual size, and an evaluation ends when
// its budget is spent. It does not match then, and is counted. It stays in force after that: an Event
// of core/v1 may be larger than usual, and whoever creates one must not switch off what others rely
// on.
package rules

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// A Set is the compiled rules, routes and metrics of a configuration. It does not change, apart from its
// counters, and is safe for concurrent use. Nothing has to be closed.
type Set struct {
	intake  []intakeRule
	routes  []*route
	filters []*Filter // by receiver, in the order of the configuration
	metrics []*Metric
}

// Result is what the evaluation of a rule or route for an Event came to.
type Result string

// The results. One with an error or over budget does not match.
const (
	Match        Result = "match"
	NoMatch      Result = "no_match"
	Failed       Result = "error"
	OverBudget   Result = "over_budget"
	NotEvaluated Result = "not_evaluated" // one before it has ended the evaluation
)

// counted are the results that are metrics.
var counted = [...]Result{Match, NoMatch, Failed, OverBudget}

// Decision is what becomes of an Event, and why.
type Decision struct {
	// Routes are all routes, in their order.
	Routes []Evaluation
	// Receivers are all receivers, in the order of the configuration.
	Receivers []Delivery
}

// Evaluation is that of one route.
type Evaluation struct {
	Route  string
	Result Result
	// Err says why the evaluation failed, or is over budget.
	Err error
}

// Delivery is what a receiver gets of an Event.
type Delivery struct {
	Receiver string
	// Deliver: the receiver gets the Event.
	Deliver bool
	// Route is the first that delivers the Event to the receiver, or else the one that ended the
	// evaluation. It is empty if no route did, and if there are no routes.
	Route string
	// Throttle is that of the route that delivers, or nil.
	Throttle *v1alpha1.Throttle
}

// Route evaluates the routes for all receivers. It only reads the Event. Filter is for those who
// deliver to one receiver.
func (s *Set) Route(event *corev1.Event) Decision {
	vars := &activation{eventType.new(event)}
	var d Decision
	var delivering []*route
	ended := ""
	for _, r := range s.routes {
		e := Evaluation{Route: r.name, Result: NotEvaluated}
		if ended == "" {
			e.Result, e.Err = r.evaluate(vars)
		}
		if d.Routes = append(d.Routes, e); e.Result == Match {
			delivering = append(delivering, r)
			if !r.definition.Continue {
				ended = r.name
			}
		}
	}
	for _, f := range s.filters {
		by := slices.IndexFunc(delivering, func(r *route) bool { return slices.Contains(r.definition.Receivers, f.receiver) })
		switch {
		case by >= 0:
			d.Receivers = append(d.Receivers, Delivery{f.receiver, true, delivering[by].name, delivering[by].definition.Throttle})
		default:
			d.Receivers = append(d.Receivers, Delivery{f.receiver, len(s.routes) == 0, ended, nil})
		}
	}
	return d
}

// For returns the filter of a receiver. A receiver that the configuration does not have gets
// nothing.
func (s *Set) For(receiver string) *Filter {
	for _, f := range s.filters {
		if f.receiver == receiver {
			return f
		}
	}
	return newFilter(receiver, nil)
}

// A Filter decides for one receiver. It does not change, and is safe for concurrent use.
type Filter struct {
	receiver string
	all      bool   // without routes
	steps    []step // the routes that can change the decision
	// throttled: there may be a route with a throttle.
	throttled bool
}

type step struct {
	*route
	delivers bool
}

func newFilter(receiver string, routes []*route) *Filter {
	f := &Filter{receiver: receiver}
	for _, r := range routes {
		delivers := slices.Contains(r.definition.Receivers, receiver)
		if delivers || !r.definition.Continue {
			f.steps = append(f.steps, step{r, delivers})
			f.throttled = f.throttled || r.throttle != nil
		}
	}
	return f
}

// Deliver reports whether the receiver gets an Event, which it only reads, and the route of
// Delivery. It returns after at most MaxCost units for each route.
func (f *Filter) Deliver(event *corev1.Event) (deliver bool, route string) {
	vars := &activation{eventType.new(event)}
	for _, s := range f.steps {
		if result, _ := s.evaluate(vars); result == Match {
			return s.delivers, s.name
		}
	}
	return f.all, ""
}

type route struct {
	rule
	definition *v1alpha1.Route
	throttle   *Throttle // nil without one
}

// rule is an expression with a name and the counters of its evaluations.
type rule struct {
	name    string
	program cel.Program // nil if every Event matches
	counts  [len(counted)]atomic.Uint64
}

func (r *rule) evaluate(vars *activation) (Result, error) {
	result, _, err := match(r.program, vars)
	r.counts[slices.Index(counted[:], result)].Add(1)
	return result, err
}

// match evaluates a program, nil if every Event matches. It returns what that has cost.
func match(program cel.Program, vars *activation) (Result, uint64, error) {
	if program == nil {
		return Match, 0, nil
	}
	// A panic of a function becomes an error here.
	out, details, err := program.Eval(vars)
	cost := uint64(MaxCost)
	if actual := details.ActualCost(); actual != nil {
		cost = *actual
	}
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		return OverBudget, cost, err
	case err != nil:
		return Failed, cost, err
	case out == types.True:
		return Match, cost, nil
	default:
		return NoMatch, cost, nil
	}
}

// An activation has the variable of an evaluation.
type activation struct{ event ref.Val }

// ResolveName returns the variable.
func (a *activation) ResolveName(name string) (any, bool) { return a.event, name == variable }

// Parent returns nil: there is no other scope.
func (a *activation) Parent() interpreter.Activation { return nil }
