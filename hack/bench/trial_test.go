package main

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
)

// agreeable answers every create with what was to be created, in the encoding in
// which it came.
func agreeable(t *testing.T) *rest.Config {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		io.Copy(w, r.Body)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func TestEverySideWritesAWholeLoad(t *testing.T) {
	const occurrences = 60
	for name, side := range map[string]side{"eventd": byEventd, "client-go": byClientGo, "bare client": byBareClient} {
		t.Run(name, func(t *testing.T) {
			e, err := side(t.Context(), agreeable(t), spread([]string{"a", "b"}, occurrences, 0))
			if err != nil || e.written != occurrences || e.occurrences != occurrences {
				t.Fatalf("%+v, %v", e, err)
			}
			if e.share() != 1 || e.rate() <= 0 || e.each() <= 0 {
				t.Errorf("its share is %v, its rate %v, its CPU %v", e.share(), e.rate(), e.each())
			}
		})
	}
}

func TestBareClientCreatesWhatEventdWould(t *testing.T) {
	l := spread([]string{"a", "b"}, 20, 0)
	events, err := eventsOf(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range events {
		names[e.Namespace+"/"+e.Name] = true
		if e.Count != 1 || e.Reason != "Benched" || len(e.Annotations) == 0 {
			t.Errorf("it creates %+v", e)
		}
	}
	if len(names) != len(l.objects) {
		t.Errorf("%d names of %d Events", len(names), len(l.objects))
	}
}

func TestTrafficIsCountedWhereItLeavesTheProcess(t *testing.T) {
	c, err := connect(t.Context(), agreeable(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	events, err := eventsOf(t.Context(), spread([]string{"a", "a", "b"}, 30, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := createAll(t.Context(), c, events, bareWays); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().RESTClient().Delete().Resource("events").Do(t.Context()).Error(); err == nil {
		t.Fatal("the server agrees with everything")
	}
	if got := c.traffic; got.writes() != 31 || got.createdIn("a") != 20 || got.createdOutside("a") != 10 || got.answers[400] != 1 {
		t.Errorf("counted %+v", got)
	}
	if err := c.traffic.waitCreated(t.Context(), 30); err != nil {
		t.Error(err)
	}
	given := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(given) })
	if err := c.traffic.waitCreated(ctx, 31); !errors.Is(err, given) {
		t.Errorf("the wait for one that never comes ends with %v", err)
	}
}

func TestFiguresAreSummedUpByTheirMedianAndExtremes(t *testing.T) {
	for want, f := range map[string]figures{
		"":                 {},
		"0.50":             {0.5},
		"0.20":             {0.2, 0.2001},
		"3.00 (1.00–9.00)": {9, 1, 3},
		"4.00 (1.00–9.00)": {9, 5, 1, 3},
	} {
		if got := f.write(ratio); got != want {
			t.Errorf("%v is written %q, want %q", []float64(f), got, want)
		}
	}
	if got := (figures{6, 10}).over(figures{3, 20}); got[0] != 2 || got[1] != 0.5 {
		t.Errorf("divided turn by turn it is %v", got)
	}
}

func TestAimsAreReachedOrNot(t *testing.T) {
	for _, test := range []struct {
		aim           *aim
		eventd, other figures
		want          string
	}{
		{nil, figures{1}, nil, ""},
		{ofOther(0.95), figures{95, 10, 100}, figures{100, 100, 100}, "reached"},
		{ofOther(0.95), figures{94, 94, 100}, figures{100, 100, 100}, "NOT REACHED"},
		{exactly(1, percent), figures{1, 1}, nil, "reached"},
		{exactly(1, percent), figures{1, 0.9999}, nil, "NOT REACHED"},
		{exactly(1000, number), figures{1001}, nil, "NOT REACHED"},
		{atLeast(0.9, percent), figures{1, 0.9}, nil, "reached"},
		{atLeast(0.9, percent), figures{1, 0.89}, nil, "NOT REACHED"},
		{atMost(25, number), figures{25, 3}, nil, "reached"},
		{atMost(25, number), figures{3, 26}, nil, "NOT REACHED"},
		{atMostOfOther(1.1), figures{11, 99, 1}, figures{10, 10, 10}, "reached"},
		{atMostOfOther(1.1), figures{12, 99, 1}, figures{10, 10, 10}, "NOT REACHED"},
		{below(0.01, percent), figures{0.009, 0.5, 0}, nil, "reached"},
		{below(0.01, percent), figures{0.01, 0.5, 0}, nil, "NOT REACHED"},
	} {
		if got := (outcome{aim: test.aim, eventd: test.eventd, other: test.other}).verdict(); got != test.want {
			t.Errorf("%v beside %v is %q, want %q", test.eventd, test.other, got, test.want)
		}
	}
}

func TestOnlyTrialsWithAChosenRowAreRun(t *testing.T) {
	trials := []trial{{works: []string{"first", "second"}}, {works: []string{"third"}}}
	for only, want := range map[string][2]bool{"": {true, true}, "second": {true, false}, "ir": {true, true}, "none": {false, false}} {
		if got := [2]bool{trials[0].has(only), trials[1].has(only)}; got != want {
			t.Errorf("%q chooses %v, want %v", only, got, want)
		}
	}
	if rows := matching([]outcome{{work: "first"}, {work: "second"}}, "sec"); len(rows) != 1 || rows[0].work != "second" {
		t.Errorf("chosen is %+v", rows)
	}
	if outcomes, err := try(t.Context(), againstAnAPIServer(), "there is none"); outcomes != nil || err != nil {
		t.Errorf("%v, %v", outcomes, err)
	}
}

func TestOutcomesAreWrittenWithBothSides(t *testing.T) {
	var out strings.Builder
	writeOutcomes(&out, []outcome{
		{work: "one", unit: perSecond, eventd: figures{90, 110, 100}, beside: "client-go", other: figures{50, 50, 50}, aim: ofOther(0.95)},
		{work: "another", unit: percent, eventd: figures{0.999}, aim: exactly(1, percent)},
	})
	for _, want := range []string{"100/s (90/s–110/s)", "client-go  50/s", "2.00 (1.80–2.20)", "≥ 95 % of it  reached", "99.9 %", "NOT REACHED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestFlowCountsWhatIsWrittenInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{way: make([]time.Time, 4)}
		step := func(place int, outcome occurrence.Outcome, took time.Duration) {
			s.begin(place)
			time.Sleep(took)
			s.written(place, occurrence.Settlement{Outcome: outcome})
		}
		step(0, occurrence.Created, time.Second/2) // before its time
		s.begin(3)                                 // and not written in its time
		if s.turn(time.Now()) != nil {
			t.Error("a window has ended that had not begun")
		}
		for range 197 {
			step(1, occurrence.Created, 10*time.Millisecond)
		}
		step(2, occurrence.Merged, 30*time.Millisecond)
		step(2, occurrence.Dropped, time.Minute)
		f := s.turn(time.Now())
		s.written(3, occurrence.Settlement{Outcome: occurrence.Created}) // after its time
		if want := 198 / f.took.Seconds(); f.rate() != want {
			t.Errorf("the rate is %v, want %v", f.rate(), want)
		}
		// Of 199 the one that waits is above it.
		if f.p99() != 0.03 {
			t.Errorf("p99 is %v s", f.p99())
		}
	})
}

// flowsThrough returns the flows through a pipeline whose writes take a time.
func flowsThrough(t *testing.T, takes time.Duration, windows ...time.Duration) ([]*flow, error) {
	p, err := startPipeline(&keeper{takes: takes}, unlimited())
	if err != nil {
		t.Fatal(err)
	}
	flows, err := flowThrough(t.Context(), p, []string{"a", "b"}, windows...)
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return flows, err
}

func TestFlowOfNothingIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := flowsThrough(t, 2*flowWindow, 0); err == nil {
			t.Error("a flow of nothing is no error")
		}
	})
}

func TestFlowGoesThroughAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const later = flowWarmUp + flowWindow + time.Second
		flows, err := flowsThrough(t, 100*time.Millisecond, flowWarmUp, later)
		if err != nil || len(flows) != 2 || flows[1].since.Sub(flows[0].since) != later-flowWarmUp {
			t.Fatalf("the windows are %+v, %v", flows, err)
		}
		for _, f := range flows {
			if f.took != flowWindow || f.p99() < 0.1 || f.p99() > 0.2 {
				t.Errorf("in %v, p99 is %v s", f.took, f.p99())
			}
			if best := outstanding / 0.1; f.rate() > best || f.rate() < best/2 {
				t.Errorf("%v were written per second, at most %v could be", f.rate(), best)
			}
		}
	})
}

func TestWindowsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traffic := newTraffic()
		traffic.count("/api/v1/namespaces/a/events", 201)
		time.AfterFunc(time.Second, func() {
			for range 3 {
				traffic.count("/api/v1/namespaces/a/events", 201)
			}
			traffic.count("/api/v1/namespaces/a/events", 429)
		})
		first, err := traffic.during(t.Context(), 2*time.Second)
		if err != nil || first.rate() != 1.5 || first.refusals() != 0.25 {
			t.Errorf("%+v, %v", first, err)
		}
		sum := first.and(window{4 * time.Second, map[int]int{201: 3, 0: 1}})
		if sum.rate() != 1 || sum.refusals() != 0.125 {
			t.Errorf("the sum is %+v", sum)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := traffic.during(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a window outlives its context: %v", err)
		}
	})
}

