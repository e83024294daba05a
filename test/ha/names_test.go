package ha

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"
)

// window is how many names of one series an Event stores: docs/counting.md.
const window = 64

// fate has the outcomes of all names that were posted.
type fate struct {
	retried int // posted more than once
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

// fates compares the answers to the clients with what was stored.
func (l *load) fates() fate {
	posts, _ := l.ledger()
	return fatesOf(posts, l.journal.since(time.Time{}))
}

func fatesOf(posts map[string]post, commits []commit) fate {
	counted, unnamed := countings(posts, commits)
	f := fate{unnamed: unnamed}
	for key, made := range posts {
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
			if times[i]-times[i-1] <= window {
				f.twice = append(f.twice, made)
			} else {
				f.outside = append(f.outside, made)
			}
		}
	}
	return f
}

// countings has for each name how many names of its series were counted before, for
// each write that counts it. unnamed is the number of occurrences of these series that
// were counted without a name.
func countings(posts map[string]post, commits []commit) (counted map[string][]int, unnamed int64) {
	plain := map[series]bool{}
	for _, made := range posts {
		plain[made.of] = true
	}
	counted, before := map[string][]int{}, map[series]int{}
	for _, c := range commits {
		if !plain[c.of] {
			continue
		}
		unnamed += c.added - int64(len(c.keys))
		for _, key := range c.keys {
			counted[key] = append(counted[key], before[c.of])
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

func TestFatesOfNamesAreToldApart(t *testing.T) {
	of := series{"hot", "Tested"}
	posts := map[string]post{}
	answered := func(key string, code int) post {
		posts[key] = post{name: key, of: of, code: code, tries: 1}
		return posts[key]
	}
	answered("written", http.StatusCreated)
	answered("found", http.StatusConflict)
	answered("deferred", http.StatusAccepted)
	want := fate{
		lost:      []post{answered("lost", http.StatusCreated)},
		forgotten: []post{answered("forgotten", http.StatusAccepted)},
		twice:     []post{answered("twice", http.StatusCreated)},
		outside:   []post{answered("outside", http.StatusCreated)},
		unnamed:   3,
	}
	commits := []commit{
		{of: of, added: 5, keys: []string{"written", "found", "deferred", "twice", "outside"}},
		{of: of, added: 1, keys: []string{"twice"}},
		{of: of, added: 3, keys: nil},
		{of: series{"other", "Recorded"}, added: 7, keys: []string{"recorder"}},
	}
	for i := range window {
		key := fmt.Sprint("more-", i)
		answered(key, http.StatusCreated)
		commits = append(commits, commit{of: of, added: 1, keys: []string{key}})
	}
	commits = append(commits, commit{of: of, added: 1, keys: []string{"outside"}})
	if got := fatesOf(posts, commits); !reflect.DeepEqual(got, want) {
		t.Errorf("the fates are\n%+v, want\n%+v", got, want)
	}
}
