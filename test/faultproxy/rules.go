package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Rule strikes a share of the writes that it matches. Rules are tried in order,
// and the first that strikes is the only one: the probability of a later rule is
// that among the writes which the earlier ones left. A rule with the zero Fault
// protects what it matches from those behind it.
type Rule struct {
	Match       Match
	Probability float64 // from 0, never, to 1, always
	Fault       Fault
}

// Match selects the writes of a rule. All of its fields must match; an empty one
// matches everything.
type Match struct {
	Namespace  string
	NamePrefix string
}

func (m Match) matches(r Request) bool {
	return (m.Namespace == "" || m.Namespace == r.Namespace) && strings.HasPrefix(r.Name, m.NamePrefix)
}

// Spread returns rules that strike a share of all writes, by one of the faults,
// each as likely as the others.
func Spread(share float64, faults ...Fault) []Rule {
	each := share / float64(len(faults))
	var rules []Rule
	for i, f := range faults {
		left := 1 - float64(i)*each // what the earlier ones leave
		rules = append(rules, Rule{Probability: min(each/left, 1), Fault: f})
	}
	return rules
}

// SetRules replaces all rules; none means no faults. It does not affect writes for
// which a rule was chosen before. An invalid rule is an error of the test: SetRules
// panics.
func (p *Proxy) SetRules(rules ...Rule) {
	for i, r := range rules {
		if !(r.Probability >= 0 && r.Probability <= 1) {
			panic(fmt.Sprintf("faultproxy: rule %d has the probability %v", i, r.Probability))
		}
		if err := r.Fault.check(); err != nil {
			panic(fmt.Sprintf("faultproxy: rule %d has %v", i, err))
		}
	}
	rules = slices.Clone(rules)
	p.rules.Store(&rules)
}

// choose returns the fault of the first rule that strikes. Every rule that
// matches takes one number from rng, until one strikes.
func choose(rules []Rule, r Request, rng *rand.Rand) Fault {
	for _, rule := range rules {
		if rule.Match.matches(r) && rng.Float64() < rule.Probability {
			return rule.Fault
		}
	}
	return Fault{}
}

// decision is a fault with its delays drawn.
type decision struct {
	Fault
	number                uint64
	before, after, lateBy time.Duration
}

// decide decides on the next request of a key.
func (p *Proxy) decide(r Request) decision {
	var rng *rand.Rand
	r.Number, rng = p.dice.throw(r)
	f := choose(*p.rules.Load(), r, rng)
	return decision{
		Fault: f, number: r.Number,
		before: f.before.draw(rng), after: f.after.draw(rng), lateBy: f.lateBy.draw(rng),
	}
}
