package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/eventd/eventd/internal/eventfields"
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
	if n := strings.Compare(a.Event.Namespace, b.Event.Namespace); n != 0 {
		return n
	}
	x, y := &a.Event.InvolvedObject, &b.Event.InvolvedObject
	return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID),
		cmp.Compare(a.Event.UID, b.Event.UID), cmp.Compare(a.seq, b.seq))
}

// appendBlocks encodes rows in equal blocks.
func (c *codec) appendBlocks(blocks []*block, run []row, rows []*row, owner string) []*block {
	for n := (len(rows) + c.sizes.blockVersions - 1) / c.sizes.blockVersions; n > 0; n-- {
		part := (len(rows) + n - 1) / n
		b := &block{epoch: run[0].epoch, first: run[0].seq, end: run[len(run)-1].seq + 1, owner: strings.Clone(owner)}
		c.fill(b, rows[:part])
		blocks = append(blocks, b)
		rows = rows[part:]
	}
	return blocks
}

// fill encodes sorted rows.
func (c *codec) fill(b *block, rows []*row) {
	b.rows, b.lastRV = len(rows), rows[0].rv
	b.from, b.until = rows[0].Observed.UnixMicro(), rows[0].Observed.UnixMicro()
	b.firstTime, b.lastTime = rows[0].time(), rows[0].time()
	b.firstNamespace, b.lastNamespace = strings.Clone(rows[0].Event.Namespace), strings.Clone(rows[len(rows)-1].Event.Namespace)
	facets := make(map[uint32]bool)
	for _, r := range rows {
		b.size += r.bytes
		b.lastRV = max(b.lastRV, r.rv)
		b.from, b.until = min(b.from, r.Observed.UnixMicro()), max(b.until, r.Observed.UnixMicro())
		b.firstTime, b.lastTime = min(b.firstTime, r.time()), max(b.lastTime, r.time())
		e, o := r.Event, &r.Event.InvolvedObject
		for of, s := range [facetKinds]string{
			facetNamespace: e.Namespace, facetReason: e.Reason, facetType: e.Type, facetReporter: eventfields.Reporter(e),
			facetObject: o.Name, facetObjectUID: string(o.UID),
		} {
			facets[c.hash(of, s)] = true
		}
	}
	b.facets = slices.AppendSeq(make([]uint32, 0, len(facets)), maps.Keys(facets))
	slices.Sort(b.facets)
	var plain []byte
	for _, r := range rows {
		plain = c.appendRow(plain, r, b)
	}
	b.data = slices.Clone(c.encoder.EncodeAll(plain, nil)) // which has much spare capacity
}
