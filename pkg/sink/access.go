package sink

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// means is how the Events of a namespace can be written through one API.
type means struct {
	counter.Access
	// update: they are changed by a Get and an Update, since patches are forbidden.
	update bool
}

// verb returns the verb for a kind of request.
func (m means) verb(k counter.Kind) apiclient.Verb {
	switch {
	case k == counter.Create:
		return apiclient.VerbCreate
	case k == counter.Read && m.update:
		return apiclient.VerbGet
	case k == counter.Read:
		return apiclient.VerbRead
	case m.update:
		return apiclient.VerbUpdate
	default:
		return apiclient.VerbPatch
	}
}

// accesses are what is known of namespaces in which we have fewer rights than to
// create and patch, or no annotations. Whoever owns them guards them.
type accesses struct {
	updates bool // the client can read JSON and write it back
	known   *simplelru.LRU[accessKey, access]
}

type accessKey struct {
	namespace string
	api       occurrence.API
}

// access is what is known of one namespace and API.
type access struct {
	unmarked bool
	// denied tells until when each right is not asked for again; the zero time is
	// that of a right that was not denied when it was last used.
	denied [rights]time.Time
}

// right is one that the apiserver may deny.
type right uint8

const (
	rightPatch right = iota
	rightGet
	rightUpdate
	rights
)

// String is the verb of the right in the apiserver's rules.
func (r right) String() string { return [rights]string{"patch", "get", "update"}[r] }

// rightFor is what a request needs beside the right to create.
func rightFor(v apiclient.Verb) (_ right, ok bool) {
	switch v {
	case apiclient.VerbPatch, apiclient.VerbRead:
		return rightPatch, true
	case apiclient.VerbGet:
		return rightGet, true
	case apiclient.VerbUpdate:
		return rightUpdate, true
	default:
		return 0, false
	}
}

// deniedFor is how long a right that was denied is not asked for again.
const deniedFor = 5 * time.Minute

// maxAccesses bounds the namespaces and APIs of which that is known.
const maxAccesses = 1024

func newAccesses(c Client) (*accesses, error) {
	known, err := simplelru.NewLRU[accessKey, access](maxAccesses, nil)
	_, updates := c.(Updater)
	return &accesses{updates: updates, known: known}, err
}

// means returns how Events can be written now.
func (s *accesses) means(namespace string, api occurrence.API, now time.Time) means {
	a, _ := s.known.Get(accessKey{namespace, api})
	patch := a.mayUse(rightPatch, now)
	update := !patch && s.updates && a.mayUse(rightGet, now) && a.mayUse(rightUpdate, now)
	return means{counter.Access{Change: patch || update, Unmarked: a.unmarked}, update}
}

func (a *access) mayUse(r right, now time.Time) bool { return !a.denied[r].After(now) }

// wasDenied tells whether a right was denied when it was last used.
func (s *accesses) wasDenied(k accessKey, r right) bool {
	a, _ := s.known.Peek(k)
	return !a.denied[r].IsZero()
}

// deny takes note that a right was denied.
func (s *accesses) deny(k accessKey, r right, now time.Time) {
	a, _ := s.known.Get(k)
	a.denied[r] = now.Add(deniedFor)
	s.known.Add(k, a)
}

// allow takes note that a right was used.
func (s *accesses) allow(k accessKey, r right) {
	if s.wasDenied(k, r) {
		a, _ := s.known.Get(k)
		a.denied[r] = time.Time{}
		s.known.Add(k, a)
	}
}

// mark takes note whether an Event that was created has our annotations.
func (s *accesses) mark(k accessKey, marked bool) {
	a, known := s.known.Get(k)
	if known || !marked {
		a.unmarked = !marked
		s.known.Add(k, a)
	}
}

// namespaces is in how many of them a right was denied through an API.
func (s *accesses) namespaces(r right, api occurrence.API) (n int) {
	for _, k := range s.known.Keys() {
		if k.api == api && s.wasDenied(k, r) {
			n++
		}
	}
	return n
}

// takeAccess takes from an answer what it says of our rights, and of our
// annotations. It tells whether one is denied that others may stand in for: then
// the write is planned again. A denial that may change is believed about what fell
// due before the given time. The mutex must be held.
func (s *Sink) takeAccess(owed *series, r *request, a apiclient.Answer, believed, now time.Time) (denied bool) {
	k := accessKey{r.Namespace, r.API}
	right, ok := rightFor(a.Verb)
	switch {
	case a.Class == apiclient.ClassOK && a.Verb == apiclient.VerbCreate:
		s.access.mark(k, owed.counter.IsMarked(a.Object))
	case a.Class == apiclient.ClassOK && ok:
		s.access.allow(k, right)
		if right == rightUpdate {
			s.access.allow(k, rightGet) // an update begins with it
		}
	case a.Denied && ok && (s.access.wasDenied(k, right) || owed.deadlines.first().Before(believed)):
		s.access.deny(k, right, now)
		return true
	}
	return false
}

// deniedNamespaces is in how many namespaces a right was denied through an API.
func (s *Sink) deniedNamespaces(r right, api occurrence.API) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.access.namespaces(r, api)
}
