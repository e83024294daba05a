package history

import (
	"testing"
)

// A follower that resumes within the head gets what follows, each version once, and reads nothing before its place.
func TestResumingWithinTheHead(t *testing.T) {
	h := newForTest(t, 64<<20, defaultSizes(64<<20))
	const versions = 20
	for rv := uint64(1); rv <= versions; rv++ {
		h.Add(numbered(2 * rv)) // other objects have the resourceVersions between
	}
	for after := uint64(2); after < 2*versions; after++ {
		f, err := h.Follow(formatRV(after), "")
		if err != nil {
			t.Fatalf("after %d: %v", after, err)
		}
		if want := int64(after / 2); f.next != want {
			t.Errorf("after %d, the follower begins at %d, want %d", after, f.next, want)
		}
		got, cursor, err := f.Read(t.Context(), 2*versions)
		if want := versions - int(after/2); err != nil || len(got) != want || cursor != formatRV(2*versions) {
			t.Fatalf("after %d: %v, %s, %v", after, ids(got), cursor, err)
		}
		for i, v := range got {
			if want := 2 * (after/2 + 1 + uint64(i)); v.Event.ResourceVersion != formatRV(want) {
				t.Errorf("after %d: %s comes, want %d", after, v.Event.ResourceVersion, want)
			}
		}
		f.Close()
	}
}
