package describe

import (
	"slices"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// inward are the stations of the way in.
var inward = map[string]bool{"intake": true, "broadcaster": true, "correlator": true, "sink": true, "apiserver": true}

// OfLeader reports whether only the leader knows how a station is: those of other replicas do nothing.
func OfLeader(station string) bool { return inward[station] }

// Leaderless reports whether a replica waits for a leader.
func Leaderless(p v1alpha1.Process) bool { return p.Leader == nil && p.Replica.Role != "alone" }

// Stations returns those of a status, and the apiserver behind those of the way in, unless it is of replicas that only
// observe.
func Stations(s *v1alpha1.PipelineStatus) []v1alpha1.Station {
	if s.Flags["role"] == "observe" {
		return s.Stations
	}
	apiserver := s.Apiserver
	apiserver.Name = "apiserver"
	return append(slices.Clone(s.Stations), apiserver)
}

// Processes returns what a status says of the replicas of each role.
func Processes(s *v1alpha1.PipelineStatus) []v1alpha1.Process {
	all := []v1alpha1.Process{{Replica: s.Replica, Leader: s.Leader, Followers: s.Followers, Configuration: s.Configuration, Flags: s.Flags}}
	if s.Observe != nil {
		all = append(all, *s.Observe)
	}
	return all
}
