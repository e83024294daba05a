package history

import (
	"fmt"
	"testing"
)

// Of namespaces that were removed long ago it is known that what is older than the oldest of the others
// may be missing.
func TestFewNamespacesAreRemembered(t *testing.T) {
	s := newStore()
	const namespaces = 2 * maxRemoved
	for i := range int64(namespaces) {
		s.add([]*block{{owner: fmt.Sprint("namespace-", i), first: i, end: i + 1, until: 1000 + i, rows: 1}})
	}
	for s.evict(1) > 0 {
	}
	if len(s.removed) != maxRemoved || s.bytes != 0 || s.versions != 0 || len(s.owners) != 0 || s.lost != namespaces {
		t.Errorf("%d removed, %d bytes, %d versions, %d owners, lost before %d", len(s.removed), s.bytes, s.versions, len(s.owners), s.lost)
	}
	floor := int64(1000 + namespaces - maxRemoved - 1)
	for i, want := range map[int64]int64{0: floor, namespaces - 1: 1000 + namespaces - 1} {
		if got := s.knownSince([]string{fmt.Sprint("namespace-", i)}); got != want {
			t.Errorf("namespace %d is known since %d, want %d", i, got, want)
		}
	}
	if all, none := s.knownSince(nil), s.knownSince([]string{}); all != 1000+namespaces-1 || none != floor {
		t.Errorf("all since %d, none since %d", all, none)
	}
}

// The namespace that has most, and more than its share, is the one that gives way.
func TestWhichBlockIsRemoved(t *testing.T) {
	of := func(owner string, bytes int) *block { return &block{owner: owner, data: make([]byte, bytes), rows: 1} }
	for name, test := range map[string]struct {
		blocks []*block
		want   int
	}{
		"none":                  {nil, -1},
		"all share":             {[]*block{of("", 9000), of("", 9000)}, 0},
		"one within its share":  {[]*block{of("", 1000), of("a", 3000)}, 0},
		"one above its share":   {[]*block{of("", 1000), of("a", 3000), of("a", 3000)}, 1},
		"two above their share": {[]*block{of("", 1000), of("a", 4000), of("b", 5000)}, 2},
	} {
		s := newStore()
		s.add(test.blocks)
		if got := s.evictable(10_000); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
