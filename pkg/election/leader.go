package election

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Leader is who leads, as far as is known. The zero Leader is nobody.
type Leader struct {
	// Identity is the holder's in the lock.
	Identity string
	// Announcement is what it says about itself.
	Announcement
}

// Announcement is what a leader says about itself, for those that want to reach
// it. It is zero if nothing was said.
type Announcement struct {
	// Address is where it serves: host:port.
	Address string `json:"address,omitempty"`
	// CertificateSHA256 is the fingerprint of the certificate that it serves
	// with: the SHA-256 of its DER form, in lower-case hex.
	CertificateSHA256 string `json:"certificateSHA256,omitempty"`
}

// Announcer is a lock that stores what the holder says about itself beside its
// name.
type Announcer interface {
	// Announced is what the holder said, by the last answer. It is called
	// between the lock's other methods, not during one.
	Announced() Announcement
}

func announced(lock resourcelock.Interface) Announcement {
	if a, ok := lock.(Announcer); ok {
		return a.Announced()
	}
	return Announcement{}
}

// Leader tells who leads: this process only while it does, and another one
// until its Lease was seen to be released or has expired.
func (e *Elector) Leader() Leader {
	l := *e.leader.Load()
	if l.Identity == e.identity && !e.Leading() {
		return Leader{}
	}
	return l
}

// Renewed tells when this process last saw the lock's record change, by its own
// clock: on a standby, when the leader last renewed the Lease, or whoever leads now
// acquired it. It is zero before the first read.
func (e *Elector) Renewed() time.Time {
	if at := e.renewed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// see notes who leads.
func (e *Elector) see(l Leader) {
	if *e.leader.Load() == l {
		return
	}
	e.leader.Store(&l)
	signal(e.news)
}

// reportLeaders tells of changes of the leader until the context is over, and
// then of the last one.
func (e *Elector) reportLeaders(ctx context.Context) {
	for {
		select {
		case <-e.news:
			e.reportLeader()
		case <-ctx.Done():
			e.reportLeader()
			return
		}
	}
}

func (e *Elector) reportLeader() {
	if l := *e.leader.Load(); l != e.reported {
		e.reported = l
		e.options.OnNewLeader(l)
	}
}

// signal wakes up who waits, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // not woken up yet by the one before
	}
}
