package history

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/seeds"
)

// tail is a follower, and what it is to get.
type tail struct {
	f *Follower
	// at is the index in model.all of the next version; -1 until the first list of the epoch is
	// complete.
	at     int
	cursor string
	epoch  int64
}

// start is the index of what follows a cursor.
func (m *model) start(cursor string) int {
	at, _ := parsePosition(cursor)
	for i, r := range m.all {
		if int64(i) >= m.h.completeSeq && (r.listed && m.listing && int64(i) >= m.h.listSeq || !r.listed && r.rv > at.rv) {
			return i
		}
	}
	return len(m.all)
}

func (m *model) follow(t *testing.T, after string) *tail {
	t.Helper()
	f, err := m.h.Follow(after, "")
	if err != nil {
		t.Fatalf("after %q: %v", after, err)
	}
	tail := &tail{f: f, at: -1, epoch: m.epoch, cursor: after}
	switch {
	case m.h.beginning:
	case after == "":
		tail.at, tail.cursor = len(m.all), m.h.reached.String()
	default:
		tail.at = m.start(after)
	}
	return tail
}

// read has a follower read, if it has something to read.
func (m *model) read(t *testing.T, tail *tail) (expired bool) {
	t.Helper()
	switch {
	case tail.epoch == m.epoch && tail.at < 0 && !m.h.beginning: // it begins where the list has ended
		tail.at = int(m.h.firstSeq)
		tail.cursor = position{m.epoch, m.h.first}.String()
	case tail.epoch == m.epoch && tail.at < 0:
		return false
	}
	if tail.epoch == m.epoch && tail.at == len(m.all) {
		return false
	}
	versions, cursor, err := tail.f.Read(t.Context(), 1+m.rng.IntN(30))
	if err != nil {
		if !errors.Is(err, ErrExpired) {
			t.Fatal(err)
		}
		return true
	}
	want := m.all[tail.at:min(tail.at+len(versions), len(m.all))]
	if !slices.Equal(ids(versions), idsOfRows(want)) {
		t.Fatalf("from %d of %d on, a follower at %s gets\n%v, want\n%v", tail.at, len(m.all), tail.cursor, ids(versions), idsOfRows(want))
	}
	if before, _ := parsePosition(tail.cursor); tail.cursor != "" {
		if after, err := parsePosition(cursor); err != nil || after.before(before) {
			t.Fatalf("the cursor %s comes after %s (%v)", cursor, tail.cursor, err)
		}
	}
	tail.at += len(versions)
	tail.cursor = cursor
	return false
}

func TestFollowersGetEveryVersionInOrder(t *testing.T) {
	met := 0
	for seed := range seeds.Of(20) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed, 64<<20)
			m.step()
			tails := []*tail{m.follow(t, ""), m.follow(t, ""), m.follow(t, "")}
			resumed, expired := 0, 0
			for range 200 {
				m.step()
				if m.rng.IntN(2) == 0 {
					waitSealed(m.h)
				}
				tail := tails[m.rng.IntN(len(tails))]
				if m.read(t, tail) {
					if tail.epoch == m.epoch {
						t.Fatalf("seed %d: a place was lost, but nothing was removed", seed)
					}
					expired++
					*tail = *m.follow(t, "")
				}
				if other := tails[m.rng.IntN(len(tails))]; m.rng.IntN(4) == 0 && m.meet(t, tail, other) {
					met++
				}
				if m.rng.IntN(10) == 0 && tail.at >= 0 && tail.epoch == m.epoch && !m.h.beginning { // a disconnect
					tail.f.Close()
					cursor := tail.cursor
					at, _ := parsePosition(cursor)
					if _, err := m.h.Follow(cursor, ""); errors.Is(err, ErrExpired) != (at.rv < m.h.complete) {
						t.Fatalf("seed %d: after %s, of which all since %d is there: %v", seed, cursor, m.h.complete, err)
					} else if err != nil {
						cursor = ""
					}
					resumed++
					*tail = *m.follow(t, cursor)
				}
			}
			waitSealed(m.h)
			if resumed == 0 || seed > 5 && len(m.h.store.blocks) == 0 {
				t.Errorf("seed %d: %d resumed, %d expired", seed, resumed, expired)
			}
		})
	}
	if met < 10 {
		t.Errorf("%d followers have met", met)
	}
}

