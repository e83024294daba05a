package ha

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// window is how many names of one series an Event stores: docs/counting.md.
const window = 64

// fate has the outcomes of all names that were posted.
type fate struct {
	names    int
	answered map[int]int // by the code of the acknowledgement
	retried  int         // posted more than once
	// lost were acknowledged as written, and are not stored.
	lost []post
	// forgotten were acknowledged as deferred, and are not stored.
	forgotten []post
	// twice were counted a second time while their names were stored, outside when they
	// no longer were.
	twice, outside []post
	// unnamed occurrences were added to counts without a name.
	unnamed int64
}

// counting is one write that counts a name.
type counting struct {
	series int // number of names of its series that were counted before
	writer string
	at     time.Time
}

// fates compares the answers to the clients with what was stored.
func (l *load) fates() fate {
	posts, _ := l.ledger()
	return fatesOf(posts, l.journal.since(time.Time{}))
}

func fatesOf(posts map[string]post, commits []commit) fate {
	counted, unnamed := countings(posts, commits)
	f := fate{names: len(posts), answered: map[int]int{}, unnamed: unnamed}
	for key, made := range posts {
		f.answered[made.code]++
		if made.tries > 1 {
			f.retried++
		}
		times := counted[key]
		switch {
		case len(times) == 0 && made.code == http.StatusAccepted:
			f.forgotten = append(f.forgotten, made)
		case len(times) == 0 && made.code != 0:
			f.lost = append(f.lost, made)
		}
		for i := 1; i < len(times); i++ {
			if times[i].series-times[i-1].series <= window {
				f.twice = append(f.twice, made)
			} else {
				f.outside = append(f.outside, made)
			}
		}
	}
	return f
}

// countings are the writes that count each name, and the number of occurrences of these
// series that were counted without a name.
func countings(posts map[string]post, commits []commit) (counted map[string][]counting, unnamed int64) {
	plain := map[series]bool{}
	for _, made := range posts {
		plain[made.of] = true
	}
	counted, before := map[string][]counting{}, map[series]int{}
	for _, c := range commits {
		if !plain[c.of] {
			continue
		}
		unnamed += c.added - int64(len(c.keys))
		for _, key := range c.keys {
			counted[key] = append(counted[key], counting{before[c.of], c.writer, c.at})
		}
		before[c.of] += len(c.keys)
	}
	return counted, unnamed
}

// wantKept checks that all that was acknowledged as written is stored, and that
// nothing was counted twice within the window.
func (f fate) wantKept(t *testing.T) {
	t.Helper()
	if len(f.lost) > 0 {
		t.Errorf("%d occurrences are not stored that were acknowledged as written, such as %+v", len(f.lost), f.lost[0])
	}
	if len(f.twice) > 0 {
		t.Errorf("%d occurrences are counted twice, such as %+v", len(f.twice), f.twice[0])
	}
	if f.unnamed != 0 {
		t.Errorf("%d occurrences are counted under no name", f.unnamed)
	}
}

func (f fate) String() string {
	return fmt.Sprintf("%d names, answered %v, %d retried; lost %d, forgotten %d, twice %d, outside the window %d",
		f.names, f.answered, f.retried, len(f.lost), len(f.forgotten), len(f.twice), len(f.outside))
}

func TestFatesOfNamesAreToldApart(t *testing.T) {
	of := series{"hot", "Tested"}
	posts := map[string]post{}
	told := func(key string, code int) { posts[key] = post{name: key, of: of, code: code, tries: 1} }
	told("written", http.StatusCreated)
	told("lost", http.StatusCreated)
	told("found", http.StatusConflict)
	told("deferred", http.StatusAccepted)
	told("forgotten", http.StatusAccepted)
	told("twice", http.StatusCreated)
	told("outside", http.StatusCreated)
	commits := []commit{
		{of: of, added: 5, keys: []string{"written", "found", "deferred", "twice", "outside"}},
		{of: of, added: 1, keys: []string{"twice"}},
		{of: of, added: 3, keys: nil},
		{of: series{"other", "Recorded"}, added: 7, keys: []string{"recorder"}},
	}
	for i := range window {
		key := fmt.Sprint("more-", i)
		told(key, http.StatusCreated)
		commits = append(commits, commit{of: of, added: 1, keys: []string{key}})
	}
	commits = append(commits, commit{of: of, added: 1, keys: []string{"outside"}})
	f := fatesOf(posts, commits)
	only := func(what string, got []post, want string) {
		t.Helper()
		if len(got) != 1 || got[0].name != want {
			t.Errorf("%s are %+v, want %q", what, got, want)
		}
	}
	only("lost", f.lost, "lost")
	only("forgotten", f.forgotten, "forgotten")
	only("counted twice", f.twice, "twice")
	only("counted twice outside the window", f.outside, "outside")
	if f.unnamed != 3 || f.names != window+7 || f.answered[http.StatusCreated] != window+4 {
		t.Errorf("seen is %s, and %d under no name", f, f.unnamed)
	}
}
