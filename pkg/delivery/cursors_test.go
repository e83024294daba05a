package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/observer"
)

func newTestCursors(t *testing.T, client *configMapClient, receivers ...string) *cursors {
	t.Helper()
	m, err := newMetrics(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCursors(newStore(client, DefaultNamespace, DefaultConfigMap), func() bool { return true }, m)
	for _, r := range receivers {
		c.receivers[r] = true
	}
	if err := c.load(quiet(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

func at(epoch int64, rv string) observer.Cursor {
	return observer.Cursor{Epoch: epoch, ResourceVersion: rv}
}

// wantStored checks the cursor of a key.
func wantStored(t *testing.T, m *memoryConfigMap, key string, want observer.Cursor) {
	t.Helper()
	text, _ := m.get(key)
	if e, err := decodeEntry(text); err != nil || e.cursor() != want {
		t.Errorf("%s: stored is %q (%v), want %v", key, text, err, want)
	}
}

func TestOfTwoWritersTheLaterCursorOfEachReceiverIsKept(t *testing.T) {
	m := &memoryConfigMap{}
	client := &configMapClient{of: m}
	a, b := newTestCursors(t, client, "x", "y", "z"), newTestCursors(t, client, "x", "y", "z")
	a.advance("x", at(0, "100"))
	a.advance("y", at(0, "100"))
	a.advance("z", at(1, "5"))
	b.advance("x", at(0, "99"))
	b.advance("y", at(0, "1000"))
	b.advance("z", at(0, "1000"))
	for _, c := range []*cursors{a, b, a} {
		if err := c.write(quiet(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantStored(t, m, "x", at(0, "100"))
	wantStored(t, m, "y", at(0, "1000"))
	wantStored(t, m, "z", at(1, "5"))
}

func TestACursorNeverMovesBack(t *testing.T) {
	c := newTestCursors(t, &configMapClient{of: &memoryConfigMap{}}, "x")
	for _, step := range []struct{ to, want observer.Cursor }{
		{at(0, "9"), at(0, "9")},
		{at(0, "10"), at(0, "10")},
		{at(0, "9"), at(0, "10")},
		{at(0, ""), at(0, "10")},
		{at(0, "abc"), at(0, "10")},
		{at(1, ""), at(1, "")},
		{at(0, "11"), at(1, "")},
		{at(1, "3"), at(1, "3")},
	} {
		if c.advance("x", step.to); c.cursor("x") != step.want {
			t.Errorf("after %v: %v, want %v", step.to, c.cursor("x"), step.want)
		}
	}
}

func TestWhereAReceiverStarts(t *testing.T) {
	m := &memoryConfigMap{}
	for name, e := range map[string]entry{
		"current": {Epoch: 2, ResourceVersion: "7"}, "begun": {Epoch: 2}, "behind": {Epoch: 1, ResourceVersion: "9"},
	} {
		m.set(name, e.encode())
	}
	c := newTestCursors(t, &configMapClient{of: m}, "current", "begun", "behind", "new")
	oldest := observer.Start{Oldest: true, Cursor: at(2, "")}
	for _, test := range []struct {
		receiver v1alpha1.Receiver
		want     observer.Start
		restored bool
	}{
		{named("current"), observer.Start{Cursor: at(2, "7")}, false},
		{named("begun"), oldest, false},
		{named("behind"), oldest, true},
		{named("new"), observer.Start{Cursor: at(2, "")}, false},
		{v1alpha1.Receiver{Name: "new", From: v1alpha1.FromOldest}, oldest, false},
		{v1alpha1.Receiver{Name: "current", From: v1alpha1.FromOldest}, observer.Start{Cursor: at(2, "7")}, false},
	} {
		if got, restored := c.start(&test.receiver); got != test.want || restored != test.restored {
			t.Errorf("%+v: starts at %+v, restored: %t", test.receiver, got, restored)
		}
	}
}

// Somebody has edited the ConfigMap. Only the receiver of a key that is wrong starts anew.
func TestAnUnreadableKeyCostsOnlyItsReceiver(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"not JSON":          "{",
		"another type":      `["1"]`,
		"no version":        `{"epoch":0}`,
		"no number":         `{"resourceVersion":"0x10"}`,
		"negative epoch":    `{"resourceVersion":"10","epoch":-1}`,
		"last epoch":        `{"resourceVersion":"10","epoch":9223372036854775807}`,
		"last epoch, empty": `{"epoch":9223372036854775807}`,
		"year too large":    `{"resourceVersion":"10","updated":"9999-12-31T23:59:59-23:00"}`,
		"far too much":      `{"resourceVersion":"10","other":"` + strings.Repeat("x", maxEntry) + `"}`,
		"only leading zero": `{"resourceVersion":"010"}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := &memoryConfigMap{}
			m.set("bad", text)
			m.set("good", `{"resourceVersion":"10","epoch":0,"updated":"2026-01-01T00:00:00Z","later":"field"}`)
			m.set("foreign", text)
			c := newTestCursors(t, &configMapClient{of: m}, "bad", "good")
			if start, _ := c.start(new(named("bad"))); start != (observer.Start{}) {
				t.Errorf("it starts at %+v", start)
			}
			if start, _ := c.start(new(named("good"))); start.Cursor != at(0, "10") {
				t.Errorf("the other one starts at %+v", start)
			}
			if n := testutil.ToFloat64(c.metrics.unreadable); n != 1 {
				t.Errorf("%v are counted", n)
			}
			c.advance("bad", at(0, "20"))
			if err := c.write(quiet(t)); err != nil {
				t.Fatal(err)
			}
			wantStored(t, m, "bad", at(0, "20"))
			wantStored(t, m, "good", at(0, "10"))
			if got, _ := m.get("foreign"); got != text {
				t.Errorf("the foreign key is %q", got)
			}
		})
	}
}

// A term that finds no ConfigMap says so: what its receivers had not read is not looked for.
func TestAMissingConfigMapIsCounted(t *testing.T) {
	m := &memoryConfigMap{}
	for term, want := range []float64{1, 0} { // the first one creates it
		c := newTestCursors(t, &configMapClient{of: m})
		if got := testutil.ToFloat64(c.metrics.created); got != want {
			t.Errorf("term %d: %v are counted, want %v", term, got, want)
		}
	}
}

// The ConfigMap is removed or changed by others between two writes, or the answer of a write is
// lost.
func TestCursorsAreStoredWhateverOthersDo(t *testing.T) {
	for name, between := range map[string]func(*memoryConfigMap){
		"removed":          func(m *memoryConfigMap) { m.remove() },
		"another key":      func(m *memoryConfigMap) { m.set("foreign", "x") },
		"key made invalid": func(m *memoryConfigMap) { m.set("x", "x") },
		"created anew":     func(m *memoryConfigMap) { m.remove(); m.set("foreign", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			m := &memoryConfigMap{}
			lost := 0
			c := newTestCursors(t, &configMapClient{of: m, after: func(context.Context) error {
				if lost++; lost%3 == 0 {
					return errors.New("no answer")
				}
				return nil
			}}, "x", "y")
			c.advance("y", at(0, "20"))
			for i := range 5 {
				c.advance("x", at(0, fmt.Sprint(10+i)))
				between(m)
				for c.write(quiet(t)) != nil {
				}
			}
			wantStored(t, m, "x", at(0, "14"))
			wantStored(t, m, "y", at(0, "20"))
		})
	}
}

// Another client writes all the time.
func TestConflictsAreBounded(t *testing.T) {
	m := &memoryConfigMap{}
	calls := 0
	c := newTestCursors(t, &configMapClient{of: m, before: func(context.Context) error {
		calls++
		m.set("foreign", "x")
		return nil
	}}, "x")
	c.advance("x", at(0, "10"))
	if err := c.write(quiet(t)); !errors.Is(err, errConflicts) || calls > 1+2*maxConflicts {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// A failed write is counted and repeated, once per interval, however much is delivered.
func TestWritesAreRepeatedUntilTheyAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryConfigMap{}
		fails := 0
		c := newTestCursors(t, &configMapClient{of: m}, "x")
		c.store.client = &configMapClient{of: m, before: func(context.Context) error {
			c.delivered(maxUnwritten)
			if fails++; fails <= 3 {
				return errors.New("503")
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(quiet(t))
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(ctx)
		}()
		c.advance("x", at(0, "10"))
		began := time.Now()
		if !c.awaitWritten(ctx) || time.Since(began) != 3*cursorInterval || testutil.ToFloat64(c.metrics.failed) != 3 {
			t.Errorf("stored after %s", time.Since(began))
		}
		wantStored(t, m, "x", at(0, "10"))
		cancel()
		<-done
	})
}

// What a receiver waits for is stored when the write that has it in it returns, not one that had begun.
func TestACursorThatMovesDuringAWriteIsNotStoredYet(t *testing.T) {
	m := &memoryConfigMap{}
	client := &configMapClient{of: m}
	c := newTestCursors(t, client, "x")
	c.advance("x", at(0, "10"))
	client.before = func(context.Context) error {
		c.advance("x", at(0, "20"))
		return nil
	}
	ended, cancel := context.WithCancel(quiet(t))
	cancel()
	for _, want := range []string{"10", "20"} {
		if c.awaitWritten(ended) {
			t.Errorf("%s is stored before it is written", want)
		}
		if err := c.write(quiet(t)); err != nil {
			t.Fatal(err)
		}
		wantStored(t, m, "x", at(0, want))
	}
	if !c.awaitWritten(quiet(t)) {
		t.Error("it is not stored")
	}
}

// A receiver is configured again while the write is under way that removes its old entry.
func TestAReceiverThatComesBackDuringTheRemovalOfItsEntryKeepsTheNewOne(t *testing.T) {
	m := &memoryConfigMap{}
	m.set("x", entry{ResourceVersion: "10", UnusedSince: time.Now().Add(-2 * unusedTime)}.encode())
	client := &configMapClient{of: m}
	c := newTestCursors(t, client)
	client.before = func(ctx context.Context) error {
		c.setReceivers(ctx, []v1alpha1.Receiver{named("x")})
		c.advance("x", at(0, "20"))
		return nil
	}
	for range 2 {
		if err := c.write(quiet(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantStored(t, m, "x", at(0, "20"))
}

// A lost Lease cancels a write at once: an alert about failures must not count that.
func TestAWriteThatIsCancelledHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(quiet(t))
		client := &configMapClient{of: &memoryConfigMap{}}
		c := newTestCursors(t, client, "x")
		c.advance("x", at(0, "10"))
		<-c.due
		client.before = func(ctx context.Context) error {
			cancel(election.ErrLeaseLost)
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		if c.tryWrite(ctx) || testutil.ToFloat64(c.metrics.failed) != 0 || len(c.due) != 1 || time.Since(began) > 0 {
			t.Errorf("%v failed, due: %d, after %s", testutil.ToFloat64(c.metrics.failed), len(c.due), time.Since(began))
		}
	})
}

// Whatever is stored, it is refused, or is a cursor that is stored as it was.
func FuzzStoredCursor(f *testing.F) {
	for _, text := range []string{
		"", "{}", `{"resourceVersion":"10","epoch":1,"updated":"2026-01-01T00:00:00.5+02:00"}`, `{"epoch":1}`, `{"resourceVersion":"0"}`,
		`{"resourceVersion":"10","unusedSince":"0000-01-01T00:00:00+23:00"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := decodeEntry(text)
		if err != nil {
			return
		}
		again, err := decodeEntry(e.encode())
		if err != nil || again != e {
			t.Errorf("%q is %+v, and then %+v (%v)", text, e, again, err)
		}
		if c := e.cursor(); after(c, c) || c.ResourceVersion != "" && !after(c, observer.Cursor{}) {
			t.Errorf("%q is not in order", text)
		}
	})
}