func TestRecordersReportEveryOccurrence(t *testing.T) {
	const occurrences = 60
	for _, r := range reportings() {
		t.Run(r.name, func(t *testing.T) {
			posts, err := r.report(t.Context(), agreeable(t), spread([]string{"a", "b"}, occurrences, 100*time.Millisecond))
			if err != nil || len(posts) != occurrences {
				t.Fatalf("%d POSTs for %d occurrences, %v", len(posts), occurrences, err)
			}
			if got := (effort{posts: posts}); got.p50() != posts[29].Seconds() || got.p99() != posts[59].Seconds() {
				t.Errorf("p50 is %v, p99 %v of %v", got.p50(), got.p99(), posts)
			}
		})
	}
}

func TestRepeatsArePostedInEverySeries(t *testing.T) {
	names, series := map[string]bool{}, map[string]int{}
	for _, e := range repeatsOf(spread([]string{"a", "b"}, deferredSeries, 0)) {
		names[e.Namespace+"/"+e.Name] = true
		series[e.Namespace+"/"+e.InvolvedObject.Name]++
	}
	if len(names) != deferredSeries*deferredRounds || len(series) != deferredSeries || series["a/web-0"] != deferredRounds {
		t.Errorf("%d names, %d series, %d of one", len(names), len(series), series["a/web-0"])
	}
}

func TestWarmUpIsLeftOut(t *testing.T) {
	var order []int
	side := func(number int) func(int) (effort, error) {
		return func(turn int) (effort, error) {
			order = append(order, 10*turn+number)
			return effort{written: turn}, nil
		}
	}
	efforts, err := warmedUp(2, side(1), side(2))
	if err != nil || !slices.Equal(order, []int{1, 2, 11, 12, 21, 22}) {
		t.Errorf("the sides took turns %v, %v", order, err)
	}
	for i, own := range efforts {
		if len(own) != 2 || own[0].written != 1 || own[1].written != 2 {
			t.Errorf("the efforts of side %d are %+v", i, own)
		}
	}
}

func TestRepeatsAreSentInAFixedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		cpu := func() (time.Duration, error) { return time.Duration(sent.Load()) * 20 * time.Millisecond, nil }
		e, err := exertPaced(t.Context(), 300, cpu, func(int) error {
			sent.Add(1)
			return nil
		})
		if err != nil || e.written != 300 || e.cpu != 6*time.Second || e.each() != 0.02 {
			t.Errorf("%+v, %v", e, err)
		}
		if over := e.took - pacedOver; over < -100*time.Millisecond || over > 100*time.Millisecond {
			t.Errorf("they took %v", e.took)
		}
	})
}
