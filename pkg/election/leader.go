package election

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/internal/notify"
)

// Leader is the leader, as far as this process knows. The zero Leader is nobody.
type Leader struct {
	// Identity is the holder in the lock.
	Identity string
	// Announcement is what the leader announces about itself.
	Announcement
}

// Announcement is what a leader announces, so that others can connect to it. It is
// zero if the leader announces nothing.
type Announcement struct {
	// Address is where it serves: host:port.
	Address string `json:"address,omitempty"`
	// CertificateSHA256 is the fingerprint of its serving certificate: the SHA-256
	// of the DER form, in lower-case hex.
	CertificateSHA256 string `json:"certificateSHA256,omitempty"`
}

// ErrCertificate is that another server has the announced address.
var ErrCertificate = errors.New("its certificate is not the one that is announced")

// Fingerprint returns what is announced of a certificate.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}

// Complete reports whether others can connect to the leader.
func (a Announcement) Complete() bool { return a.Address != "" && a.CertificateSHA256 != "" }

// Verify is the VerifyConnection of a tls.Config that does not verify a name: the leader's certificate may be
// self-signed, for names that are not known to its clients. It ends the handshake with any other server, before
// anything is sent.
func (a Announcement) Verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	if got := Fingerprint(state.PeerCertificates[0]); got != a.CertificateSHA256 {
		return fmt.Errorf("%w: its fingerprint is %s, not %s", ErrCertificate, got, a.CertificateSHA256)
	}
	return nil
}

// Announcer is a lock that stores the announcement of the holder.
type Announcer interface {
	// Announced returns the announcement of the holder as last read or written. It is
	// not called during another call to the lock.
	Announced() Announcement
}

func announced(lock resourcelock.Interface) Announcement {
	if a, ok := lock.(Announcer); ok {
		return a.Announced()
	}
	return Announcement{}
}

// Leader returns the leader. This process is returned only while it leads, another
// one until its Lease is seen to be released or has expired.
func (e *Elector) Leader() Leader {
	l := *e.leader.Load()
	if l.Identity == e.identity && !e.Leading() {
		return Leader{}
	}
	return l
}

// Renewed returns when this process last saw the lock's record change, by its own
// clock. On a standby that is the last renewal or acquisition of the Lease. It is
// zero before the first read.
func (e *Elector) Renewed() time.Time { return *e.renewed.Load() }

// Tenure is what the lock's record says of its holder.
type Tenure struct {
	// Holder is "" if there is none.
	Holder string
	// Since is when it has acquired the Lease, by its own clock.
	Since time.Time
	// Transitions is how often the holder has changed.
	Transitions int
}

// Tenure returns the record as this process last read or wrote it. It is zero before that.
func (e *Elector) Tenure() Tenure { return *e.tenure.Load() }

func (e *Elector) setTenure(r *resourcelock.LeaderElectionRecord) {
	e.tenure.Store(&Tenure{Holder: r.HolderIdentity, Since: r.AcquireTime.Time, Transitions: r.LeaderTransitions})
}

func (e *Elector) setLeader(l Leader) {
	if *e.leader.Load() == l {
		return
	}
	e.leader.Store(&l)
	notify.Wake(e.leaderChanged)
}

// reportLeaders calls OnNewLeader after each change until ctx ends, and then for the
// last one.
func (e *Elector) reportLeaders(ctx context.Context) {
	for {
		select {
		case <-e.leaderChanged:
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
