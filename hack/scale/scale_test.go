package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// planned is a cluster without an eventd: nothing is sent.
func planned(t *testing.T, s situation, nodes int) (*cluster, []occurrence) {
	t.Helper()
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(nodes, a, &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: a.pem()}})
	if err != nil {
		t.Fatal(err)
	}
	occurrences, err := s.of(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return c, occurrences
}

// The rates are those of which docs/sizing.md has the sources. What reporters drop by themselves is in them.
func TestSituationsHaveTheRatesOfTheirSources(t *testing.T) {
	const nodes = 600
	for _, test := range []struct {
		situation situation
		perNode   float64 // in the window
		reporters int     // at least
	}{
		{situations[0], 1.35, 100},
		{situations[1], 31./3/3 + 2./3*3*2, 2 * nodes / 3},
		{situations[2], 3.85, nodes / 2},
	} {
		c, occurrences := planned(t, test.situation, nodes)
		if got := float64(len(occurrences)) / nodes; got < 0.9*test.perNode || got > 1.1*test.perNode {
			t.Errorf("%s: %.2f occurrences for each node, want %.2f", test.situation.name, got, test.perNode)
		}
		if len(c.kubelets) < test.reporters {
			t.Errorf("%s: %d kubelets report", test.situation.name, len(c.kubelets))
		}
		for i := range occurrences {
			if o := &occurrences[i]; o.at >= window || i > 0 && o.at < occurrences[i-1].at || o.about.Namespace == "" && o.about.Kind != "Node" {
				t.Fatalf("%s: %+v after %v", test.situation.name, o, occurrences[max(0, i-1)].at)
			}
		}
	}
}

// A kubelet of whom every Pod is in a namespace of its own needs the most.
func TestNeededReviewsAreOneForEachRightInItsTime(t *testing.T) {
	var a, b reporter
	about := func(namespace, uid string) corev1.ObjectReference {
		return corev1.ObjectReference{Namespace: namespace, UID: types.UID(uid)}
	}
	occurrences := []occurrence{
		{at: 0, by: &a, about: about("x", "1"), reason: "R"},
		{at: time.Second, by: &a, about: about("x", "1"), reason: "R"},
		{at: reviewTTL, by: &a, about: about("x", "1"), reason: "R"}, // patch again
		{at: 0, by: &b, about: about("x", "1"), reason: "R"},
		{at: 0, by: &a, about: about("y", "2"), reason: "R"},
	}
	if got := neededReviews(occurrences); got != 2+1+2+2 {
		t.Errorf("%v reviews, want 7", got)
	}
}

// sink answers as it is told.
type sink func(*corev1.Event) error

func (s sink) Create(e *corev1.Event) (*corev1.Event, error)          { return e, s(e) }
func (s sink) Update(e *corev1.Event) (*corev1.Event, error)          { return e, s(e) }
func (s sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return e, s(e) }

// A reporter sends one Event after the other, retries one without an answer, and drops what its queue has no place
// for.
func TestReporterDoesWhatABroadcasterDoes(t *testing.T) {
	for name, test := range map[string]struct {
		err                               error
		attempts                          int
		answered, refused, lost, overflow int64
	}{
		"answered": {nil, 1 + maxQueuedEvents, 1 + maxQueuedEvents, 0, 0, 10},
		"refused":  {apierrors.NewTooManyRequests("later", 1), 1 + maxQueuedEvents, 0, 1 + maxQueuedEvents, 0, 10},
		"lost":     {errors.New("connection refused"), (1 + maxQueuedEvents) * maxTriesPerEvent, 0, 0, 1 + maxQueuedEvents, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, attempts := make(chan struct{}), 0
				r := &reporter{tally: &tally{}, sink: sink(func(*corev1.Event) error {
					<-begin
					attempts++ // one at a time
					return test.err
				})}
				var sending sync.WaitGroup
				r.report(t.Context(), &sending, &corev1.Event{})
				synctest.Wait() // the first is being sent
				for range maxQueuedEvents + 10 {
					r.report(t.Context(), &sending, &corev1.Event{})
				}
				close(begin)
				sending.Wait()
				y := r.tally
				if attempts != test.attempts || y.answered.Load() != test.answered || y.refused.Load() != test.refused ||
					y.lost.Load() != test.lost || y.overflowed.Load() != test.overflow {
					t.Errorf("%d attempts, answered %d, refused %d, lost %d, overflowed %d", attempts,
						y.answered.Load(), y.refused.Load(), y.lost.Load(), y.overflowed.Load())
				}
			})
		})
	}
}

