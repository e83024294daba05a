package rules

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Intake decides by the intake rules of the set in force, and counts that by rule. It outlives sets,
// and so do its counters. It is safe for concurrent use, and needs no stop. Make it with NewIntake.
type Intake struct {
	evaluations, occurrences *prometheus.Desc
	inForce                  atomic.Pointer[intakeInForce] // nil without rules

	mu     sync.Mutex
	counts map[string]*intakeCounts // by name of the rule; nothing is removed
}

// intakeInForce is a set, with the counters of each of its intake rules.
type intakeInForce struct {
	set    *Set
	counts []*intakeCounts
}

// intakeCounts are those of all rules of one name.
type intakeCounts struct {
	results     [len(counted)]atomic.Uint64
	occurrences [len(actions)]atomic.Uint64
}

// maxIntakeNames limits the rules with counters of their own: an operator may rename rules as long
// as the process runs. Rules above the limit share the counters without a name.
const maxIntakeNames = 256

// NewIntake returns an Intake without rules, and registers its metrics unless the registerer is nil.
func NewIntake(r prometheus.Registerer) (*Intake, error) {
	i := &Intake{
		evaluations: prometheus.NewDesc("eventd_intake_rule_evaluations_total",
			"Evaluations of intake rules by result: match, no_match, error, over_budget. The last two do not match.",
			[]string{"rule", "result"}, nil),
		occurrences: prometheus.NewDesc("eventd_intake_rule_occurrences_total",
			"Occurrences that match an intake rule, by what it does: drop, budget, or, as a dry run, would_drop, would_budget.",
			[]string{"rule", "action"}, nil),
		counts: make(map[string]*intakeCounts),
	}
	if r == nil {
		return i, nil
	}
	return i, r.Register(i)
}

// Use replaces the set in force. Evaluations in progress end with the former one.
func (i *Intake) Use(s *Set) {
	if len(s.intake) == 0 {
		i.inForce.Store(nil)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	next := &intakeInForce{set: s}
	for n := range s.intake {
		next.counts = append(next.counts, i.countsOf(s.intake[n].name))
	}
	i.inForce.Store(next)
}

// countsOf returns the counters of a name. The mutex must be held.
func (i *Intake) countsOf(name string) *intakeCounts {
	if i.counts[name] == nil && len(i.counts) >= maxIntakeNames {
		name = ""
	}
	if i.counts[name] == nil {
		i.counts[name] = new(intakeCounts)
	}
	return i.counts[name]
}

// Decide evaluates the rules for an Event that a client reports, which it only reads, and which has
// occurred weight times since the last report. It returns the name of the rule that drops it, or else
// the budget of the rule that has one; both are zero if no rule decides. It ends with the function
// that exceeds MaxIntakeCost. dryRun, if not nil, is called for each rule in dry run that matches,
// with what the rule would do: an Action.
func (i *Intake) Decide(event *corev1.Event, weight int64, dryRun func(rule, action string)) (drop occurrence.Reason, budget *occurrence.Budget) {
	now := i.inForce.Load()
	if now == nil {
		return occurrence.NoReason, nil
	}
	r := now.set.decide(event, func(n int, result Result, _ error) {
		c := now.counts[n]
		c.results[slices.Index(counted[:], result)].Add(1)
		if result == Match {
			matched := &now.set.intake[n]
			c.occurrences[slices.Index(actions[:], matched.action())].Add(uint64(max(0, weight)))
			if matched.dryRun && dryRun != nil {
				dryRun(matched.name, string(matched.action()))
			}
		}
	})
	switch {
	case r == nil:
		return occurrence.NoReason, nil
	case r.budget == nil:
		return occurrence.Reason(r.name), nil
	default:
		return occurrence.NoReason, r.budget
	}
}

// Describe is that of prometheus.Collector.
func (i *Intake) Describe(ch chan<- *prometheus.Desc) {
	ch <- i.evaluations
	ch <- i.occurrences
}

// Collect is that of prometheus.Collector.
func (i *Intake) Collect(ch chan<- prometheus.Metric) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, c := range i.counts {
		for n, result := range counted {
			ch <- counterOf(i.evaluations, &c.results[n], name, string(result))
		}
		for n, action := range actions {
			ch <- counterOf(i.occurrences, &c.occurrences[n], name, string(action))
		}
	}
}
