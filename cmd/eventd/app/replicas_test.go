package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOneOfThreeReplicasLeadsAndAllAreReady(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.waitRole(t, "leader\n")
	name := r.holder()
	standbys := []*child{r.start(""), r.start("")}
	for _, standby := range standbys {
		standby.waitRole(t, "standby of "+name+"\n")
	}
	for i, replica := range append(standbys, leader) {
		replica.requireReady(t)
		if err := r.report(replica, fmt.Sprintf("web.%d", i)); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}
	r.counted(3)

	standbys[0].signal(t, syscall.SIGTERM)
	standbys[0].requireExit(t, 0)
	if now := r.holder(); now != name {
		t.Errorf("%s leads after the end of a standby, %s before", now, name)
	}
	leader.signal(t, syscall.SIGTERM)
	standbys[1].waitRole(t, "leader\n")
	leader.requireExit(t, 0)
	if err := r.report(standbys[1], "web.4"); err != nil {
		t.Errorf("the new leader: %v", err)
	}
	r.counted(4)
	standbys[1].signal(t, syscall.SIGTERM)
	standbys[1].requireExit(t, 0)
	if now := r.holder(); now != "" {
		t.Errorf("the Lease is held by %s, which has ended", now)
	}
}

func TestStandbyForwardsRequests(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.waitRole(t, "leader\n")
	standby := r.start("")
	standby.waitRole(t, "standby of")
	before := leader.metric(t, "eventd_occurrences_recorded_total")
	for i := range 5 {
		if err := r.report(standby, fmt.Sprintf("web.%d", i)); err != nil {
			t.Error(err)
		}
	}
	if n := leader.metric(t, "eventd_occurrences_recorded_total") - before; n != 5 {
		t.Errorf("the leader has recorded %v of 5 occurrences", n)
	}
	if n := standby.metric(t, "eventd_occurrences_recorded_total"); n != 0 {
		t.Errorf("the standby has recorded %v occurrences itself", n)
	}
	for replica, want := range map[*child]float64{leader: 1, standby: 0} {
		if got := replica.metric(t, "eventd_election_leading"); got != want {
			t.Errorf("eventd_election_leading is %v, want %v", got, want)
		}
	}
	r.counted(5)
}

func TestFormerLeaderForwardsRequestsAfterTheHandover(t *testing.T) {
	r := newReplicas(t)
	former := r.start("", "--shutdown-delay-duration=20s")
	former.waitRole(t, "leader\n")
	next := r.start("")
	next.waitRole(t, "standby of")
	former.signal(t, syscall.SIGTERM)
	next.waitRole(t, "leader\n")
	if status, body, err := get(t, former.config, "/readyz?verbose"); err != nil || status != http.StatusInternalServerError || !strings.Contains(body, "[-]shutdown failed") {
		t.Errorf("/readyz during the shutdown delay: %d %s %v", status, body, err)
	}
	if err := r.report(former, "web.1"); err != nil {
		t.Error(err)
	}
	if n := next.metric(t, `eventd_occurrences_recorded_total`); n != 2 { // one is the Event of the Lease
		t.Errorf("the new leader has recorded %v occurrences", n)
	}
	r.counted(1)
	if answer := newCaller(t, former.config, r.namespace, http1).accepted("web.2", http1); !answer.last {
		t.Error("the connection is not drained during the shutdown")
	}
	former.signal(t, syscall.SIGTERM)
	former.requireExit(t, 1)
}

func TestEventsOfTheLeaseRecordTheLeader(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.waitRole(t, "leader\n")
	name := r.holder()
	leader.signal(t, syscall.SIGTERM)
	leader.requireExit(t, 0)
	list, err := r.client.CoreV1().Events(r.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Lease"})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, event := range list.Items {
		if event.Reason != "LeaderElection" || event.InvolvedObject.Name != "eventd" || event.Source.Component != "eventd" {
			t.Errorf("an Event of another kind: %+v", event)
		}
		messages = append(messages, event.Message)
	}
	slices.Sort(messages)
	if want := []string{name + " became leader", name + " stopped leading"}; !slices.Equal(messages, want) {
		t.Errorf("messages %q, want %q", messages, want)
	}
}