// The end of a run does not wait for retries.
func TestReporterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &reporter{tally: &tally{}, sink: sink(func(*corev1.Event) error { return errors.New("connection refused") })}
		var sending sync.WaitGroup
		for range 10 {
			r.report(ctx, &sending, &corev1.Event{})
		}
		synctest.Wait()
		began := time.Now()
		cancel()
		sending.Wait()
		if time.Since(began) != 0 {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

// rows are all, with round numbers.
func rows() (r results) {
	for _, s := range situations {
		for _, nodes := range sizes {
			for _, limits := range []string{byDefault, raised} {
				r = r.with(row{
					Situation: s.name, Nodes: nodes, Limits: limits, Reported: float64(nodes), Stretch: float64(nodes) / 5000, Offered: 2000,
					Answered: 0.999, CPU: 100e-6, PeakBytes: 100 << 20, Writes: 0.5, NeededReviews: 1234,
				})
			}
		}
	}
	return r
}

func TestTableAndPlotHaveEveryRow(t *testing.T) {
	r := rows()
	table, plot := string(r.table()), string(r.plot())
	for _, line := range []string{
		"| rollout | 1,000 | 1,000 | 0.10 | 100 | 500 | 1,234 | 99 % |",
		"| registry down | 15,000 | 15,000 | 1.50 (1998/s) | 100 | 7,500 | 1,234 | 99 % |",
	} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("the table has no line %s:\n%s", line, table)
		}
	}
	if lines := strings.Count(table, "\n"); lines != 2+len(situations)*len(sizes) {
		t.Errorf("%d lines", lines)
	}
	// One point for each row in each panel, hollow if it is projected; and the legend.
	filled, hollow := strings.Count(plot, `fill="#`), strings.Count(plot, `fill="none" stroke="#0072b2"/>`)
	if points := strings.Count(plot, `r="4"`); points != len(panels)*9+len(situations)+1 || hollow != len(panels) || filled == 0 {
		t.Errorf("%d points, %d of the first situation projected", points, hollow)
	}
	if err := json.Unmarshal([]byte(`"`+strings.NewReplacer(`"`, `\"`, "\n", `\n`).Replace(plot)+`"`), new(string)); err != nil {
		t.Error(err)
	}
}

func TestTableIsReplacedInItsPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	page := "before\n" + tableBegins + "old\n" + tableEnds + "after\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(file, []byte("new\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != strings.Replace(page, "old", "new", 1) {
		t.Errorf("%s, %v", got, err)
	}
	if err := replaceTable(os.DevNull, nil); err == nil {
		t.Error("a page without a place has no error")
	}
}

// A row that is measured again replaces that of its name, also in the file.
func TestRowsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	none, err := load(file)
	if err != nil || len(none) != 0 {
		t.Fatalf("%v, %v", none, err)
	}
	r := rows()
	again := r[0]
	again.Answered = 0.5
	if err := r.with(again).save(file); err != nil {
		t.Fatal(err)
	}
	got, err := load(file)
	if err != nil || len(got) != len(r) {
		t.Fatalf("%d rows of %d, %v", len(got), len(r), err)
	}
	if kept, ok := got.of(again.name()); !ok || kept.Answered != 0.5 || !kept.projected() {
		t.Errorf("kept %+v", kept)
	}
}
