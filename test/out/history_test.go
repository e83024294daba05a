package out

import (
	"cmp"
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// keep fills a history until the test, or what it returns, ends.
func keep(t *testing.T, h *history.History, config *rest.Config) func() {
	t.Helper()
	o, end := observe(t, config, observer.Options{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- h.Run(ctx, o) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		end()
	}
}

// What was stored before, what is stored now, and what was stored while nobody ran is in the history,
// after the apiserver has removed it too. A follower gets it once.
func TestAHistoryIsFilledByAWatch(t *testing.T) {
	cluster := emptied(t)
	events := eventsOf(cluster)
	write(t, events, "before", 20, 1)
	h, err := history.New(history.Options{MaxBytes: history.MinMaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	end := keep(t, h, cluster.Config())
	await.Until(t, "the list", func() bool { return h.Status().ResourceVersion != "" && h.Status().Connected })
	wantHistory(t, h, stored(t, cluster))

	follower, err := h.Follow("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	written := write(t, events, "watched", 50, 3)
	followed, cursor := followAll(t, follower, written)
	end()
	while := write(t, events, "while", 20, 1)
	end = keep(t, h, cluster.Config())
	defer end()
	resumed, err := h.Follow(cursor, "")
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	again, _ := followAll(t, resumed, while)
	wantCount(t, "versions of the follower that resumes", len(again), len(while))
	all := union(union(stored(t, cluster), while), union(toSet(followed), toSet(again)))
	if err := events.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	before := h.Status().ResourceVersion
	await.Until(t, "the deletions", func() bool { return h.Status().ResourceVersion != before })
	wantHistory(t, h, all)
}

// stored returns the ids of what the apiserver has of Events of Pods. It stores others of its own.
func stored(t *testing.T, cluster *testenv.ControlPlane) map[string]bool {
	t.Helper()
	list, err := eventsOf(cluster).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for i := range list.Items {
		if list.Items[i].InvolvedObject.Kind == "Pod" {
			ids[idOf(&list.Items[i])] = true
		}
	}
	return ids
}

func toSet(ids []string) map[string]bool {
	set := make(map[string]bool)
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// followAll reads until all of some versions have come, each once.
func followAll(t *testing.T, f *history.Follower, ids map[string]bool) (got []string, cursor string) {
	t.Helper()
	missing := len(ids)
	await.Until(t, "all versions have come", func() bool {
		versions, to, err := f.Read(t.Context(), 100)
		if err != nil {
			t.Fatalf("%d are missing: %v", missing, err)
		}
		for _, v := range versions {
			if slices.Contains(got, v.ID()) {
				t.Errorf("%s comes twice", v.ID())
			}
			if got = append(got, v.ID()); ids[v.ID()] {
				missing--
			}
		}
		cursor = cmp.Or(to, cursor)
		return missing == 0
	})
	return got, cursor
}

func wantHistory(t *testing.T, h *history.History, ids map[string]bool) {
	t.Helper()
	r, err := h.List(t.Context(), history.Query{AllVersions: true, Limit: history.MaxLimit, Namespaces: []string{namespace}, Object: history.Object{Kind: "Pod"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Versions {
		delete(ids, v.ID())
	}
	if len(ids) > 0 {
		t.Errorf("%d of %d versions are missing: %v", len(ids), len(r.Versions), ids)
	}
}
