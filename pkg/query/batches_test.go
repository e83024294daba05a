package query_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/intaketest"
	"github.com/eventd/eventd/test/seeds"
)

// watcher is an open tail of several, and what it is to get.
type watcher struct {
	writes
	include       string
	namespace     string // "" for all
	sse, gzip     bool
	events, steps int // the first ones
	leave         context.CancelFunc
}

// open opens a tail at a cursor, "" for now.
func (w *watcher) open(t *testing.T, s *scene, all *sync.WaitGroup, user string, after int) {
	ctx, leave := context.WithCancel(t.Context())
	w.ResponseRecorder, w.leave = *httptest.NewRecorder(), leave
	path := root + "tail?watch=true&include=" + w.include
	if w.namespace != "" {
		path += "&namespace=" + w.namespace
	}
	if after > 0 {
		path += "&resourceVersion=" + strconv.Itoa(after)
	}
	req := intaketest.NewRequest(ctx, t, http.MethodGet, path, nil)
	req.Header.Set("Authorization", "Bearer "+user)
	if w.sse {
		req.Header.Set("Accept", "text/event-stream")
	}
	if w.gzip {
		req.Header.Set("Accept-Encoding", "br, gzip")
	}
	all.Go(func() { s.ServeHTTP(w, req) })
	synctest.Wait()
}

// read returns the messages of the Events and the steps that it has got.
func (w *watcher) read(t *testing.T) (events, steps []string) {
	t.Helper()
	body := bytes.Join(w.since(0), nil)
	if w.gzip {
		reader, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		// It has left, and so there may be no end.
		if body, err = io.ReadAll(reader); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("gzip ends with %v", err)
		}
	}
	last, marked := uint64(0), uint64(0) // the version of the last Event, and the cursor of the last bookmark
	for line := range strings.SplitSeq(string(body), "\n") {
		text, data := strings.CutPrefix(line, "data: ")
		switch isJSON := strings.HasPrefix(text, "{"); {
		case isJSON && data != w.sse, !isJSON && !w.sse && line != "":
			t.Fatalf("a tail with server-sent events (%t) gets the line %q", w.sse, line)
		case !isJSON:
			continue
		}
		var f struct {
			Type   string
			Object v1alpha1.TailItem
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		switch cursor, _ := strconv.ParseUint(f.Object.ResourceVersion, 10, 64); {
		case f.Type == "BOOKMARK" && strings.Contains(w.include, "events"):
			if cursor < last || cursor < marked {
				t.Errorf("a bookmark has the cursor %d after %d and the version %d", cursor, marked, last)
			}
			marked = cursor
		case f.Object.Event != nil:
			last, _ = strconv.ParseUint(f.Object.Event.ResourceVersion, 10, 64)
			if cursor >= last || last <= marked {
				t.Errorf("the version %d has the cursor %d, and follows a bookmark at %d", last, cursor, marked)
			}
			events = append(events, f.Object.Event.Message)
		case f.Object.Step != nil:
			steps = append(steps, f.Object.Step.Message)
		}
	}
	return events, steps
}

// Tails that ask for the same share what they are sent, whenever and wherever they have begun. Each gets everything
// once, in order, as if it were alone.
func TestTailsThatShareGetEverythingOnce(t *testing.T) {
	for seed := range seeds.Of(3) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			s := newScene(t)
			var open sync.WaitGroup
			var all []*watcher
			counts := map[string]int{}
			for range 300 {
				switch what := rng.IntN(20); {
				case what == 0 && len(all) < 20:
					w := &watcher{include: []string{"events", "steps", "events,steps"}[rng.IntN(3)], sse: rng.IntN(4) == 0, gzip: rng.IntN(2) == 0}
					w.namespace = []string{"", "", "shop", "club"}[rng.IntN(4)]
					w.events, w.steps = counts["events"], counts["steps"]
					after := 0
					if w.events > 0 && rng.IntN(2) == 0 {
						after = 1 + rng.IntN(w.events)
						w.events = after // the version of a message is its number and one
					}
					w.open(t, s, &open, fmt.Sprint("user-", len(all)%5), after)
					all = append(all, w)
				case what == 1: // a storm
					for range 100 {
						s.occursNext("events", counts)
						s.occursNext("steps", counts)
					}
				case what == 2: // each has a bookmark, though nothing happens
					time.Sleep(5 * time.Second)
				case what < 12:
					s.occursNext([]string{"events", "steps"}[rng.IntN(2)], counts)
				default:
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			for i, w := range all {
				w.leave()
				synctest.Wait()
				events, steps := w.read(t)
				if w.namespace == "club" { // where nothing happens
					w.events, w.steps = counts["events"], counts["steps"]
				}
				if want := numbers(w.events, counts["events"]); strings.Contains(w.include, "events") && !slices.Equal(events, want) {
					t.Errorf("seed %d: tail %d of %+v gets the Events\n%v, want\n%v", seed, i, w.include, events, want)
				}
				if want := numbers(w.steps, counts["steps"]); strings.Contains(w.include, "steps") && !slices.Equal(steps, want) {
					t.Errorf("seed %d: tail %d of %+v gets the steps\n%v, want\n%v", seed, i, w.include, steps, want)
				}
			}
			open.Wait()
		})
	}
}

// A storm is sealed before tails have their next turn, so the one that makes a batch decodes more than the batch takes.
func TestTailsThatShareGetWhatWasSealedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var open sync.WaitGroup
		all := make([]*watcher, 3)
		counts := map[string]int{}
		for i := range all {
			all[i] = &watcher{include: "events"}
			all[i].open(t, s, &open, fmt.Sprint("user-", i), 0)
		}
		s.occursNext("events", counts)
		time.Sleep(time.Second + time.Millisecond) // they have met, and no turn begins now
		for range 3000 {
			s.occursNext("events", counts)
			synctest.Wait() // until it is sealed
		}
		if n := int(s.history.Status().Versions); n != counts["events"] {
			t.Fatalf("%d of %d versions are kept", n, counts["events"])
		}
		time.Sleep(time.Second)
		for i, w := range all {
			w.leave()
			synctest.Wait()
			if events, _ := w.read(t); !slices.Equal(events, numbers(0, counts["events"])) {
				t.Errorf("tail %d gets %d of %d Events", i, len(events), counts["events"])
			}
		}
		open.Wait()
	})
}

// occursNext has the next Event or step occur, whose message is its number.
func (s *scene) occursNext(what string, counts map[string]int) {
	occurs[what](s, strconv.Itoa(counts[what]))
	counts[what]++
}

func numbers(begin, end int) (out []string) {
	for n := begin; n < end; n++ {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
