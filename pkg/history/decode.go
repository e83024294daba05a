package history

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
)

// view is a block whose frames are decoded as they are needed. It belongs to one goroutine, and its
// memory is used again after release.
type view struct {
	c     *codec
	b     *block
	plain [frames][]byte
	// decoded: the columns of a frame are valid.
	decoded [frames]bool

	// Of objects.
	namespaces, kinds, objectNamespaces, apiVersions column
	objectNames                                      column
	names                                            []byte
	objectUIDs                                       map[int]string // those that are no UUIDs

	// Of rows.
	seqs     []int64
	listed   []bool
	rvs      []uint64
	observed []int64 // microseconds
	counts   []counts
	times    []times
	texts    [rowTexts]column
	order    []int32 // the rows by sequence number
	places   []int32 // of the run: the row of each sequence number, and 1, or 0

	// Of texts.
	forms                         []byte
	suffixes                      []uint64 // of Events
	nameIndex                     []int    // of Events, in eventNames
	eventNames                    column
	messages, labels, annotations column
	eventUIDs                     map[int]string
}

// counts are the fields of a row that are numbers.
type counts struct {
	count, series int32
	form          byte // of seriesForm
}

// maxPooled bounds the memory that a view keeps for the next block, in bytes.
const maxPooled = 1 << 20

var views = sync.Pool{New: func() any { return new(view) }}

// view returns a view of a block, which must be released.
func (c *codec) view(b *block) *view {
	v := views.Get().(*view)
	v.c, v.b, v.decoded = c, b, [frames]bool{}
	c.decoded.Inc()
	return v
}

func (v *view) release() {
	v.b = nil
	if cap(v.plain[objectsFrame])+cap(v.plain[rowsFrame])+cap(v.plain[textsFrame])+cap(v.names) <= maxPooled {
		views.Put(v)
	}
}

