package v1alpha1

// Kinds of rules.
const (
	RuleIntake = "intake" // decides on what clients report
	RuleRoute  = "route"  // decides which receivers get what is stored
	RuleMetric = "metric" // counts what is stored
)

// What a rule does with what it matches.
const (
	DoesDrop        = "drop"
	DoesBudget      = "budget"
	DoesWouldDrop   = "would_drop"   // a dry run
	DoesWouldBudget = "would_budget" // a dry run
	DoesDeliver     = "deliver"      // to Receivers
	DoesCount       = "count"
)

// RuleStatus is a rule of the configuration in force, and what it has done. Rules of a kind are in the order in
// which they are evaluated.
type RuleStatus struct {
	// Kind and Does are some of the constants above.
	Kind string `json:"kind"`
	Name string `json:"name"`
	Does string `json:"does"`
	// Match is the beginning of its expression. Without one, everything matches.
	Match string `json:"match,omitempty"`
	// Receivers get what a route matches. Continue: the routes after it are evaluated too.
	Receivers []string `json:"receivers,omitempty"`
	Continue  bool     `json:"continue,omitempty"`
	// Matched counts, of an intake rule, occurrences; of others, evaluations: one for each receiver.
	Matched Figure `json:"matched"`
	// Failed are the evaluations that failed or cost too much: they did not match.
	Failed []Figure `json:"failed,omitempty"`
}
