package counter

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is what a counter knows of the stored Event while nothing is pending, so that the next write is one request. It
// leaves out what no later write depends on, such as the author, unless it may only create Events; see author.
//
// The next write has the resourceVersion of the state. So with a state that is outdated, it fails with a conflict, and a
// read follows. What would settle without a request is read first (Draft.Plan).
type State struct {
	id                  EventID
	resourceVersion     string
	count               int64
	contributors        contributors
	message             uint64
	last                int64 // in microseconds, the precision that is stored
	mustRead, exclusive bool
	createOnly          bool // the author, who
	user                uint64
	suffix              int32
	nonce               uint64
}

// State returns the state. The Event must be stored, and nothing pending. The counter is not used any more.
func (c *Counter) State() State {
	o := c.observed
	s := State{
		id: o.id, resourceVersion: strings.Clone(o.meta.ResourceVersion), count: o.count, contributors: o.contributors,
		message: o.message, last: o.last.UnixMicro(),
		mustRead: c.mustRead, exclusive: c.exclusive, suffix: int32(c.suffix), nonce: c.nonce,
	}
	if c.author.known && c.author.createOnly {
		s.createOnly, s.user = true, c.author.user
	}
	return s
}

// SetState sets the state of a new Counter of the series.
func (c *Counter) SetState(s State) {
	c.observed = &observation{
		meta: &corev1.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: s.resourceVersion}},
		id:   s.id, count: s.count, contributors: s.contributors, message: s.message, last: time.UnixMicro(s.last),
		recalled: true,
	}
	c.mustRead, c.exclusive, c.suffix, c.nonce = s.mustRead, s.exclusive, int(s.suffix), s.nonce
	if s.createOnly {
		c.author = author{user: s.user, known: true, createOnly: true}
	}
}

// ListBytes is the memory of the lists of a state, which is bounded (maxClients), but not small.
func (s *State) ListBytes() int {
	of := &s.contributors
	bytes := (len(of.sinks)+len(of.clients))*(contributorLength+8) + len(of.pushedOut)*contributorLength
	for _, part := range of.unknown {
		bytes += 16 + len(part)
	}
	return bytes
}
