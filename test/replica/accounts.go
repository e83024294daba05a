package replica

import (
	"encoding/json"
	"errors"
	"strings"
)

// Accounts are the occurrences of a process by outcome, and as "recorded" and
// "pending".
type Accounts map[string]int64

// Written is how many of them the process has counted in the apiserver.
func (a Accounts) Written() int64 { return a["created"] + a["merged"] + a["aggregated"] }

// FinalAccounts is the ledger that a process logs when it ends in order.
func (r *Replica) FinalAccounts() (Accounts, error) {
	for line := range strings.Lines(r.Stderr()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "Final accounts" {
			continue
		}
		out := Accounts{}
		for name, value := range entry {
			if n, ok := value.(float64); ok {
				out[name] = int64(n)
			}
		}
		return out, nil
	}
	return nil, errors.New("eventd logged no final accounts")
}
