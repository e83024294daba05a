package faultproxy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
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
// which a rule was chosen before.
func (p *Proxy) SetRules(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.Clone(rules)
}

// SetCapacity limits concurrent Event writes; 0 is no limit. A write holds its slot
// until its request has ended, hangs and delays included. Those above the limit are
// refused; those that have a slot keep it.
func (p *Proxy) SetCapacity(atOnce int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = atOnce
}

// SetKey replaces the verb and the name as that by which requests are numbered
// and decided on. It is to be called before the first request.
func (p *Proxy) SetKey(key func(Request) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
}

func verbAndName(r Request) string { return r.Verb + " " + r.Name }

// admit adds a write to the record, acquires a slot for it, and decides on its fault.
func (p *Proxy) admit(x *exchange) (Fault, *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = append(p.record, x.entry)
	if p.limit != 0 && p.used >= p.limit {
		x.entry.Fault = overCapacity.name
		return overCapacity, nil
	}
	p.used++
	x.acquired = true
	fault, rng := p.decide(x.request)
	x.entry.Fault = fault.name
	return fault, rng
}

// decide returns the fault of the next request of a key: that of the first rule that
// strikes. A generator is made for each request, so that no request depends on what
// happens to those of other keys. Every rule that matches takes one number from it,
// until one strikes.
func (p *Proxy) decide(r Request) (Fault, *rand.Rand) {
	key := p.key(r)
	p.writes[key]++
	rng := generator(p.seed, key, p.writes[key])
	for _, rule := range p.rules {
		if rule.Match.matches(r) && rng.Float64() < rule.Probability {
			return rule.Fault, rng
		}
	}
	return Fault{}, rng
}

// generator hashes, so that neighbouring seeds and numbers have nothing in common.
func generator(seed uint64, key string, number uint64) *rand.Rand {
	input := binary.BigEndian.AppendUint64(nil, seed)
	input = binary.BigEndian.AppendUint64(input, number)
	return rand.New(rand.NewChaCha8(sha256.Sum256(append(input, key...))))
}
