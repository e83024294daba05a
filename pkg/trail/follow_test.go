package trail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// followed is lines of what a follower returns.
func followed(steps []*Step) []string {
	var values []Step
	for _, st := range steps {
		values = append(values, *st)
	}
	return lines(values)
}

// A follower gets each step, as it comes.
func TestAFollowerGetsWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		e := event("shop", "web-0", "A", "")
		record(to, e, "jane", 1) // before
		f := to.Follow()
		defer f.Close()
		go func() {
			synctest.Wait() // the follower waits
			record(to, e, "jane", 2)
		}()
		var first []string
		for len(first) < 2 {
			steps, lost, err := f.Next(t.Context(), 1)
			if len(steps) != 1 || lost != 0 || err != nil {
				t.Fatal(len(steps), lost, err)
			}
			first = append(first, followed(steps)...)
		}
		want(t, "steps", []string{"web-0 recorded 2", "web-0 settled 2 created"}, first)
	})
}

// A storm does not wake every follower for every step, nor all of them at once.
func TestFollowersReadWhatComesSoonTogetherAndInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		const followers, periods, each = 50, 10, 20
		var at [followers][]time.Time
		var reading sync.WaitGroup
		for i := range followers {
			f := to.Follow()
			reading.Go(func() {
				defer f.Close()
				for read := 0; read < 2*periods*each; {
					steps, lost, err := f.Next(t.Context(), 1000)
					if lost != 0 || err != nil {
						t.Error(lost, err)
						return
					}
					read += len(steps)
					at[i] = append(at[i], time.Now())
				}
			})
		}
		synctest.Wait() // they wait
		for range periods * each {
			record(to, event("shop", "web-0", "A", ""), "jane", 1)
			time.Sleep(followInterval / each)
		}
		reading.Wait()
		turns := map[time.Time]int{}
		for i := range at {
			if len(at[i]) > periods+2 {
				t.Errorf("follower %d has read %d times in %d periods", i, len(at[i]), periods)
			}
			for _, turn := range at[i] {
				turns[turn]++
			}
		}
		if most := slices.Max(slices.Collect(maps.Values(turns))); most > followers/5 {
			t.Errorf("%d of %d followers read at the same time", most, followers)
		}
	})
}

// A slow follower loses the oldest steps, and is told how many. Another one loses none.
func TestASlowFollowerLosesSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{MaxBytes: MinMaxBytes})
		slow, quick := to.Follow(), to.Follow()
		defer slow.Close()
		defer quick.Close()
		total, most := int64(1000), int64(to.log.most)
		for i := range total / 2 {
			record(to, event("shop", fmt.Sprint("pod-", i), "A", ""), "jane", 1)
			if steps, lost, err := quick.Next(t.Context(), 10); len(steps) != 2 || lost != 0 || err != nil {
				t.Fatal(len(steps), lost, err)
			}
		}
		steps, lost, err := slow.Next(t.Context(), 1)
		if lost != total-most || err != nil || len(steps) != 1 || steps[0].Regarding.Name != fmt.Sprint("pod-", lost/2) {
			t.Errorf("%d lost of %d, then %q, %v", lost, total, followed(steps), err)
		}
		for read := int64(1); read < most; read += int64(len(steps)) {
			if steps, lost, err = slow.Next(t.Context(), 7); lost != 0 || err != nil {
				t.Fatal(lost, err)
			}
		}
	})
}

func TestNextEndsWithItsContextAndWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		f := to.Follow()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if _, _, err := f.Next(ctx, 1); !errors.Is(err, cause) {
			t.Error(err)
		}
		go func() {
			synctest.Wait()
			f.Close()
			f.Close()
		}()
		if _, _, err := f.Next(t.Context(), 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		record(to, event("shop", "web-0", "A", ""), "jane", 1)
		if to.log.ring != nil || to.log.followers != 0 {
			t.Error("steps are kept for nobody")
		}
		again := to.Follow() // begins with what comes
		defer again.Close()
		record(to, event("shop", "web-1", "A", ""), "jane", 1)
		steps, lost, err := again.Next(t.Context(), 10)
		if lost != 0 || err != nil {
			t.Error(lost, err)
		}
		want(t, "steps", []string{"web-1 recorded 1", "web-1 settled 1 created"}, followed(steps))
	})
}

// A follower waits only when it has read all: many steps are no reason to fall behind.
func TestAFollowerReadsOnUntilItIsUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		f := to.Follow()
		defer f.Close()
		for range 5 { // of two steps each
			record(to, event("shop", "web-0", "A", ""), "jane", 1)
		}
		began := time.Now()
		for _, want := range []int{4, 4, 2} {
			steps, lost, err := f.Next(t.Context(), 4)
			if len(steps) != want || lost != 0 || err != nil || f.UpToDate() != (want == 2) {
				t.Errorf("%d steps, want %d; %d lost; up to date: %v, %v", len(steps), want, lost, f.UpToDate(), err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it has waited %s", took)
		}
	})
}
