package rules

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/occurrence"
)

// intakeRule decides on what clients report.
type intakeRule struct {
	name    string
	program cel.Program
	budget  *occurrence.Budget // nil if it drops
	dryRun  bool
}

// Action is what an intake rule does with what matches.
type Action string

// The actions. The last two are those of dry runs: nothing happens.
const (
	Drop        Action = "drop"
	Budget      Action = "budget"
	WouldDrop   Action = "would_drop"
	WouldBudget Action = "would_budget"
)

var actions = [...]Action{Drop, Budget, WouldDrop, WouldBudget}

func (r *intakeRule) action() Action {
	switch {
	case r.budget == nil && r.dryRun:
		return WouldDrop
	case r.budget == nil:
		return Drop
	case r.dryRun:
		return WouldBudget
	default:
		return Budget
	}
}

// IntakeEvaluation is that of one intake rule. The one that matches, and is no dry run, decides.
type IntakeEvaluation struct {
	Rule   string
	Action Action
	Result Result
	// Err says why the evaluation failed, or is over budget.
	Err error
}

// compileIntake adds the intake rules of a configuration.
func (s *Set) compileIntake(rules []v1alpha1.IntakeRule) (errs field.ErrorList) {
	path, together := field.NewPath("intake"), uint64(0)
	for i := range rules {
		from := &rules[i]
		r := intakeRule{name: from.Name, dryRun: from.DryRun}
		program, cost, err := compile(from.Match, path.Index(i).Child("match"))
		if err != nil {
			errs = append(errs, err)
		}
		r.program = program
		together += cost
		if from.Budget != nil {
			qps, err := from.Budget.QPS.PerSecond()
			if err == nil {
				r.budget, err = occurrence.NewBudget(from.Name, int(from.Budget.Burst), qps)
			}
			if err != nil { // it is not from Load
				errs = append(errs, field.InternalError(path.Index(i).Child("budget"), err))
			}
		}
		s.intake = append(s.intake, r)
	}
	if together > MaxIntakeCost {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(
			"the rules may cost %d units together for one Event, and %d is the limit: loops and long regular expressions cost most", together, MaxIntakeCost)))
	}
	return errs
}

var errIntakeCost = errors.New("other rules have spent the budget of all")

// decide evaluates the intake rules in order, until one decides, which it returns. It calls each for
// every evaluation. Dry runs come last, though only those before the rule that decides: what they
// spend must change nothing for the others.
func (s *Set) decide(event *corev1.Event, each func(i int, result Result, err error)) *intakeRule {
	vars := &activation{eventType.new(event)}
	spent := uint64(0)
	evaluate := func(dryRun bool, end int) (decided int) {
		for i := range s.intake[:end] {
			r := &s.intake[i]
			if r.dryRun != dryRun {
				continue
			}
			result, err := OverBudget, errIntakeCost
			if spent < MaxIntakeCost {
				var cost uint64
				result, cost, err = match(r.program, vars)
				spent += cost
			}
			if each(i, result, err); result == Match && !dryRun {
				return i
			}
		}
		return end
	}
	decided := evaluate(false, len(s.intake))
	evaluate(true, decided)
	if decided == len(s.intake) {
		return nil
	}
	return &s.intake[decided]
}

// Intake evaluates the intake rules for an Event that a client reports. It only reads the Event, and
// counts nothing. Type Intake is for those who record.
func (s *Set) Intake(event *corev1.Event) []IntakeEvaluation {
	evaluations := make([]IntakeEvaluation, len(s.intake))
	for i := range s.intake {
		evaluations[i] = IntakeEvaluation{Rule: s.intake[i].name, Action: s.intake[i].action(), Result: NotEvaluated}
	}
	s.decide(event, func(i int, result Result, err error) {
		evaluations[i].Result, evaluations[i].Err = result, err
	})
	return evaluations
}

// Drops returns the names of the intake rules that drop, without dry runs.
func (s *Set) Drops() (names []occurrence.Reason) {
	for i := range s.intake {
		if s.intake[i].action() == Drop {
			names = append(names, occurrence.Reason(s.intake[i].name))
		}
	}
	return names
}
