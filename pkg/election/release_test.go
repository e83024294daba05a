package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/test/fakelock"
)

func TestPlannedStopFinishesTheWorkThenReleasesThenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := twoReplicas(t)
		a.finish = 30 * time.Second // twice the lease: it has to be renewed meanwhile
		stopped := time.Now()
		a.stop()
		for time.Since(stopped) < a.finish-time.Second {
			elapse(time.Second)
			if s.Holder("lease") != "a" || !a.Leading() {
				t.Fatalf("the lease is released %s before the work has returned", a.finish-time.Since(stopped))
			}
			requireStandby(t, b)
			if err := a.lastTerm().Err(); err == nil {
				t.Fatal("the work was not cancelled")
			}
		}
		if err := <-a.result; err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took != a.finish {
			t.Errorf("the stop took %s", took)
		}
		if holder := s.Holder("lease"); holder != "" {
			t.Errorf("when Run has returned, the lease is held by %q", holder)
		}
		requireStandby(t, a)
		b.end()
	})
}

// The Lease must not be free while Leading is still true.
func TestNobodyLeadsWhenTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		requests := 0
		a.lock.Intercept(func(_ context.Context, _ fakelock.Operation, send func() error) error {
			requests++
			if a.Leading() || a.lastTerm().Err() == nil {
				t.Error("leads while it releases")
			}
			return send()
		})
		a.end()
		if requests != 2 || s.Holder("lease") != "" {
			t.Errorf("released with %d requests, held by %q", requests, s.Holder("lease"))
		}
	})
}

func TestReleaseThatFailsIsBoundedInTime(t *testing.T) {
	for name, w := range map[string]fakelock.Interceptor{"refused": fakelock.Fail, "hanging": fakelock.Hang, "update hangs": fakelock.Only(fakelock.Update, fakelock.Hang)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a, b := twoReplicas(t)
				a.lock.Intercept(w)
				began := time.Now()
				if err := a.end(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > a.options.ReleaseTimeout {
					t.Errorf("it took %s", took)
				}
				if s.Holder("lease") != "a" {
					t.Fatal("released")
				}
				elapse(a.options.LeaseDuration + 2*time.Second)
				requireLeader(t, b)
				b.end()
			})
		})
	}
}

func TestRunReturnsAlthoughTheLockNeverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		_, a, b := twoReplicas(t)
		a.lock.Intercept(fakelock.Block(letGo))
		elapse(10 * time.Second)
		requireStandby(t, a)
		began := time.Now()
		a.end()
		if took := time.Since(began); took > a.options.ReleaseTimeout+eventTimeout {
			t.Errorf("it took %s", took)
		}
		elapse(8 * time.Second)
		requireLeader(t, b)
		close(letGo)
		elapse(time.Second)
		requireLeader(t, b)
		b.end()
	})
}

func TestReleaseContinuesAfterAConflictAndALostAnswer(t *testing.T) {
	for name, disturb := range map[string]fakelock.Interceptor{"a conflict": nil, "a lost answer": fakelock.LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakelock.NewStore()
				a := newReplica(t, newLock(s, "lease", "a")).start()
				synctest.Wait()
				a.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Once(func(ctx context.Context, op fakelock.Operation, send func() error) error {
					if disturb != nil {
						return disturb(ctx, op, send)
					}
					touch(s)
					return send()
				})))
				a.end()
				if holder := s.Holder("lease"); holder != "" {
					t.Errorf("held by %q", holder)
				}
			})
		})
	}
}

func TestReleaseThatIsAlwaysInConflictIsNotTriedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		tried := 0
		a.lock.Intercept(fakelock.Only(fakelock.Update, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			if tried++; tried > 1000 {
				return send()
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "lease", fakelock.ErrBroken)
		}))
		a.end()
		synctest.Wait() // for the last call: the time may be over while it is on its way
		if limit := int(a.options.ReleaseTimeout/releaseRetry) + 2; tried > limit {
			t.Errorf("tried %d times, and %d are enough", tried, limit)
		}
	})
}

func TestReleaseDoesNotClearWhoComesBetweenItsReadAndItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		a.lock.Intercept(fakelock.Only(fakelock.Update, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			setHolder(t, s, "b")
			return send()
		}))
		a.end()
		if holder := s.Holder("lease"); holder != "b" {
			t.Errorf("held by %q", holder)
		}
	})
}

// Watch and OnNewLeader are code of the caller.
func TestStopAbandonsCallbacksThatDoNotReturn(t *testing.T) {
	end := make(chan struct{})
	for name, hangs := range map[string]func(*Options){
		"watch":     func(o *Options) { o.Watch = func(context.Context, func()) error { <-end; return nil } },
		"newLeader": func(o *Options) { o.OnNewLeader = func(Leader) { <-end } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end = make(chan struct{})
				defer close(end)
				s := fakelock.NewStore()
				logged := &log{}
				a := newReplica(t, newLock(s, "lease", "a"), hangs).startIn(logged.context(t.Context()))
				elapse(time.Minute)
				requireLeader(t, a)
				began := time.Now()
				a.end()
				if took := time.Since(began); took > callbackTimeout {
					t.Errorf("it took %s", took)
				}
				if holder := s.Holder("lease"); holder != "" {
					t.Errorf("held by %q", holder)
				}
			})
		})
	}
}
