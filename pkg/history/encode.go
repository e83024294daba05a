package history

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ownPart is the part of a run from which on a namespace has blocks of its own.
const ownPart = 8

// encode seals a run of one epoch, of which there is at least one row. Each namespace that has an
// eighth of it has blocks of its own. The other rows are divided by namespace too.
func (c *codec) encode(run []row) (blocks []*block) {
	sorted := make([]*row, len(run))
	total := int64(0)
	for i := range run {
		sorted[i] = &run[i]
		total += run[i].bytes
	}
	slices.SortFunc(sorted, compareRows)
	var others []*row
	for rest := sorted; len(rest) > 0; {
		namespace, n, bytes := rest[0].Event.Namespace, 0, int64(0)
		for ; n < len(rest) && rest[n].Event.Namespace == namespace; n++ {
			bytes += rest[n].bytes
		}
		if bytes*ownPart >= total {
			blocks = c.appendBlocks(blocks, run, rest[:n], namespace)
		} else {
			others = append(others, rest[:n]...)
		}
		rest = rest[n:]
	}
	return c.appendBlocks(blocks, run, others, "")
}

// compareRows sorts what is alike together.
func compareRows(a, b *row) int {
	if n := compareObjects(a.Event, b.Event); n != 0 {
		return n
	}
	return cmp.Or(compareEvents(a.Event, b.Event), cmp.Compare(a.seq, b.seq))
}

func compareObjects(a, b *corev1.Event) int {
	if n := strings.Compare(a.Namespace, b.Namespace); n != 0 {
		return n
	}
	x, y := &a.InvolvedObject, &b.InvolvedObject
	return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID),
		strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.APIVersion, y.APIVersion))
}

func compareEvents(a, b *corev1.Event) int {
	return cmp.Or(cmp.Compare(a.UID, b.UID), strings.Compare(a.Name, b.Name))
}

// appendBlocks encodes rows in equal blocks.
func (c *codec) appendBlocks(blocks []*block, run []row, rows []*row, owner string) []*block {
	for n := (len(rows) + c.sizes.blockVersions - 1) / c.sizes.blockVersions; n > 0; n-- {
		part := (len(rows) + n - 1) / n
		b := c.block(rows[:part], owner)
		b.epoch, b.first, b.end = run[0].epoch, run[0].seq, run[len(run)-1].seq+1
		blocks = append(blocks, b)
		rows = rows[part:]
	}
	return blocks
}

// block encodes sorted rows.
func (c *codec) block(rows []*row, owner string) *block {
	b := &block{
		rows: len(rows), owner: strings.Clone(owner), firstRV: rows[0].rv, lastRV: rows[0].rv,
		from: rows[0].Observed.UnixMicro(), until: rows[0].Observed.UnixMicro(),
		firstTime: rows[0].time(), lastTime: rows[0].time(),
		firstNamespace: strings.Clone(rows[0].Event.Namespace), lastNamespace: strings.Clone(rows[len(rows)-1].Event.Namespace),
	}
	facets := make(map[uint32]bool)
	for _, r := range rows {
		b.size += r.bytes
		b.firstRV, b.lastRV = min(b.firstRV, r.rv), max(b.lastRV, r.rv)
		b.from, b.until = min(b.from, r.Observed.UnixMicro()), max(b.until, r.Observed.UnixMicro())
		b.firstTime, b.lastTime = min(b.firstTime, r.time()), max(b.lastTime, r.time())
		if len(facets) <= maxFacets {
			for of, s := range [...]string{r.Event.Namespace, r.Event.Reason, r.Event.Type, reporterOf(r.Event)} {
				facets[c.hash(of, s)] = true
			}
		}
	}
	if len(facets) <= maxFacets {
		b.facets = slices.AppendSeq(make([]uint32, 0, len(facets)), maps.Keys(facets))
		slices.Sort(b.facets)
	}
	var data []byte
	for i, plain := range [frames][]byte{c.objects(b, rows), rowColumns(rows, b), textColumns(rows, b)} {
		data = c.encoder.EncodeAll(plain, data)
		b.ends[i] = uint32(len(data))
	}
	b.data = append(make([]byte, 0, len(data)), data...)
	b.names, b.uids, b.objectEvents = slices.Clip(slices.Clone(b.names)), slices.Clip(slices.Clone(b.uids)), slices.Clip(slices.Clone(b.objectEvents))
	b.events, b.eventRows = slices.Clip(slices.Clone(b.events)), slices.Clip(slices.Clone(b.eventRows))
	return b
}

// objects sets the columns of b that are not compressed, and returns the frame of objects.
func (c *codec) objects(b *block, rows []*row) []byte {
	var namespaces, kinds, objectNamespaces, apiVersions texts
	var shared, lengths, names []byte
	var odd oddUIDs
	last := ""
	for i, r := range rows {
		e := r.Event
		switch {
		case i == 0 || compareObjects(e, rows[i-1].Event) != 0:
			o := &e.InvolvedObject
			key, exact := keyOf(o.UID)
			odd.add(len(b.uids), string(o.UID), exact)
			b.names, b.uids = append(b.names, c.hash(nameOfObject, o.Name)), append(b.uids, key)
			b.objectEvents = append(b.objectEvents, uint16(len(b.events)))
			namespaces.add(e.Namespace)
			kinds.add(o.Kind)
			objectNamespaces.add(o.Namespace)
			apiVersions.add(o.APIVersion)
			n := commonPrefix(last, o.Name)
			shared = binary.AppendUvarint(shared, uint64(n))
			lengths = binary.AppendUvarint(lengths, uint64(len(o.Name)-n))
			names = append(names, o.Name[n:]...)
			last = o.Name
		case compareEvents(e, rows[i-1].Event) == 0:
			continue
		}
		key, _ := keyOf(e.UID)
		b.events, b.eventRows = append(b.events, key), append(b.eventRows, uint16(i))
	}
	b.objectEvents, b.eventRows = append(b.objectEvents, uint16(len(b.events))), append(b.eventRows, uint16(len(rows)))
	var plain []byte
	for _, t := range []*texts{&namespaces, &kinds, &objectNamespaces, &apiVersions} {
		plain = t.appendTo(plain)
	}
	plain = append(append(append(plain, shared...), lengths...), names...)
	return odd.appendTo(plain)
}

