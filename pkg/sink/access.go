package sink

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// writeAccess is how the Events of a namespace can be written through one API.
type writeAccess struct {
	counter.Access
	// update: they are changed by a Get and an Update, since patches are forbidden.
	update bool
}

// verb returns the verb for a kind of request.
func (m writeAccess) verb(k counter.Kind) apiclient.Verb {
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

// accessCache knows the namespaces in which rights are missing or annotations are removed.
// Its owner guards it.
type accessCache struct {
	updates bool // the client can read JSON and write it back
	known   *simplelru.LRU[accessKey, accessRecord]
}

type accessKey struct {
	namespace string
	api       occurrence.API
}

// accessRecord is what is known of one namespace and API.
type accessRecord struct {
	unmarked bool
	// denied is the time until which each right is not used again. It is zero if the right
	// was not denied when it was last used.
	denied [rights]time.Time
}

// right is a right that the apiserver may deny.
type right uint8

const (
	rightPatch right = iota
	rightGet
	rightUpdate
	rights
)

// String is the verb of the right in the apiserver's rules.
func (r right) String() string { return [rights]string{"patch", "get", "update"}[r] }

// rightFor returns the right that a verb needs beside that to create.
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

// deniedFor is how long a denied right is not used again.
const deniedFor = 5 * time.Minute

// maxCachedAccess bounds the cache.
const maxCachedAccess = 1024

func newAccessCache(c Client) (*accessCache, error) {
	known, err := simplelru.NewLRU[accessKey, accessRecord](maxCachedAccess, nil)
	_, updates := c.(Updater)
	return &accessCache{updates: updates, known: known}, err
}

// lookup returns how Events can be written now.
func (s *accessCache) lookup(namespace string, api occurrence.API, now time.Time) writeAccess {
	a, _ := s.known.Get(accessKey{namespace, api})
	patch := a.mayUse(rightPatch, now)
	update := !patch && s.updates && a.mayUse(rightGet, now) && a.mayUse(rightUpdate, now)
	return writeAccess{counter.Access{Change: patch || update, Unmarked: a.unmarked}, update}
}

func (a *accessRecord) mayUse(r right, now time.Time) bool { return !a.denied[r].After(now) }

// wasDenied reports whether a right was denied when it was last used.
func (s *accessCache) wasDenied(k accessKey, r right) bool {
	a, _ := s.known.Peek(k)
	return !a.denied[r].IsZero()
}

// deny records that a right was denied.
func (s *accessCache) deny(k accessKey, r right, now time.Time) {
	a, _ := s.known.Get(k)
	a.denied[r] = now.Add(deniedFor)
	s.known.Add(k, a)
}

// allow records that a right was used.
func (s *accessCache) allow(k accessKey, r right) {
	if s.wasDenied(k, r) {
		a, _ := s.known.Get(k)
		a.denied[r] = time.Time{}
		s.known.Add(k, a)
	}
}

// mark records whether an Event that was created has our annotations.
func (s *accessCache) mark(k accessKey, marked bool) {
	a, known := s.known.Get(k)
	if known || !marked {
		a.unmarked = !marked
		s.known.Add(k, a)
	}
}

// namespaces returns the number of namespaces where a right was denied through an API.
func (s *accessCache) namespaces(r right, api occurrence.API) (n int) {
	for _, k := range s.known.Keys() {
		if k.api == api && s.wasDenied(k, r) {
			n++
		}
	}
	return n
}

// updateAccess records what an answer says about rights and annotations. It reports whether a
// right is denied that others may replace: then the request is planned again. A denial applies
// to what has a deadline before the given time. The mutex must be held.
func (s *Sink) updateAccess(p *pendingSeries, r *request, a apiclient.Answer, confirmed, now time.Time) (denied bool) {
	k := accessKey{r.Namespace, r.API}
	right, ok := rightFor(a.Verb)
	switch {
	case a.Class == apiclient.ClassOK && a.Verb == apiclient.VerbCreate:
		s.access.mark(k, p.counter.IsMarked(a.Object))
	case a.Class == apiclient.ClassOK && ok:
		s.access.allow(k, right)
		if right == rightUpdate {
			s.access.allow(k, rightGet) // an update begins with it
		}
	case a.Denied && ok && (s.access.wasDenied(k, right) || p.deadlines.first().Before(confirmed)):
		s.access.deny(k, right, now)
		return true
	}
	return false
}

// deniedNamespaces returns the number of namespaces where a right was denied through an API.
func (s *Sink) deniedNamespaces(r right, api occurrence.API) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.access.namespaces(r, api)
}
