package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// end is one end of a session. It is closed when the function that has it returns.
type end struct {
	io.ReadWriteCloser
	leave chan error // ends that function
	ended chan struct{}
}

// ends are those that a replica has of its sessions, in the order of their beginning.
type ends chan *end

func newEnds() ends { return make(ends, 100) }

// hold is a function that leaves a session to the test.
func (e ends) hold(ctx context.Context, session io.ReadWriteCloser) error {
	s := &end{session, make(chan error, 1), make(chan struct{})}
	defer close(s.ended)
	e <- s
	select {
	case err := <-s.leave:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e ends) next(t testing.TB) *end {
	t.Helper()
	select {
	case s := <-e:
		return s
	case <-time.After(await.Timeout):
		t.Fatal("no session begins")
		return nil
	}
}

// wants reads so many bytes, and compares them.
func (e *end) wants(t testing.TB, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(e, got); err != nil || string(got) != want {
		t.Errorf("read %d bytes, want %d: %v", len(got), len(want), err)
	}
}

func (e *end) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(e, text); err != nil {
		t.Error(err)
	}
}

// replicating is a setting of a replica that accepts sessions.
func replicating(e ends) setting {
	return func(_ *intake.Options, o *intake.ServerOptions) { o.Replication = e.hold }
}

// replicate keeps sessions of a replica until stop is called, or the test ends.
func (r *replica) replicate(t testing.TB) (sessions ends, stop func()) {
	t.Helper()
	if err := r.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	sessions = newEnds()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.relay.Replicate(ctx, sessions.hold)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return sessions, stop
}

// session is one between a leader and another replica.
func session(t testing.TB) (atLeader, atFollower *end, stop func()) {
	t.Helper()
	served := newEnds()
	_, other, _ := pair(t, options{set: replicating(served)}, options{})
	followed, stop := other.replicate(t)
	return served.next(t), followed.next(t), stop
}

func TestSessionHasTwoDirections(t *testing.T) {
	leader, follower, _ := session(t)
	const large = 8 << 20 // more than all buffers
	text := fmt.Sprintf("%0*d", large, 1)
	var writing sync.WaitGroup
	for _, e := range []*end{leader, follower} {
		writing.Go(func() { e.write(t, text) })
	}
	for _, e := range []*end{leader, follower} {
		writing.Go(func() { e.wants(t, text) })
	}
	writing.Wait()
	for range 3 { // nothing waits for more
		leader.write(t, "batch")
		follower.wants(t, "batch")
		follower.write(t, "ack")
		leader.wants(t, "ack")
	}
}

// What was written before one end closes the session arrives at the other one.
func TestEndOfASessionLosesNothing(t *testing.T) {
	for _, name := range []string{"of the leader", "of the follower", "of the follower's process"} {
		t.Run(name, func(t *testing.T) {
			leader, follower, stop := session(t)
			from, to := follower, leader
			if name == "of the leader" {
				from, to = leader, follower
			}
			read := make(chan struct{})
			go func() {
				defer close(read)
				to.wants(t, "the last batch")
				if n, err := to.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
					t.Errorf("then %d bytes are read: %v", n, err)
				}
				to.leave <- nil
			}()
			from.write(t, "the last batch")
			if name == "of the follower's process" {
				stop()
			} else {
				from.leave <- nil
			}
			<-from.ended
			<-read
		})
	}
}

func TestClosedSessionBlocksNobody(t *testing.T) {
	for name, which := range map[string]int{"at the leader": 0, "at the follower": 1} {
		t.Run(name, func(t *testing.T) {
			leader, follower, _ := session(t)
			s := []*end{leader, follower}[which]
			failed := make(chan error, 2)
			go func() {
				_, err := s.Read(make([]byte, 1))
				failed <- err
			}()
			go func() {
				var err error
				for err == nil { // until the buffers are full
					_, err = s.Write(make([]byte, 1<<20))
				}
				failed <- err
			}()
			time.Sleep(50 * time.Millisecond) // also without, but then they may not have begun
			began := time.Now()
			_ = s.Close()
			for range 2 {
				if err := <-failed; err == nil {
					t.Error("no error")
				}
			}
			_ = s.Close()
			if took := time.Since(began); took > time.Second {
				t.Errorf("after %s", took)
			}
		})
	}
}

// The Lease goes from one replica to the next, and back.
func TestSessionIsWithTheLeaderUntilThatEnds(t *testing.T) {
	first, second := newEnds(), newEnds()
	other := newReplica(t, options{})
	followed, stop := other.replicate(t)
	a := listen(t, newReplica(t, options{set: replicating(first)}))
	b := listen(t, newReplica(t, options{set: replicating(second)}), withAnotherCertificate(t))
	a.leads(other)
	first.next(t)
	followed.next(t).leave <- errors.New("a batch is missing")
	former, formerEnd := first.next(t), followed.next(t) // again
	other.relay.SetLeader(election.Announcement{})
	b.leads(other)
	second.next(t)
	followed.next(t)
	former.write(t, "pending")
	formerEnd.wants(t, "pending")
	a.leads(other) // that session is there
	b.leads(other)
	other.WantMetric(t, 2, "eventd_relay_sessions")
	former.leave <- nil
	<-former.ended
	formerEnd.leave <- nil
	await.Until(t, "one session is left", func() bool { return other.Metric(t, "eventd_relay_sessions") == 1 })
	if len(first) > 0 || len(second) > 0 {
		t.Error("there is another session")
	}
	a.leads(other)
	first.next(t)
	stop()
	other.WantMetric(t, 0, "eventd_relay_sessions")
}