func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// oddUIDs encodes the uids that are no UUIDs.
type oddUIDs struct {
	n    uint64
	data []byte
}

func (o *oddUIDs) add(index int, uid string, exact bool) {
	if exact {
		return
	}
	o.n++
	o.data = binary.AppendUvarint(o.data, uint64(index))
	o.data = appendString(o.data, uid)
}

func (o *oddUIDs) appendTo(b []byte) []byte {
	return append(binary.AppendUvarint(b, o.n), o.data...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Columns of strings in the frame of rows. Queries are about the first ones.
const (
	columnReason = iota
	columnType
	columnController
	columnComponent
	columnHost
	columnInstance
	columnAction
	columnFieldPath
	columnRelatedKind
	columnRelatedNamespace
	columnRelatedName
	columnRelatedUID
	columnRelatedAPIVersion
	columnRelatedFieldPath
	rowTexts
)

var noReference corev1.ObjectReference

// rowColumns returns the frame of rows.
func rowColumns(rows []*row, b *block) []byte {
	var order, instants, counts []byte
	var columns [rowTexts]texts
	for _, r := range rows {
		e := r.Event
		position := (r.seq - rows[0].seq) << 1
		if r.listed {
			position |= 1
		}
		order = binary.AppendVarint(order, position)
		counts = binary.AppendVarint(counts, int64(e.Count))
		t := timesOf(e)
		counts = append(counts, seriesForm(e, &t))
		if e.Series != nil {
			counts = binary.AppendVarint(counts, int64(e.Series.Count))
		}
		instants = t.appendTo(instants, r.Observed.UnixMicro())
		related := e.Related
		if related == nil {
			related = &noReference
		}
		for i, s := range [rowTexts]string{
			e.Reason, e.Type, e.ReportingController, e.Source.Component, e.Source.Host, e.ReportingInstance, e.Action, e.InvolvedObject.FieldPath,
			related.Kind, related.Namespace, related.Name, string(related.UID), related.APIVersion, related.FieldPath,
		} {
			columns[i].add(s)
		}
	}
	plain := binary.AppendVarint(nil, rows[0].seq)
	plain = append(appendOrdered(append(plain, order...), rows, b), counts...)
	plain = append(plain, instants...)
	for i := range columns {
		plain = columns[i].appendTo(plain)
	}
	return plain
}

// Whether an Event has a series, and that a time.
const (
	noSeries = iota
	seriesWithoutTime
	seriesWithTime
)

func seriesForm(e *corev1.Event, t *times) byte {
	switch {
	case e.Series == nil:
		return noSeries
	case t.series == noTime:
		return seriesWithoutTime
	default:
		return seriesWithTime
	}
}

// appendOrdered encodes what rises from version to version: resourceVersion, and when it was observed.
func appendOrdered(plain []byte, rows []*row, b *block) []byte {
	ordered := slices.Clone(rows)
	slices.SortFunc(ordered, func(x, y *row) int { return cmp.Compare(x.seq, y.seq) })
	rv, observed := b.firstRV, b.from
	var versions, instants []byte
	for _, r := range ordered {
		versions = binary.AppendVarint(versions, int64(r.rv-rv))
		instants = binary.AppendVarint(instants, r.Observed.UnixMicro()-observed)
		rv, observed = r.rv, r.Observed.UnixMicro()
	}
	return append(append(plain, versions...), instants...)
}

// times are those of an Event, in microseconds since 1970.
type times struct{ last, first, created, event, series int64 }

func timesOf(e *corev1.Event) times {
	t := times{microsOf(e.LastTimestamp.Time), microsOf(e.FirstTimestamp.Time), microsOf(e.CreationTimestamp.Time), microsOf(e.EventTime.Time), noTime}
	if e.Series != nil {
		t.series = microsOf(e.Series.LastObservedTime.Time)
	}
	return t
}

// appendTo encodes each time relative to one that is close.
func (t *times) appendTo(b []byte, observed int64) []byte {
	last := or(t.last, observed)
	first := or(t.first, last)
	b = appendTime(b, t.last, observed)
	b = appendTime(b, t.first, last)
	b = appendTime(b, t.created, first)
	b = appendTime(b, t.event, or(t.created, first))
	if t.series != noTime {
		b = appendTime(b, t.series, observed)
	}
	return b
}

// happened is when what the Event is about has happened last, as eventfields.LastTime returns it.
func (t *times) happened(observed int64) int64 {
	return or(max(t.last, t.series), or(t.event, or(t.first, or(t.created, observed))))
}

// begin is when the Event began, more or less.
func (t *times) begin(observed int64) int64 { return or(t.event, or(t.first, or(t.last, observed))) }
