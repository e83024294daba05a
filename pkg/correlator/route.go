package correlator

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// route finds the Event that an occurrence is counted on, given that the encoding
// is that of the occurrence. The reason is NewSeries or Combined.
func (c *Correlator) route(s *subject, o *occurrence.Occurrence) (occurrence.Target, Reason) {
	own := c.own(o)
	if own.Combined {
		return own, NewSeries // its client has decided
	}
	if group, member, ok := c.options.groupKey(o.Event); ok {
		return c.routeByKey(own, group, member)
	}
	g := s.group(c.keys.similar(), c.options.MaxSeries)
	if g.admit(own.Key.A, &c.options, c.now) {
		return own, NewSeries
	}
	c.encoding.SetCombined()
	return occurrence.Target{
		Key:      c.seeds.series(&c.keys, &c.encoding),
		Event:    c.combined(o.Event),
		Name:     own.Name,
		Combined: true,
	}, Combined
}

// own is the Event that an occurrence is counted on if it is not combined with
// others.
func (c *Correlator) own(o *occurrence.Occurrence) occurrence.Target {
	t := occurrence.Target{
		Key:      occurrence.KeyOf(o.Digest),
		Digest:   o.Digest,
		Event:    o.Event,
		Name:     o.Event.InvolvedObject.Name,
		Combined: identity.IsCombined(o.Event),
	}
	if t.Key == (occurrence.Key{}) {
		t.Key = c.keys.series
	}
	return t
}

// routeByKey is for groups that Options.GroupKey tells.
func (c *Correlator) routeByKey(own occurrence.Target, name, member string) (occurrence.Target, Reason) {
	digest := identity.OfGroup(own.Event, name)
	key := occurrence.KeyOf(digest)
	g, ok := c.groups.Get(key.A)
	if !ok {
		g = &group{}
		c.groups.Add(key.A, g)
	}
	if g.admit(c.seeds.named(member), &c.options, c.now) {
		return own, NewSeries
	}
	return occurrence.Target{
		Key:      key,
		Digest:   digest,
		Event:    c.combined(own.Event),
		Name:     "combined", // it may be about many objects
		Combined: true,
	}, Combined
}

// combined is the Event that stands for its group when the given one is the last
// that was counted on it.
func (c *Correlator) combined(event *corev1.Event) *corev1.Event {
	out := *event
	out.Message = strings.ToValidUTF8(c.options.message(event), "\uFFFD")
	if !event.EventTime.IsZero() {
		out.Message = identity.Cut(out.Message, identity.MaxNote)
	}
	return &out
}