func TestLeaderThatDoesNotAnswerDelaysNoShutdown(t *testing.T) {
	asked := make(chan struct{}, 10)
	where := listen(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
	}))
	other := newReplica(t, options{})
	_, stop := other.replicate(t)
	where.leads(other)
	<-asked
	began := time.Now()
	if stop(); time.Since(began) > time.Second {
		t.Errorf("stopped after %v", time.Since(began))
	}
}

// A session is for replicas, and over HTTP/2. Everybody else is answered as for a path that
// does not exist.
func TestWhoOpensASession(t *testing.T) {
	served := newEnds()
	where := listen(t, newReplica(t, options{set: replicating(served)}))
	asserted := asserting(peerToken, `{"username":"a"}`)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for name, test := range map[string]struct {
		method, path string
		header       []string
		code         int
	}{
		"a stranger":               {"POST", intake.ReplicationPath, asserting("bogus", `{"username":"a"}`), 401},
		"nobody":                   {"POST", intake.ReplicationPath, asserting("", `{"username":"a"}`), 401},
		"a client":                 {"POST", intake.ReplicationPath, []string{"Authorization", "Bearer a-client"}, 404},
		"a replica that reads":     {"GET", intake.ReplicationPath, asserted, 404},
		"a replica somewhere else": {"POST", intake.ReplicationPath + "/x", asserted, 404},
	} {
		t.Run(name, func(t *testing.T) {
			req := must(http.NewRequestWithContext(t.Context(), test.method, where.URL+test.path, http.NoBody))
			for i := 0; i < len(test.header); i += 2 {
				req.Header.Set(test.header[i], test.header[i+1])
			}
			response := must(client.Do(req))
			_ = response.Body.Close()
			if response.StatusCode != test.code {
				t.Errorf("answered %d, want %d", response.StatusCode, test.code)
			}
		})
	}
	if len(served) > 0 {
		t.Error("a session was opened")
	}
}

func TestSessionsAreLimited(t *testing.T) {
	const most = 4
	served := newEnds()
	where := listen(t, newReplica(t, options{set: replicating(served)}))
	var all []*end
	for range most {
		other := newReplica(t, options{})
		other.replicate(t)
		where.leads(other)
		all = append(all, served.next(t))
	}
	other := newReplica(t, options{})
	followed, _ := other.replicate(t)
	where.leads(other)
	time.Sleep(200 * time.Millisecond)
	if len(served) > 0 || len(followed) > 0 {
		t.Fatalf("%d sessions more than %d", len(served), most)
	}
	all[0].leave <- nil
	followed.next(t) // or the one that lost its session
}

// Reviews of unknown tokens are as few as on other paths, and a replica waits for none.
func TestStrangersKeepNoFollowerOut(t *testing.T) {
	const strangers, atOnce = 300, 64
	var hanging atomic.Int32
	answer := make(chan struct{})
	apiserver := reviewing(t, func(r *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		if r.Spec.Token != peerToken {
			hanging.Add(1)
			<-answer
		}
		return asPeer(r.Spec.Token == peerToken)
	})
	served := newEnds()
	places := func(i *intake.Options, o *intake.ServerOptions) {
		replicating(served)(i, o)
		o.MaxInFlight = 1000 // so that an address has more places than there are reviews
	}
	leader, other, _ := pair(t, options{apiserver: apiserver.URL, set: places}, options{})
	other.Post(t, classic("a", 1)).Want(t, 201, "") // the leader knows the replica
	var flood sync.WaitGroup
	for i := range strangers {
		flood.Go(func() {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, intake.ReplicationPath, http.NoBody)
			req.ProtoMajor = 2
			header := asserting(fmt.Sprint("bogus-", i), `{"username":"a"}`)
			req.Header.Set(header[0], header[1])
			req.Header.Set(header[2], header[3])
			leader.Handler.ServeHTTP(httptest.NewRecorder(), req)
		})
	}
	await.Until(t, "strangers are reviewed", func() bool { return hanging.Load() == atOnce })
	other.replicate(t)
	served.next(t)
	if n := hanging.Load(); n > atOnce {
		t.Errorf("%d reviews at once", n)
	}
	close(answer)
	flood.Wait()
}

// A process that is stopped keeps its connections.
func TestLeaderThatFallsSilentEndsItsSession(t *testing.T) {
	served, stopped := newEnds(), make(chan struct{})
	where := listen(t, newReplica(t, options{set: replicating(served)}), mutedAt(stopped))
	other := newReplica(t, options{})
	followed, _ := other.replicate(t)
	where.leads(other)
	follower := followed.next(t)
	close(stopped)
	began := time.Now()
	if _, err := follower.Read(make([]byte, 1)); err == nil || time.Since(began) > 8*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