// decode decodes a frame, once.
func (v *view) decode(frame int) error {
	if v.decoded[frame] {
		return nil
	}
	plain, err := v.c.decoder.DecodeAll(v.b.frame(frame), v.plain[frame][:0])
	if err != nil {
		return err
	}
	v.plain[frame] = plain
	r := &reader{b: plain}
	switch frame {
	case objectsFrame:
		v.decodeObjects(r)
	case rowsFrame:
		v.decodeRows(r)
	case textsFrame:
		v.decodeTexts(r)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	v.decoded[frame] = r.err == nil
	return r.err
}

func (v *view) decodeObjects(r *reader) {
	n := len(v.b.names)
	for _, c := range []*column{&v.namespaces, &v.kinds, &v.objectNamespaces, &v.apiVersions} {
		r.column(c, n)
	}
	v.decodeNames(r, n)
	v.objectUIDs = r.oddUIDs(n)
}

// decodeNames decodes the names of objects, each of which begins as the one before.
func (v *view) decodeNames(r *reader, n int) {
	shared := make([]uint64, n)
	for i := range shared {
		shared[i] = r.uvarint()
	}
	lengths := make([]uint64, n)
	for i := range lengths {
		lengths[i] = r.uvarint()
	}
	c := &v.objectNames
	c.values, c.ends, v.names = c.values[:0], c.ends[:0], v.names[:0]
	begin := uint64(0)
	for i := range n {
		end := uint64(len(v.names))
		rest := r.bytes(lengths[i])
		if shared[i] > end-begin || shared[i] > maxText || r.err != nil {
			r.fail()
			return
		}
		v.names = append(append(v.names, v.names[begin:begin+shared[i]]...), rest...)
		c.values, c.ends = append(c.values, uint32(i)), append(c.ends, uint32(len(v.names)))
		begin = end
	}
	c.data = v.names
}

func (r *reader) oddUIDs(limit int) map[int]string {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	uids := make(map[int]string)
	for range n {
		i := r.uvarint()
		uid := r.bytes(r.uvarint())
		if i >= uint64(limit) || r.err != nil {
			r.fail()
			return nil
		}
		uids[int(i)] = string(uid)
	}
	return uids
}

func (v *view) decodeRows(r *reader) {
	n := v.b.rows
	if v.decodeOrder(r, n); r.err != nil {
		return
	}
	v.rvs, v.observed = slices.Grow(v.rvs[:0], n)[:n], slices.Grow(v.observed[:0], n)[:n]
	rv, observed := v.b.firstRV, v.b.from
	for _, i := range v.order {
		rv += uint64(r.varint())
		v.rvs[i] = rv
	}
	for _, i := range v.order {
		observed += r.varint()
		v.observed[i] = observed
	}
	v.counts, v.times = v.counts[:0], v.times[:0]
	for range n {
		c := counts{count: int32(r.varint()), form: byte(r.uvarint())}
		if c.form != noSeries {
			c.series = int32(r.varint())
		}
		v.counts = append(v.counts, c)
	}
	for i := range v.counts {
		v.times = append(v.times, r.times(v.observed[i], v.counts[i].form == seriesWithTime))
	}
	for i := range v.texts {
		r.column(&v.texts[i], n)
	}
}

// decodeOrder decodes the sequence numbers, and sorts the rows by them: each is in the run, so it has a
// place in a table.
func (v *view) decodeOrder(r *reader, n int) {
	first := r.varint()
	v.seqs, v.listed, v.order = v.seqs[:0], v.listed[:0], v.order[:0]
	length := int(v.b.end - v.b.first)
	v.places = slices.Grow(v.places[:0], length)[:length]
	clear(v.places)
	for i := range n {
		position := r.varint()
		seq := first + position>>1
		if seq < v.b.first || seq >= v.b.end || v.places[seq-v.b.first] != 0 {
			r.fail()
			return
		}
		v.places[seq-v.b.first] = int32(i + 1)
		v.seqs, v.listed = append(v.seqs, seq), append(v.listed, position&1 == 1)
	}
	for _, place := range v.places {
		if place > 0 {
			v.order = append(v.order, place-1)
		}
	}
}

// times reads what times.appendTo has encoded.
func (r *reader) times(observed int64, series bool) times {
	t := times{series: noTime}
	t.last = r.time(observed)
	last := or(t.last, observed)
	t.first = r.time(last)
	first := or(t.first, last)
	t.created = r.time(first)
	t.event = r.time(or(t.created, first))
	if series {
		t.series = r.time(observed)
	}
	return t
}

func (v *view) decodeTexts(r *reader) {
	n := len(v.b.events)
	v.forms = r.bytes(uint64(n))
	v.suffixes, v.nameIndex = v.suffixes[:0], v.nameIndex[:0]
	names := 0
	for _, form := range v.forms {
		suffix := uint64(0)
		switch form {
		case nameIsTime:
			suffix = uint64(r.varint())
		case nameIsHash:
			if b := r.bytes(8); b != nil {
				suffix = binary.BigEndian.Uint64(b)
			}
		}
		v.suffixes, v.nameIndex = append(v.suffixes, suffix), append(v.nameIndex, names)
		if form == nameIsText {
			names++
		}
	}
	r.column(&v.eventNames, names)
	for _, c := range []*column{&v.messages, &v.labels, &v.annotations} {
		r.column(c, v.b.rows)
	}
	v.eventUIDs = r.oddUIDs(n)
}

func (v *view) objectUID(object int) string {
	if uid, ok := v.objectUIDs[object]; ok {
		return uid
	}
	return v.b.uids[object].text()
}

func (v *view) text(of, row int) string { return string(v.texts[of].at(row)) }

// reporter is reporterOf.
func (v *view) reporter(row int) []byte {
	if controller := v.texts[columnController].at(row); len(controller) > 0 {
		return controller
	}
	return v.texts[columnComponent].at(row)
}

// version returns the version of a row. All frames must be decoded.
func (v *view) version(object, event, row int) (observer.Version, error) {
	counts, times := &v.counts[row], &v.times[row]
	name := string(v.objectNames.at(object))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: string(v.namespaces.at(object)), UID: types.UID(v.b.events[event].text()),
			ResourceVersion: formatRV(v.rvs[row]), CreationTimestamp: metav1.Time{Time: timeOf(times.created)},
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: string(v.kinds.at(object)), Namespace: string(v.objectNamespaces.at(object)), Name: name, UID: types.UID(v.objectUID(object)),
			APIVersion: string(v.apiVersions.at(object)), FieldPath: v.text(columnFieldPath, row),
		},
		Reason: v.text(columnReason, row), Type: v.text(columnType, row), Action: v.text(columnAction, row),
		Source:              corev1.EventSource{Component: v.text(columnComponent, row), Host: v.text(columnHost, row)},
		ReportingController: v.text(columnController, row), ReportingInstance: v.text(columnInstance, row),
		Count:          counts.count,
		FirstTimestamp: metav1.Time{Time: timeOf(times.first)}, LastTimestamp: metav1.Time{Time: timeOf(times.last)}, EventTime: metav1.MicroTime{Time: timeOf(times.event)},
	}
	e.Message = restored(string(v.messages.at(row)), name, string(e.InvolvedObject.UID))
	if uid, ok := v.eventUIDs[event]; ok {
		e.UID = types.UID(uid)
	}
	if counts.form != noSeries {
		e.Series = &corev1.EventSeries{Count: counts.series, LastObservedTime: metav1.MicroTime{Time: timeOf(times.series)}}
	}
	related := corev1.ObjectReference{
		Kind: v.text(columnRelatedKind, row), Namespace: v.text(columnRelatedNamespace, row), Name: v.text(columnRelatedName, row),
		UID: types.UID(v.text(columnRelatedUID, row)), APIVersion: v.text(columnRelatedAPIVersion, row), FieldPath: v.text(columnRelatedFieldPath, row),
	}
	if related != noReference {
		e.Related = &related
	}
	e.Name = v.eventName(event, name)
	var err error
	if e.Labels, err = mapOfText(v.labels.at(row)); err == nil {
		e.Annotations, err = mapOfText(v.annotations.at(row))
	}
	return observer.Version{Event: e, Observed: time.UnixMicro(v.observed[row])}, err
}
