package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/fakelock"
)

func TestStandbyThatStopsSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		before := b.lock.Requests()
		b.end()
		if after := b.lock.Requests(); after[fakelock.Get] != before[fakelock.Get] || after[fakelock.Update] != 0 {
			t.Errorf("requests %v, before %v", after, before)
		}
		a.end()
	})
}

func TestWorkIsNotBegunDuringAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		l := newLock(s, "lease", "a")
		acquiring, arrive := make(chan struct{}), make(chan struct{})
		l.Intercept(fakelock.Only(fakelock.Create, func(_ context.Context, _ fakelock.Operation, send func() error) error {
			close(acquiring)
			<-arrive
			return send()
		}))
		a := newReplica(t, l).start()
		<-acquiring
		a.stop()
		synctest.Wait()
		close(arrive)
		if err := <-a.result; err != nil {
			t.Error(err)
		}
		if a.led() != 0 {
			t.Error("the work was begun")
		}
		if holder := s.Holder("lease"); holder != "" {
			t.Errorf("held by %q", holder)
		}
	})
}

// A cancelled HTTP request returns although the server may have received it.
func TestAcquisitionThatIsOnItsWayAtAStopIsWaitedForAndReleased(t *testing.T) {
	for op, before := range map[fakelock.Operation]*fakelock.Object{fakelock.Create: nil, fakelock.Update: {}} {
		synctest.Test(t, func(t *testing.T) {
			s := fakelock.NewStore()
			if before != nil {
				if _, err := s.Put("lease", *before); err != nil {
					t.Fatal(err)
				}
			}
			l := newLock(s, "lease", "a")
			l.Intercept(fakelock.Only(op, func(ctx context.Context, _ fakelock.Operation, send func() error) error {
				l.Intercept(nil)
				return fakelock.Detach(ctx, func() error {
					time.Sleep(20 * time.Millisecond)
					return send()
				})
			}))
			a := newReplica(t, l).start()
			synctest.Wait()
			if err := a.end(); err != nil {
				t.Error(err)
			}
			elapse(time.Second)
			if holder := s.Holder("lease"); holder != "" {
				t.Errorf("%s: held by %q", op, holder)
			}
			if a.led() != 0 {
				t.Errorf("%s: the work was begun", op)
			}
		})
	}
}

// The apiserver hangs from the acquisition on.
func TestStopOfAStandbyTakesNoLongerThanARelease(t *testing.T) {
	for name, hangs := range map[string]func(<-chan struct{}) fakelock.Interceptor{
		"until its context is over": func(<-chan struct{}) fakelock.Interceptor { return fakelock.Hang },
		"for ever":                  fakelock.Block,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLock(fakelock.NewStore(), "lease", "a")
				end := make(chan struct{})
				defer close(end)
				l.Intercept(fakelock.Only(fakelock.Create, func(ctx context.Context, op fakelock.Operation, send func() error) error {
					l.Intercept(hangs(end))
					return hangs(end)(ctx, op, send)
				}))
				a := newReplica(t, l).start()
				synctest.Wait()
				began := time.Now()
				a.end()
				if took := time.Since(began); took > a.options.ReleaseTimeout {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// The write arrives after the process has ended.
func TestAcquisitionInDoubtDoesNotTakeEffectAfterAStop(t *testing.T) {
	for name, held := range map[string]*resourcelock.LeaderElectionRecord{
		"released": {LeaseDurationSeconds: 1},
		"expired":  {HolderIdentity: "gone", LeaseDurationSeconds: 15},
		"missing":  nil,
	} {
		// The stop comes while it waits to read again, and while it reads.
		for _, reading := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, op := fakelock.NewStore(), fakelock.Create
					if held != nil {
						op = fakelock.Update
						if _, err := s.Put("lease", fakelock.Object{Record: *held}); err != nil {
							t.Fatal(err)
						}
					}
					l := newLock(s, "lease", "a")
					given, arrive := 0, make(chan struct{})
					l.Intercept(fakelock.Only(op, func(ctx context.Context, _ fakelock.Operation, send func() error) error {
						given++
						return fakelock.Detach(ctx, func() error {
							<-arrive
							return send()
						})
					}))
					a := newReplica(t, l).start()
					elapse(15*time.Second + 5*time.Second + time.Millisecond) // two time-outs, of which the first has it read again at once
					if given < 2 {
						t.Fatalf("tried %d times", given)
					}
					l.Intercept(nil)
					if reading {
						l.Intercept(fakelock.Only(fakelock.Get, func(_ context.Context, _ fakelock.Operation, send func() error) error {
							l.Intercept(nil)
							err := send()
							a.stop()
							return err
						}))
						<-a.result
					} else {
						a.end()
					}
					close(arrive)
					synctest.Wait()
					if holder := s.Holder("lease"); holder != "" {
						t.Errorf("held by %q", holder)
					}
					if a.led() != 0 {
						t.Error("the work was begun")
					}
				})
			})
		}
	}
}

// A rejected acquisition is not in doubt.
func TestStopAfterARejectedAcquisitionWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		if _, err := s.Put("lease", fakelock.Object{}); err != nil {
			t.Fatal(err)
		}
		l := newLock(s, "lease", "a")
		l.Intercept(fakelock.Only(fakelock.Update, func(context.Context, fakelock.Operation, func() error) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lease", fakelock.ErrBroken)
		}))
		a := newReplica(t, l).start()
		elapse(time.Minute)
		before, began := l.Requests(), time.Now()
		a.end()
		if after := l.Requests(); after[fakelock.Update] != before[fakelock.Update] || time.Since(began) != 0 {
			t.Errorf("requests %v, before %v, for %s", after, before, time.Since(began))
		}
	})
}
