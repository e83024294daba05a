package correlator

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/occurrence"
)

// route sets t to the Event that the occurrence is counted on. c.encoding and c.keys must
// be those of the occurrence. The reason is NewSeries or Combined.
func (c *Correlator) route(t *occurrence.Target, s *subject, o *occurrence.Occurrence) Reason {
	*t = occurrence.Target{
		Key:      c.keys.series,
		Begun:    o.Begun,
		Event:    o.Event,
		Name:     o.Event.InvolvedObject.Name,
		Combined: c.encoding.IsCombined(),
	}
	if t.Combined {
		return NewSeries // its client combined it
	}
	if group, member, ok := c.options.groupKey(o.Event); ok {
		return c.routeByKey(t, o, group, member)
	}
	if s.admit(c.keys.similar(), t.Key.A, &c.options, c.now) {
		return NewSeries
	}
	c.encoding.SetCombined()
	t.Key = c.seeds.series(&c.keys, &c.encoding)
	t.Event = c.combined(o.Event)
	t.Combined = true
	return Combined
}

// routeByKey is route for a group of Options.GroupKey.
func (c *Correlator) routeByKey(t *occurrence.Target, o *occurrence.Occurrence, name, member string) Reason {
	digest := identity.OfGroup(t.Event, name)
	key := occurrence.KeyOf(digest)
	own := c.seeds.ofUser(key.A, o.User)
	g, ok := c.groups.Get(own)
	if !ok {
		g = &fullGroup{}
		c.groups.Add(own, c.seeds.tenant(o), g, 1)
	}
	if g.further, ok = g.admit(g.further, c.seeds.named(member), &c.options, c.now); ok {
		return NewSeries
	}
	*t = occurrence.Target{
		Key:      key,
		Digest:   digest,
		Event:    c.combined(t.Event),
		Name:     "combined", // the group may have many objects
		Combined: true,
	}
	return Combined
}

// combined returns the combined Event of a group whose last Event is the given one.
func (c *Correlator) combined(event *corev1.Event) *corev1.Event {
	out := *event
	out.Message = strings.ToValidUTF8(c.options.message(event), "\uFFFD")
	if !event.EventTime.IsZero() {
		out.Message = truncate.String(out.Message, identity.MaxNote)
	}
	return &out
}
