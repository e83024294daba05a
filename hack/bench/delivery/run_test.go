package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// killed is a side that notes when it is killed.
type killed struct {
	began time.Time
	at    []time.Duration
	err   error
}

func (k *killed) usage() (usage, error) { return usage{}, nil }
func (k *killed) end()                  {}

func (k *killed) kill(context.Context) error {
	k.at = append(k.at, time.Since(k.began))
	return k.err
}

func TestKillsAreSpreadOverTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &killed{began: time.Now()}
		r := run{plan: plan{over: time.Minute}, kills: 3}
		if err := r.killAll(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 50 * time.Second} {
			if len(k.at) != 3 || k.at[i] != want {
				t.Errorf("killed at %v", k.at)
			}
		}
		k.err = errors.New("it is gone")
		if err := r.killAll(t.Context(), k); !errors.Is(err, k.err) || len(k.at) != 4 {
			t.Errorf("%v after %d kills", err, len(k.at))
		}
	})
}

func TestLagsTellWhenAReceiverHasCaughtUp(t *testing.T) {
	began := time.Now()
	l := &lags{samples: map[string][]sample{}}
	for i, lag := range []int{0, 1, 60, 120, 90, 1, 50} {
		l.add("a", sample{began.Add(time.Duration(i) * time.Second), time.Duration(lag) * time.Second})
	}
	if got := l.longest("a"); got != 2*time.Minute || l.longest("b") != 0 {
		t.Errorf("the longest is %s", got)
	}
	if after, ok := l.caughtUp("a", began.Add(2*time.Second)); !ok || after != 3*time.Second {
		t.Errorf("caught up after %s, %v", after, ok)
	}
	if after, ok := l.caughtUp("a", began.Add(6*time.Second)); ok {
		t.Errorf("caught up after %s, with a lag of 50 s", after)
	}
}

func TestConfigurations(t *testing.T) {
	config, err := v1alpha1.Load([]byte(eventdConfig([]*destination{{name: "a", address: "127.0.0.1:1"}, {name: "b", address: "127.0.0.1:2"}})))
	if err != nil || len(config.Receivers) != 2 || config.Receivers[1].OTLP.Endpoint != "http://127.0.0.1:2/v1/logs" {
		t.Errorf("%+v, %v", config, err)
	}
	with, without := collectorConfig(k8sEvents, true, "http://a"), collectorConfig(k8sObjects, false, "http://a")
	if !strings.Contains(with, "batch: {}") || !strings.Contains(with, "[k8s_events], processors: [batch]") {
		t.Errorf("with batches:\n%s", with)
	}
	if strings.Contains(without, "batch") || !strings.Contains(without, "[k8sobjects], exporters") {
		t.Errorf("without batches:\n%s", without)
	}
}

// entries are of one run each: eventd, and theirs with and without batches.
func entries(missing int, ours100, batched100 time.Duration, oursP50, unbatchedP50 time.Duration) []entry {
	made := func(k kind, kills int, cpu, p50 time.Duration) entry {
		return entry{contestant{kind: k}, result{tally: tally{delivered: 100, latencies: []time.Duration{p50}}, usage: usage{cpu, 1}}, kills}
	}
	all := []entry{
		made(ours, 0, ours100, oursP50), made(batched, 0, batched100, time.Second), made(unbatched, 0, time.Hour, unbatchedP50),
		made(ours, 10, time.Hour, time.Hour), made(batched, 10, 0, 0),
	}
	all[3].missing = missing
	return all
}

func TestAimsCompareWithTheOthersOfTheRun(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		entries []entry
		want    [3]bool
	}{
		{entries(0, 10*ms, 10*ms, 20*ms, 20*ms), [3]bool{true, true, true}},
		{entries(1, 9*ms, 10*ms, 20*ms, 21*ms), [3]bool{false, true, true}},
		{entries(0, 11*ms, 10*ms, 20*ms, 21*ms), [3]bool{true, false, true}},
		{entries(0, 9*ms, 10*ms, 22*ms, 21*ms), [3]bool{true, true, false}},
	} {
		for i, a := range aims(test.entries) {
			if got := strings.HasSuffix(a.String(), ", reached"); got != test.want[i] {
				t.Errorf("%s, want %v", a, test.want[i])
			}
		}
	}
	if got := aims(entries(0, 10*ms, 20*ms, 0, 0))[1].String(); got != "CPU per 10,000, beside theirs with batches: 1.0 s of at most 2.0 s, reached" {
		t.Errorf("written %q", got)
	}
}

func TestTablesHaveARowForEachRun(t *testing.T) {
	var out strings.Builder
	writeComparison(&out, []entry{{
		contestant{name: "eventd"}, result{tally: tally{stored: 200, delivered: 198, missing: 2, finals: 1, repeated: 7}, usage: usage{99 * time.Millisecond, 50 << 20}, load: "1.00"}, 0,
	}})
	writeWatchCost(&out, []usage{{3 * time.Second, 400 << 20}}, []usage{{2 * time.Second, 300 << 20}})
	writeFaults(&out, []account{{receiver: "away", tally: tally{stored: 9, missing: 4}, givenUp: 3}}, make([]tally, 2), "1.00")
	for _, want := range []string{"99.00 %", "5.0 s", "50 MiB", "NOT REACHED", "+1.0 s", "+100 MiB", "never", "away"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	if a := (account{tally: tally{missing: 4}, givenUp: 3}); a.lost() != 1 {
		t.Errorf("%d are lost", a.lost())
	}
}
