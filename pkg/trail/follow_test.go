package trail

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// followed is lines of what a follower returns.
func followed(steps []*Step) []string {
	var values []Step
	for _, st := range steps {
		values = append(values, *st)
	}
	return lines(values)
}

// A follower gets each step that comes after it, and waits for none.
func TestAFollowerGetsWhatIsDone(t *testing.T) {
	to := newTrail(t, Options{})
	e := event("shop", "web-0", "A", "")
	record(to, e, "jane", 1) // before
	f := to.Follow()
	defer f.Close()
	if steps, lost := f.Read(1); len(steps) != 0 || lost != 0 || !f.UpToDate() {
		t.Error(len(steps), lost, f.UpToDate())
	}
	record(to, e, "jane", 2)
	var got []string
	for _, last := range []bool{false, true} {
		steps, lost := f.Read(1)
		if len(steps) != 1 || lost != 0 || f.UpToDate() != last {
			t.Fatal(len(steps), lost, f.UpToDate())
		}
		got = append(got, followed(steps)...)
	}
	want(t, "steps", []string{"web-0 recorded 2", "web-0 settled 2 created"}, got)
}

// A slow follower loses the oldest steps, and is told how many. Another one loses none.
func TestASlowFollowerLosesSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{MaxBytes: MinMaxBytes})
		slow, quick := to.Follow(), to.Follow()
		defer slow.Close()
		defer quick.Close()
		const total = 1000
		for i := range total / 2 {
			record(to, event("shop", fmt.Sprint("pod-", i), "A", ""), "jane", 1)
			if steps, lost := quick.Read(10); len(steps) != 2 || lost != 0 {
				t.Fatal(len(steps), lost)
			}
		}
		// As many are kept as there is memory for.
		kept, size := int64(0), int64(0)
		for _, step := range to.log.ring {
			if step != nil {
				kept, size = kept+1, size+step.bytes()
			}
		}
		if limit := int64(MinMaxBytes / 16); size > limit || size < limit-2*size/kept {
			t.Errorf("%d steps take %d bytes of %d", kept, size, limit)
		}
		steps, lost := slow.Read(1)
		if lost != total-kept || len(steps) != 1 || steps[0].Regarding.Name != fmt.Sprint("pod-", lost/2) {
			t.Errorf("%d lost of %d, then %q", lost, total, followed(steps))
		}
		for read := int64(1); read < kept; read += int64(len(steps)) {
			if steps, lost = slow.Read(7); lost != 0 {
				t.Fatal(lost)
			}
		}
	})
}

func TestNoStepsAreKeptAfterClose(t *testing.T) {
	to := newTrail(t, Options{})
	f := to.Follow()
	record(to, event("shop", "web-0", "A", ""), "jane", 1)
	f.Close()
	f.Close()
	record(to, event("shop", "web-0", "A", ""), "jane", 1)
	if steps, lost := f.Read(10); len(steps) != 0 || lost != 0 {
		t.Error(len(steps), lost)
	}
	if to.log.ring != nil || to.log.followers != 0 {
		t.Error("steps are kept for nobody")
	}
	again := to.Follow() // begins with what comes
	defer again.Close()
	record(to, event("shop", "web-1", "A", ""), "jane", 1)
	steps, lost := again.Read(10)
	if lost != 0 {
		t.Error(lost)
	}
	want(t, "steps", []string{"web-1 recorded 1", "web-1 settled 1 created"}, followed(steps))
}
