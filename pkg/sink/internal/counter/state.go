package counter

import (
	"encoding/binary"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/sink/internal/wire"
)

// The state of a counter is what it knows of the stored Event while nothing is pending, so that the
// next write is one request. A process keeps many, encoded. A state leaves out what follows from
// the series, and what no later write depends on:
//
//   - the own sequence in the annotation, since every write replaces it;
//   - the total of a client that is the count;
//   - the author, unless it may only create Events; see author.
//
// The next write has the resourceVersion of the state. So with a state that is outdated, or of
// another series, it fails with a conflict, and a read follows. What would settle without a request
// is read first (Draft.Plan).

// AppendState appends the state to b. The Event must be stored, and nothing pending. The state is
// valid in this process only. Bytes behind it are ignored.
func (c *Counter) AppendState(b []byte) []byte {
	o := c.observed
	w := stateWriter{begin: len(b)}
	w.Bytes = append(b, 0, 0)
	w.Bytes = binary.LittleEndian.AppendUint64(w.Bytes, uint64(o.id))
	w.resourceVersion(o.meta.ResourceVersion)
	w.Int(o.count)
	w.time(o.last)
	w.flag(o.message == c.message)
	w.flag(c.mustRead)
	w.flag(c.exclusive)
	if w.flag(c.suffix != 0) {
		w.Int(int64(c.suffix))
	}
	if w.flag(c.nonce != 0) {
		w.Uint(c.nonce)
	}
	if w.flag(c.author.known && c.author.createOnly) {
		w.Uint(c.author.user)
	}
	w.contributors(o, c.instance)
	return w.end()
}

// SetState sets the state of a new Counter of the series.
func (c *Counter) SetState(state []byte) {
	r := newStateReader(state)
	o := &observation{meta: &corev1.Event{}, recalled: true}
	o.id = EventID(binary.LittleEndian.Uint64(r.Raw(8)))
	o.meta.ResourceVersion = r.resourceVersion()
	o.count = r.Int()
	o.last = r.time()
	if r.flag() {
		o.message = c.message
	}
	c.mustRead, c.exclusive = r.flag(), r.flag()
	if r.flag() {
		c.suffix = int(r.Int())
	}
	if r.flag() {
		c.nonce = r.Uint()
	}
	if r.flag() {
		c.author = author{user: r.Uint(), known: true, createOnly: true}
	}
	o.contributors = r.contributors(o.count, c.instance)
	c.observed = o
}

// stateWriter encodes a state. Its flags, of which there are 16 at most, are in the first two bytes.
type stateWriter struct {
	wire.Writer
	begin int
	flags uint16
	next  int // the number of flags
}

// flag writes a flag, and returns it.
func (w *stateWriter) flag(set bool) bool {
	if set {
		w.flags |= 1 << w.next
	}
	w.next++
	return set
}

func (w *stateWriter) end() []byte {
	binary.LittleEndian.PutUint16(w.Bytes[w.begin:], w.flags)
	return w.Bytes
}

// stateReader decodes a state, in the order in which it was written.
type stateReader struct {
	*wire.Reader
	flags uint16
}

func newStateReader(state []byte) *stateReader {
	return &stateReader{Reader: wire.NewReader(state[2:]), flags: binary.LittleEndian.Uint16(state)}
}

func (r *stateReader) flag() bool {
	set := r.flags&1 != 0
	r.flags >>= 1
	return set
}

// resourceVersion writes a resourceVersion, which is usually a number.
func (w *stateWriter) resourceVersion(version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if w.flag(err == nil && strconv.FormatUint(n, 10) == version) {
		w.Uint(n)
	} else {
		w.String(version)
	}
}

func (r *stateReader) resourceVersion() string {
	if r.flag() {
		return strconv.FormatUint(r.Uint(), 10)
	}
	return r.String()
}

// epoch makes times short.
var epoch = time.Now()

// time writes the time of the last occurrence, with the precision that is stored.
func (w *stateWriter) time(last time.Time) {
	n := last.Unix() - epoch.Unix()
	if w.flag(last.Nanosecond() != 0) {
		n = last.UnixMicro() - epoch.UnixMicro()
	}
	w.Bytes = binary.AppendVarint(w.Bytes, n)
}

func (r *stateReader) time() time.Time {
	if isMicro, n := r.flag(), r.varint(); isMicro {
		return time.UnixMicro(n + epoch.UnixMicro())
	} else {
		return time.Unix(n+epoch.Unix(), 0)
	}
}

// varint reads what binary.AppendVarint has written.
func (r *stateReader) varint() int64 {
	n := r.Uint()
	return int64(n>>1) ^ -int64(n&1)
}

// contributors writes what is in the annotation, without the sequence of an instance.
func (w *stateWriter) contributors(o *observation, own Contributor) {
	s := &o.contributors
	w.flag(s.creator == own)
	if w.flag(s.creator != own && s.creator != Contributor{}) {
		w.contributor(s.creator)
	}
	at := index(s.sinks, own)
	w.flag(at >= 0)
	w.contributions(s.sinks, at)
	if w.flag(isOfOneClient(o)) {
		w.contributor(s.clients[0].contributor)
	} else {
		w.contributions(s.clients, -1)
	}
	if w.flag(s.pushedOut != nil) {
		w.Uint(uint64(len(s.pushedOut)))
		for _, c := range s.pushedOut {
			w.contributor(c)
		}
	}
	if w.flag(len(s.unknown) > 0) {
		w.Uint(uint64(len(s.unknown)))
		for _, part := range s.unknown {
			w.String(part)
		}
	}
}

func (r *stateReader) contributors(count int64, own Contributor) (s contributors) {
	if r.flag() {
		s.creator = own
	}
	if r.flag() {
		s.creator = r.contributor()
	}
	isOwn := r.flag()
	s.sinks = r.contributions()
	if isOwn {
		s.sinks = append(s.sinks, contribution{contributor: own})
	}
	if r.flag() {
		s.clients = []contribution{{r.contributor(), uint64(count)}}
	} else {
		s.clients = r.contributions()
	}
	if r.flag() {
		s.pushedOut = make([]Contributor, r.Uint())
		for i := range s.pushedOut {
			s.pushedOut[i] = r.contributor()
		}
	}
	if r.flag() {
		s.unknown = make([]string, r.Uint())
		for i := range s.unknown {
			s.unknown[i] = r.String()
		}
	}
	return s
}

// isOfOneClient reports whether the count is the total of one client, as it usually is of an Event
// whose reporter counts by itself.
func isOfOneClient(o *observation) bool {
	clients := o.contributors.clients
	return len(clients) == 1 && clients[0].value == uint64(o.count)
}

// contributions writes a list without the element at an index, which is negative for none.
func (w *stateWriter) contributions(list []contribution, without int) {
	n := len(list)
	if without >= 0 {
		n--
	}
	if !w.flag(n > 0) {
		return
	}
	w.Uint(uint64(n))
	for i := range list {
		if i != without {
			w.contributor(list[i].contributor)
			w.Uint(list[i].value)
		}
	}
}

func (r *stateReader) contributions() (list []contribution) {
	if r.flag() {
		list = make([]contribution, r.Uint())
		for i := range list {
			list[i] = contribution{r.contributor(), r.Uint()}
		}
	}
	return list
}

// contributor writes a Contributor as the 10 bytes that it encodes.
func (w *stateWriter) contributor(c Contributor) {
	var b [10]byte
	_, _ = contributorEncoding.Decode(b[:], c[:]) // all are encoded so
	w.Raw(b[:])
}

func (r *stateReader) contributor() Contributor { return newContributor([10]byte(r.Raw(10))) }