// Whose place was removed is told so; nobody else is.
func TestASlowFollowerLosesItsPlace(t *testing.T) {
	for seed := range seeds.Of(6) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed, 60_000)
			m.step()
			prompt, slow := m.follow(t, ""), m.follow(t, "")
			lost := 0
			for range 400 {
				m.step()
				waitSealed(m.h)
				for prompt.at < len(m.all) && (prompt.at >= 0 || !m.h.beginning) || prompt.epoch != m.epoch {
					if m.read(t, prompt) {
						if prompt.epoch == m.epoch {
							t.Fatalf("seed %d: a prompt follower has lost its place", seed)
						}
						prompt = m.follow(t, "")
					}
				}
				if m.rng.IntN(20) == 0 && m.read(t, slow) {
					if lost++; slow.epoch == m.epoch && m.h.store.lost == 0 {
						t.Fatalf("seed %d: nothing was removed", seed)
					}
					if _, _, err := slow.f.Read(t.Context(), 1); !errors.Is(err, ErrExpired) {
						t.Fatalf("seed %d: then %v", seed, err)
					}
					slow = m.follow(t, "")
				}
			}
			if lost == 0 {
				t.Errorf("seed %d: no place was lost", seed)
			}
		})
	}
}

// Wherever a follower begins, it gets what follows, or is told that it is not there.
func TestFollowingFromEveryVersion(t *testing.T) {
	h := newForTest(t, 100_000, smallSizes)
	const versions = 3000
	for rv := uint64(1); rv <= versions; rv++ {
		h.Add(numbered(rv))
		waitSealed(h)
	}
	expired := 0
	for rv := range uint64(versions) {
		f, err := h.Follow(formatRV(rv), "")
		if err != nil {
			if expired++; !errors.Is(err, ErrExpired) || expired != int(rv)+1 {
				t.Fatalf("after %d: %v", rv, err)
			}
			continue
		}
		got, cursor, err := f.Read(t.Context(), 1)
		if err != nil || len(got) != 1 || got[0].Event.ResourceVersion != formatRV(rv+1) || cursor != formatRV(rv+1) {
			t.Fatalf("after %d: %v, %s, %v", rv, ids(got), cursor, err)
		}
		f.Close()
	}
	if kept := h.Status().Versions; expired == 0 || int64(versions-expired) > kept || int64(versions-expired) < kept/3 {
		t.Errorf("of %d versions, %d can be followed", kept, versions-expired)
	}
}

func numbered(rv uint64) observer.Version {
	return observer.Version{Observed: time.UnixMicro(int64(rv)), Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: fmt.Sprint("n", rv%7), Name: fmt.Sprint("e", rv%100), UID: types.UID(fmt.Sprint("u", rv%100)), ResourceVersion: formatRV(rv)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint("o", rv%10)}, Message: strconv.FormatUint(rv, 10),
	}}
}

