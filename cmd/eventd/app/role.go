package app

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// The values of --role: what a process is for. Replicas of both roles are two Deployments with two Leases, so that
// nothing that happens to one is noticed by clients of the other.
const (
	RoleAll     = "all"
	RoleIntake  = "intake"  // takes reports, and writes them
	RoleObserve = "observe" // observes, keeps and delivers what is stored, whoever wrote it
)

// groupsOf are the groups of flags that only one role has.
var groupsOf = map[string][]string{
	RoleIntake:  {"intake", "serving CA", "correlation", "writing", "replication"},
	RoleObserve: {"observation"},
}

// Takes reports whether the process takes reports.
func (o *Options) Takes() bool { return o.Role != RoleObserve }

// Observes reports whether the process observes what is stored.
func (o *Options) Observes() bool { return o.Role != RoleIntake }

// observeUnreadBytes is MaxUnreadBytes of a process that only observes: nobody reports to it.
const observeUnreadBytes = 12 << 20

// UnreadBytes is what responses may take that clients have not read.
func (o *Options) UnreadBytes() int64 {
	if !o.Takes() {
		return observeUnreadBytes
	}
	return o.Intake.MaxUnreadBytes
}

// LeaseName is --leader-elect-resource-name, or the name for the role.
func (o *Options) LeaseName() string {
	switch {
	case o.LeaderElection.ResourceName != "":
		return o.LeaderElection.ResourceName
	case o.Role == RoleObserve:
		return "eventd-observe"
	default:
		return "eventd"
	}
}

// roleError returns an error for another value of --role.
func roleError(role string) error {
	if slices.Contains([]string{RoleAll, RoleIntake, RoleObserve}, role) {
		return nil
	}
	return fmt.Errorf("--role must be %q, %q or %q, got %q", RoleAll, RoleIntake, RoleObserve, role)
}

func (o *Options) validateRole(v *violations) {
	if err := roleError(o.Role); err != nil {
		v.add("%v", err)
		return
	}
	changed, flags := o.changedFlags(), o.Flags()
	for role, groups := range groupsOf {
		if o.Role == RoleAll || o.Role == role {
			continue
		}
		for _, group := range groups {
			flags.FlagSets[group].VisitAll(func(f *pflag.Flag) {
				_, given := changed[f.Name]
				v.addIf(given, "--%s is a flag of --role=%s", f.Name, role)
			})
		}
	}
	v.addIf(o.Role == RoleObserve && o.ConfigFile == "" && o.HistoryBytes == 0, "--role=%s needs --config or --history-bytes", RoleObserve)
}

// checkRole refuses what the other role would do.
func checkRole(role string, config *v1alpha1.EventdConfiguration) error {
	switch {
	case role == RoleObserve && len(config.Intake) > 0:
		return errors.New("intake: rules are for a process with --role=" + RoleIntake)
	case role == RoleIntake && len(config.Receivers)+len(config.Routes)+len(config.Metrics) > 0:
		return errors.New("receivers, routes and metrics are for a process with --role=" + RoleObserve)
	default:
		return nil
	}
}
