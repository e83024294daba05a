package main

import (
	"encoding/json"
	"testing"
)

func TestAPlanHasEachVersionInItsOrder(t *testing.T) {
	for _, p := range []plan{fourThousand, minuteOfBurst, {versions: 1, events: 1}, {versions: 1000, events: 1}, {versions: 50, events: 49}} {
		last := map[int]int{}
		created := 0
		for i, v := range p.order() {
			if last[v.event]++; v.number != last[v.event] {
				t.Fatalf("%s: %+v comes as number %d of its Event", p, v, last[v.event])
			}
			if v.number == 1 {
				if created++; v.event != created {
					t.Fatalf("%s: Event %d is created as number %d", p, v.event, created)
				}
			} else if v.event <= created-patched {
				t.Fatalf("%s: Event %d is patched when there are %d", p, v.event, created)
			}
			if early := created - 1 - i*p.events/p.versions; early > 1 {
				t.Fatalf("%s: %d Events after %d versions", p, created, i)
			}
		}
		if len(p.order()) != p.versions || created != p.events {
			t.Errorf("%s: %d versions of %d Events", p, len(p.order()), created)
		}
	}
}

func TestPatchesSpreadOverTheLatestEvents(t *testing.T) {
	order := fourThousand.order()
	recent := map[int]bool{}
	for _, v := range order[len(order)-2*patched:] {
		if v.number > 1 {
			recent[v.event] = true
		}
	}
	if len(recent) < patched {
		t.Errorf("of the last Events, %d are patched", len(recent))
	}
}

func TestAMessageNamesItsVersion(t *testing.T) {
	for _, v := range []version{{1, 1}, {145_259, 1}, {42, 17}, {0, 3}} {
		if got, ok := parseVersion(v.message()); !ok || got != v {
			t.Errorf("%q is %+v, %v", v.message(), got, ok)
		}
	}
	for _, message := range []string{"", "(", "(1/2", "other (1/2)", version{1, 2}.message() + " (combined)", "Back-off (a/b)"} {
		if v, ok := parseVersion(message); ok {
			t.Errorf("%q is %+v", message, v)
		}
	}
}

func TestMostEventsAreFromKubelets(t *testing.T) {
	from := 0
	for event := range 1000 {
		e := version{event + 1, 1}.object("bench-0")
		if e.Source.Component == "kubelet" && e.Source.Host != "" {
			from++
		}
		if v, ok := parseVersion(e.Message); !ok || v.event != event+1 || e.Name != v.name() || e.Count != 1 {
			t.Fatalf("Event %d is %+v", event+1, e)
		}
	}
	if from != 910 {
		t.Errorf("%d of 1000 are from kubelets", from)
	}
}

func TestAPatchHasItsVersion(t *testing.T) {
	var got struct {
		Count                  int
		Message, LastTimestamp string
	}
	v := version{7, 3}
	if err := json.Unmarshal(v.patch(), &got); err != nil || got.Count != 3 || got.Message != v.message() || got.LastTimestamp == "" {
		t.Errorf("%s is %+v, %v", v.patch(), got, err)
	}
	if v.name() != (version{7, 1}).name() || (version{0, 1}).name() == (version{0, 2}).name() {
		t.Error("versions of an Event have one name, and each probe its own")
	}
}