// Readers of all kinds, beside one who adds.
func TestReadersAndAWriterAtOnce(t *testing.T) {
	const versions = 2000
	h := newForTest(t, 64<<20, smallSizes)
	h.Add(numbered(1))
	var readers sync.WaitGroup
	for i := range 6 {
		readers.Go(func() {
			after := "1"
			f, err := h.Follow(after, "")
			for next := uint64(2); err == nil && next <= versions; {
				got, reached, failed := f.Read(t.Context(), 50*(i+1))
				if err = failed; err != nil {
					break
				}
				if reached == "" {
					runtime.Gosched() // the writer adds more
					continue
				}
				after = reached
				for _, v := range got {
					if v.Event.ResourceVersion != formatRV(next) || v.Event.Message != formatRV(next) {
						t.Errorf("%s comes, want %d", v.Event.ResourceVersion, next)
						return
					}
					next++
				}
				if i%2 == 0 { // a disconnect
					f.Close()
					f, err = h.Follow(after, "")
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				r, err := h.List(t.Context(), Query{Object: Object{Name: "o3"}, AllVersions: true, Limit: 10})
				for i, v := range r.Versions {
					if i > 0 && v.Event.Message != formatRV(mustParse(r.Versions[i-1])+10) {
						t.Errorf("%s follows %s", v.ID(), r.Versions[i-1].ID())
					}
				}
				if h.Status(); err != nil {
					t.Error(err)
					return
				}
				r.Release()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for rv := uint64(2); rv <= versions; rv++ {
		h.Add(numbered(rv))
	}
	close(done)
	readers.Wait()
	if s := h.Status(); s.Versions != versions || s.ResourceVersion != formatRV(versions) {
		t.Errorf("%+v", s)
	}
}

func mustParse(v observer.Version) uint64 {
	rv, _ := strconv.ParseUint(v.Event.ResourceVersion, 10, 64)
	return rv
}

func TestAFollowerThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newForTest(t, 64<<20, smallSizes)
		h.Add(numbered(10))
		ahead, err := h.Follow("12", "")
		never, err2 := h.Follow("1000", "")
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for rv := uint64(11); rv <= 13; rv++ {
			if got, cursor, err := ahead.Read(t.Context(), 10); err != nil || len(got) != 0 || cursor != "" {
				t.Errorf("before %d: %v, %s, %v", rv, ids(got), cursor, err)
			}
			time.Sleep(time.Second)
			h.Add(numbered(rv))
		}
		if got, cursor, err := ahead.Read(t.Context(), 10); err != nil || len(got) != 1 || got[0].Event.ResourceVersion != "13" || cursor != "13" {
			t.Errorf("%v, %s, %v", ids(got), cursor, err)
		}
		time.Sleep(aheadTimeout - 4*time.Second)
		if _, _, err := never.Read(t.Context(), 10); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		for range 2 {
			if _, _, err := never.Read(t.Context(), 10); !errors.Is(err, ErrExpired) {
				t.Error(err)
			}
		}
	})
}

func TestReadNeverWaitsForMore(t *testing.T) {
	h := newForTest(t, 64<<20, smallSizes)
	f, err := h.Follow("", "") // before anything was added
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	nothing := func(when string) {
		t.Helper()
		if got, cursor, err := f.Read(t.Context(), 1); len(got) != 0 || cursor != "" || err != nil || !f.UpToDate() {
			t.Errorf("%s: %v, %q, %v; up to date: %v", when, ids(got), cursor, err, f.UpToDate())
		}
	}
	nothing("before the first list")
	h.Add(numbered(1))
	if got, cursor, err := f.Read(t.Context(), 1); len(got) != 1 || cursor != "1" || err != nil {
		t.Errorf("%v, %q, %v", ids(got), cursor, err)
	}
	nothing("at the end")
	// Deletions move the point that is reached.
	h.addBatch(observer.Batch{Cursor: observer.Cursor{ResourceVersion: "5"}})
	if got, cursor, err := f.Read(t.Context(), 1); len(got) != 0 || cursor != "5" || err != nil {
		t.Errorf("%v, %q, %v", ids(got), cursor, err)
	}
	nothing("after a deletion")
}

func TestAResourceVersionThatNoHistoryHasReturned(t *testing.T) {
	h := newForTest(t, 64<<20, smallSizes)
	for _, wrong := range []string{"x", "-1", "01", "1.", "1.0", "1.x", "18446744073709551616", "1.2.3"} {
		if _, err := h.Follow(wrong, ""); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Whoever follows can tell that there is more to read: many versions are no reason to fall behind.
func TestAFollowerKnowsWhenItIsUpToDate(t *testing.T) {
	h := newForTest(t, 64<<20, defaultSizes(64<<20))
	f, err := h.Follow("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for rv := range uint64(101) {
		h.Add(numbered(1 + rv))
	}
	for _, want := range []int{32, 32, 32, 5} {
		versions, _, err := f.Read(t.Context(), 32)
		if len(versions) != want || err != nil || f.UpToDate() != (want == 5) {
			t.Errorf("%d versions, want %d; up to date: %v, %v", len(versions), want, f.UpToDate(), err)
		}
	}
}
