package trail

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"strings"
	"time"
	"unsafe"

	"github.com/apache/datasketches-go/frequencies"
)

// counts are what a ranking is about.
type counts struct{ occurrences, writes, saved int64 }

func (c *counts) add(more counts) {
	c.occurrences += more.occurrences
	c.writes += more.writes
	c.saved += more.saved
}

// dimension is what a ranking is by.
type dimension uint8

const (
	byObject dimension = iota
	byReason
	byReporter
	byNamespace // the last one: a board of one namespace does without it
	dimensions
)

// subject is what counts are about. It never changes.
type subject struct {
	namespace, reason, reporter string
	object                      Object
	keys                        [dimensions]int64 // of the sketches
}

const subjectBytes = int64(unsafe.Sizeof(subject{}))

// hash makes the keys of sketches. It is secret and differs in every process: the sketches use a hash
// function that is not, and whoever chooses names could make others collide with them.
type hash struct{ seed maphash.Seed }

func newHash() hash { return hash{maphash.MakeSeed()} }

// subject returns the subject of an Event of an object.
func (h hash) subject(k *key, reason, reporter string) *subject {
	s := &subject{namespace: k.namespace, reason: reason, reporter: reporter, object: k.object}
	type text struct {
		d    dimension
		text string
	}
	type object struct {
		namespace string
		Object
	}
	s.keys = [dimensions]int64{
		byObject:    int64(maphash.Comparable(h.seed, object{k.namespace, k.object})),
		byReason:    int64(maphash.Comparable(h.seed, text{byReason, reason})),
		byReporter:  int64(maphash.Comparable(h.seed, text{byReporter, reporter})),
		byNamespace: int64(maphash.Comparable(h.seed, text{byNamespace, k.namespace})),
	}
	return s
}

// sketch estimates the keys with most occurrences (frequencies.LongsSketch): it has a lower bound for each, and an
// upper one that is higher by an error which is the same for all.
type sketch struct {
	items *frequencies.LongsSketch
	// labels are those of keys in the sketch, and of others while there is space: as many as keys at most.
	labels map[int64]*label
}

// label is what a key of a sketch stands for, and what the sketch does not count.
type label struct {
	subject       *subject
	writes, saved int64
}

// Bytes of a board and a sketch without labels, and of a label with its key and its part of a subject, which others
// share.
const (
	boardBytes  = int64(unsafe.Sizeof(board{})) + 256
	sketchBytes = 512
	labelBytes  = 256
)

// newSketch returns a sketch of at most 3/4 of 2^lgKeys keys.
func newSketch(lgKeys int) *sketch {
	items, err := frequencies.NewLongsSketch(lgKeys, 0)
	if err != nil {
		panic(err) // its sizes are powers of 2
	}
	return &sketch{items: items, labels: make(map[int64]*label)}
}

func (s *sketch) add(of *subject, d dimension, c counts) {
	key := of.keys[d]
	if err := s.items.UpdateMany(key, c.occurrences); err != nil {
		panic(err) // they are not negative
	}
	l := s.labels[key]
	if l == nil {
		if len(s.labels) >= s.items.GetMaximumMapCapacity() {
			if !s.has(key) {
				return
			}
			maps.DeleteFunc(s.labels, func(key int64, _ *label) bool { return !s.has(key) })
		}
		l = &label{subject: of}
		s.labels[key] = l
	}
	l.writes += c.writes
	l.saved += c.saved
}

// has reports whether a key is in the sketch.
func (s *sketch) has(key int64) bool {
	n, err := s.items.GetLowerBound(key)
	return err == nil && n > 0
}

const (
	// slotTime is the time of one set of sketches, and slots is how many there are: the last five minutes, and
	// the current one.
	slotTime = time.Minute
	slots    = 6
	// minNamespaceKeys and maxNamespaceKeys are for the sketches of one namespace: 48 to 768 objects each.
	minNamespaceKeys, maxNamespaceKeys = 6, 10
)

// lgKeys returns the size of sketches of objects, with which a board fits into so many bytes that has so many others,
// of half the size. A sketch has labels for 3/4 of its size.
func lgKeys(bytes, others int64) int {
	return bits.Len64(uint64(max(bytes, 0)/(slots*(2+others)*labelBytes*3/8))) - 1
}

// board ranks what happened in all namespaces, or in one.
type board struct {
	lgKeys int       // of a new sketch of objects; the others have half of its size
	one    bool      // it is that of one namespace
	known  time.Time // all since then is known
	last   time.Time // when something was added
	bytes  int64     // of memory
	slots  [slots]slot
}

// slot has the sketches of a minute, nil if they are empty.
type slot struct {
	began    time.Time
	total    counts
	sketches [dimensions]*sketch
}

func (b *board) add(of *subject, c counts, now time.Time) {
	began := now.Truncate(slotTime)
	at := &b.slots[int(uint64(began.Unix())/uint64(slotTime/time.Second)%slots)]
	if !at.began.Equal(began) {
		b.bytes -= at.bytes()
		*at = slot{began: began}
	}
	before := at.bytes()
	b.last = now
	at.total.add(c)
	for d := range dimensions {
		if d == byNamespace && b.one {
			continue
		}
		if at.sketches[d] == nil {
			lg := b.lgKeys
			if d != byObject {
				lg--
			}
			at.sketches[d] = newSketch(lg)
		}
		at.sketches[d].add(of, d, c)
	}
	b.bytes += at.bytes() - before
}

// bytes returns the memory of the sketches.
func (s *slot) bytes() (bytes int64) {
	for _, k := range s.sketches {
		if k != nil {
			bytes += sketchBytes + int64(len(k.labels))*labelBytes
		}
	}
	return bytes
}

// within calls a function for each slot of which a part is within a time before now.
func (b *board) within(now time.Time, window time.Duration, f func(*slot)) {
	from := now.Add(-window)
	for i := range b.slots {
		if s := &b.slots[i]; !s.began.IsZero() && s.began.Add(slotTime).After(from) && !s.began.After(now) {
			f(s)
		}
	}
}

// text returns what orders items with equal counts.
func (s *subject) text(d dimension) string {
	switch d {
	case byReason:
		return s.reason
	case byReporter:
		return s.reporter
	case byNamespace:
		return s.namespace
	default:
		return strings.Join([]string{s.namespace, s.object.Group, s.object.Kind, s.object.Name, string(s.object.UID)}, "\x00")
	}
}
