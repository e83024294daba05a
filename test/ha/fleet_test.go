package ha

import (
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

const replicas = 3

// shortLease replaces a leader that has gone within three seconds.
var shortLease = []string{
	"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
}

// shortRenewDeadline is how long a leader that cannot renew such a lease continues.
const shortRenewDeadline = 2 * time.Second

// fleet is three replicas, the Service before them, and the Lease that they share.
type fleet struct {
	t       *testing.T
	cluster *testenv.ControlPlane
	members []*member
	service *service
	lease   *lease
}

// member is one of the replicas, over any number of processes.
type member struct {
	*fleet
	name    string
	dir     string
	options replica.Options
	api     *link // from it to the apiserver
	peers   *link // from the others to it
	lives   int
	ended   []replica.Accounts // of processes that ended in order

	mu      sync.Mutex
	running *replica.Replica
}

// startFleet starts three replicas with the rights of deploy/, and waits until one of
// them leads. Those that still run at the end of the test are killed.
func startFleet(t *testing.T, cluster *testenv.ControlPlane, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, cluster: cluster, service: newService(t)}
	options := replica.Options{Credentials: replica.Deploy(t, cluster), PeerToken: replica.PeerToken(t, cluster), Flags: flags}
	f.lease = followLease(t, cluster.Config())
	for i := range replicas {
		f.members = append(f.members, f.newMember(fmt.Sprint("replica-", i), options))
	}
	t.Cleanup(func() {
		for _, m := range f.members {
			m.kill()
		}
	})
	atOnce(f.members, (*member).start)
	f.lease.wait(t, "a leader", func(term) bool { return true })
	return f
}

// newMember prepares a replica that reaches the apiserver, and is reached by the
// others, over links that can be cut.
func (f *fleet) newMember(name string, options replica.Options) *member {
	f.t.Helper()
	m := &member{fleet: f, name: name, dir: f.t.TempDir(), options: options}
	if *logs != "" {
		m.dir = filepath.Join(*logs, f.t.Name(), name)
	}
	apiserver, err := url.Parse(options.Credentials.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	m.api, m.peers = newLink(f.t, apiserver.Host), newLink(f.t, "")
	m.options.Credentials = rest.CopyConfig(options.Credentials)
	m.options.Credentials.Host = "https://" + m.api.address()
	m.options.Flags = append([]string{
		"--leader-elect", "--advertise-address=" + m.peers.address(), "--peer-audience=eventd",
		"--shutdown-grace-period=2m",
	}, options.Flags...)
	return m
}

// atOnce does the same with several replicas.
func atOnce(members []*member, do func(*member)) {
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(func() { do(m) })
	}
	all.Wait()
}

// start starts the replica's next process, and waits until it gets requests: until it
// knows the leader.
func (m *member) start() {
	m.lives++
	options := m.options
	options.Dir = filepath.Join(m.dir, fmt.Sprint("life-", m.lives))
	ctx, cancel := await.Context(m.t)
	defer cancel()
	process, err := replica.Start(ctx, options)
	if err != nil {
		m.t.Errorf("%s: %v", m.name, err)
		return
	}
	m.mu.Lock()
	m.running = process
	m.mu.Unlock()
	address, err := url.Parse(process.Config(&rest.Config{}).Host)
	if err != nil {
		m.t.Error(err)
		return
	}
	m.peers.lead(address.Host)
	if err := m.service.add(m.name, process.Config(&rest.Config{})); err != nil {
		m.t.Error(err)
		return
	}
	if err := m.service.waitReady(ctx, m.name); err != nil {
		m.t.Errorf("%s: %v", m.name, err)
	}
}

// process is the one that runs now, or ran last; nil before the first one.
func (m *member) process() *replica.Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// signal sends a signal and returns.
func (m *member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.process().Send(s); err != nil {
		m.t.Errorf("%s: %v", m.name, err)
	}
}

// waitEnd waits until a terminated process has ended in order, with everything written.
func (m *member) waitEnd() {
	ctx, cancel := await.Context(m.t)
	defer cancel()
	process := m.process()
	code, err := process.Wait(ctx)
	m.service.remove(m.name)
	if err != nil || code != 0 {
		m.t.Errorf("%s ended with %d (%v):\n%s", m.name, code, err, process.Log(20))
		return
	}
	accounts, err := process.FinalAccounts()
	if err != nil {
		m.t.Errorf("%s: %v", m.name, err)
		return
	}
	m.ended = append(m.ended, accounts)
}

// waitKilled waits until a process has gone that was killed.
func (m *member) waitKilled() {
	<-m.process().Done()
	m.service.remove(m.name)
}

// kill ends what is left of the replica.
func (m *member) kill() {
	if process := m.process(); process != nil {
		process.Kill()
		if m.t.Failed() {
			m.t.Logf("the last of the log of %s:\n%s", m.name, process.Log(30))
		}
	}
}

// stop ends all replicas in order, at once.
func (f *fleet) stop() {
	f.t.Helper()
	atOnce(f.members, func(m *member) {
		m.signal(syscall.SIGTERM)
		m.waitEnd()
	})
}

// leader waits for one, and returns the replica that leads.
func (f *fleet) leader() (*member, term) {
	f.t.Helper()
	now := f.lease.wait(f.t, "a leader", func(term) bool { return true })
	return f.at(now.address), now
}

// at is the replica that the others reach at an address.
func (f *fleet) at(address string) *member {
	f.t.Helper()
	for _, m := range f.members {
		if m.peers.address() == address {
			return m
		}
	}
	f.t.Fatalf("the Lease has an unknown address: %q", address)
	return nil
}

// metrics of a replica.
func (m *member) metrics() metrics.Metrics {
	m.t.Helper()
	ctx, cancel := await.Context(m.t)
	defer cancel()
	read, err := m.process().Metrics(ctx, m.cluster.Config())
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return read
}

// accounts add up those of all processes that ended in order.
func (f *fleet) accounts() replica.Accounts {
	sum := replica.Accounts{}
	for _, m := range f.members {
		for _, accounts := range m.ended {
			for name, n := range accounts {
				sum[name] += n
			}
		}
	}
	return sum
}
