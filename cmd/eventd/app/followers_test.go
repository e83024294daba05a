package app

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// tell has a replica report.
func (f *followers) tell(t *testing.T, name string, state replicaState) {
	t.Helper()
	data, err := json.Marshal(state)
	if err == nil {
		err = f.report(name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// is returns what is listed of a replica.
func (f *followers) is(name string) *v1alpha1.Replica {
	for _, r := range f.list(true) {
		if r.Identity == name {
			return &r
		}
	}
	return nil
}

func ready(version string) replicaState {
	return replicaState{Replica: v1alpha1.Replica{Version: version, Ready: new(true)}}
}

func TestLeaderKnowsEachReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f followers
		f.addSessions("former", 1) // of a release that does not report
		f.addSessions("", 1)       // of one that has no name
		f.addSessions("well", 1)
		f.tell(t, "well", ready("v2"))
		f.tell(t, "apart", replicaState{Replica: v1alpha1.Replica{Ready: new(false), Reason: "no token"}})
		if got := f.is("former"); got == nil || !*got.Follows || got.Ready != nil || got.UnknownSince != nil || got.Role != "standby" {
			t.Errorf("a follower that does not report is %+v", got)
		}
		if got := f.is("well"); got == nil || !*got.Follows || !*got.Ready || got.Version != "v2" {
			t.Errorf("a follower is %+v", got)
		}
		if got := f.is("apart"); got == nil || *got.Follows || *got.Ready || got.Reason != "no token" {
			t.Errorf("one that cannot follow is %+v", got)
		}
		for _, r := range f.list(false) { // where nothing is pending
			if r.Follows != nil {
				t.Errorf("of %s it is said whether it mirrors", r.Identity)
			}
		}
		if got := f.sessions(); len(f.list(true)) != 3 || got != 3 {
			t.Errorf("with %d sessions, these are listed: %+v", got, f.list(true))
		}
		// One that hangs has its session until its connection is closed.
		last := time.Now()
		time.Sleep(silentAfter + 1)
		f.addSessions("former", -1)
		if got := f.is("former"); got != nil {
			t.Errorf("a follower that has gone is %+v", got)
		}
		for name, follows := range map[string]bool{"well": true, "apart": false} {
			got := f.is(name)
			if got == nil || got.Ready != nil || got.Reason != "" || *got.Follows != follows || !got.UnknownSince.Time.Equal(last) {
				t.Errorf("%s, silent, is %+v", name, got)
			}
		}
		f.addSessions("well", -1)
		time.Sleep(forgetAfter - silentAfter)
		if got := f.list(true); len(got) != 0 {
			t.Errorf("after a while, these are listed: %+v", got)
		}
	})
}

func TestReplicaThatEndsIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f followers
		f.addSessions("ends", 1)
		ending := ready("v2")
		ending.Ending = true
		f.tell(t, "ends", ending)
		f.addSessions("ends", -1)
		if f.is("ends") == nil {
			t.Error("it is not listed while it ends")
		}
		time.Sleep(silentAfter + 1)
		if got := f.is("ends"); got != nil {
			t.Errorf("it is %+v", got)
		}
	})
}

func TestTermBeginsWithTheReplicasThatReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f followers
		f.tell(t, "of a former term", ready("v1"))
		f.addSessions("follows", 1)
		time.Sleep(silentAfter + 1)
		f.tell(t, "well", ready("v1"))
		f.begin()
		if f.is("of a former term") != nil || f.is("follows") == nil || f.is("well") == nil {
			t.Errorf("these are listed: %+v", f.list(true))
		}
	})
}

// A replica may be elected for a minute after its last report, unless it has ended
// in order. A new leader waits for others to find it.
func TestWhetherThereIsAnotherReplica(t *testing.T) {
	ending := ready("v1")
	ending.Ending = true
	for name, test := range map[string]struct {
		do   func(t *testing.T, f *followers)
		want time.Duration // so long, there is one
	}{
		"alone":           {func(*testing.T, *followers) {}, 0},
		"elected":         {func(_ *testing.T, f *followers) { f.begin() }, unknownFor},
		"reports":         {func(t *testing.T, f *followers) { f.tell(t, "a", ready("v1")) }, knownFor},
		"ends":            {func(t *testing.T, f *followers) { f.tell(t, "a", ready("v1")); f.tell(t, "a", ending) }, 0},
		"one of two ends": {func(t *testing.T, f *followers) { f.tell(t, "a", ready("v1")); f.tell(t, "b", ending) }, knownFor},
		"was cut off in the term before": {func(t *testing.T, f *followers) {
			f.tell(t, "a", ready("v1"))
			time.Sleep(20 * time.Second)
			f.begin()
		}, knownFor - 20*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f followers
				test.do(t, &f)
				began := time.Now()
				for f.mayFollow() && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if got := time.Since(began); got != test.want {
					t.Errorf("there is another one for %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestKnownReplicasAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f followers
		f.addSessions("follows", 1)
		for i := range 10 * maxFollowers {
			f.tell(t, fmt.Sprint(i), ready("v1"))
			time.Sleep(time.Millisecond)
		}
		if got := f.list(true); len(got) != maxFollowers || f.is("follows") == nil || f.is(fmt.Sprint(10*maxFollowers-1)) == nil || f.is("0") != nil {
			t.Errorf("%d are listed: %+v", len(got), got)
		}
		if err := f.report("bad", []byte("{")); err == nil || f.is("bad") != nil {
			t.Errorf("what cannot be decoded is accepted: %v", err)
		}
	})
}
