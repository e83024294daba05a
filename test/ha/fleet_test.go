package ha

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
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

// fleet is some replicas, usually three, the Service before them, and the Lease that they share.
type fleet struct {
	t       *testing.T
	cluster *testenv.ControlPlane
	options replica.Options // of a new member
	members []*member
	named   int           // members so far
	timeout time.Duration // of requests of plain clients; 0 is patience
	service *service
	lease   *lease

	mu       sync.Mutex
	accounts replica.Accounts // sums of the processes that ended in order
}

// member is one of the replicas, over any number of processes.
type member struct {
	*fleet
	name    string
	dir     string
	options replica.Options
	api     *link.Link // from it to the apiserver
	peers   *link.Link // from the others to it
	lives   int

	mu      sync.Mutex
	running *replica.Replica
}

// settling is how long a replica serves after SIGTERM: longer than the Service needs
// to notice.
const settling = "--shutdown-delay-duration=2s"

// startFleet starts three replicas with the rights of deploy/, and waits until one of
// them leads. Those that still run at the end of the test are killed.
func startFleet(t *testing.T, cluster *testenv.ControlPlane, flags ...string) *fleet {
	t.Helper()
	return startFleetAt(t, cluster, replica.Deploy(t, cluster), flags...)
}

// startFleetAt is startFleet with other credentials, maybe for a proxy before the apiserver.
func startFleetAt(t *testing.T, cluster *testenv.ControlPlane, credentials *rest.Config, flags ...string) *fleet {
	t.Helper()
	return startFleetOf(t, cluster, credentials, make([]string, replicas), flags...)
}

// startFleetOf is startFleetAt with a replica of each of these binaries; "" is the one under test.
func startFleetOf(t *testing.T, cluster *testenv.ControlPlane, credentials *rest.Config, binaries []string, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, cluster: cluster, service: newService(t), accounts: replica.Accounts{}}
	f.options = replica.Options{Credentials: credentials, PeerToken: replica.PeerToken(t, cluster), Flags: append(slices.Clip(flags), settling)}
	f.lease = followLease(t, cluster.Config())
	for _, binary := range binaries {
		f.members = append(f.members, f.newMember(binary))
	}
	atOnce(f.members, (*member).start)
	f.leader()
	return f
}

// newMember prepares a replica that reaches the apiserver, and is reached by the
// others, over links that can be cut.
func (f *fleet) newMember(binary string) *member {
	f.t.Helper()
	m := &member{fleet: f, name: fmt.Sprint("replica-", f.named), dir: f.t.TempDir(), options: f.options}
	f.named++
	if *logs != "" {
		m.dir = filepath.Join(*logs, f.t.Name(), m.name)
	}
	apiserver, err := url.Parse(f.options.Credentials.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	m.api, m.peers = link.New(f.t, apiserver.Host), link.New(f.t, "")
	m.options.Binary = binary
	m.options.Credentials = rest.CopyConfig(f.options.Credentials)
	m.options.Credentials.Host = "https://" + m.api.Address()
	m.options.Flags = append([]string{
		"--leader-elect", "--advertise-address=" + m.peers.Address(), "--peer-audience=eventd",
		"--shutdown-grace-period=2m",
	}, f.options.Flags...)
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
	process.KillAfter(m.t)
	m.mu.Lock()
	m.running = process
	m.mu.Unlock()
	backend, err := newBackend(m.name, m.config())
	if err != nil {
		m.t.Errorf("%s: %v", m.name, err)
		return
	}
	m.peers.Lead(backend.url.Host)
	m.service.add(backend)
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

// config is that of a client of the process that runs now, without credentials.
func (m *member) config() *rest.Config { return m.process().Config(&rest.Config{}) }

// signal sends a signal and returns.
func (m *member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.process().Send(s); err != nil {
		m.t.Errorf("%s: %v", m.name, err)
	}
}

// kill returns when a replica's process has ended without notice.
func (m *member) kill() {
	m.t.Helper()
	m.signal(syscall.SIGKILL)
	<-m.process().Done()
	m.service.remove(m.name)
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
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	for name, n := range accounts {
		m.accounts[name] += n
	}
}

// terminate ends a replica's process in order.
func (m *member) terminate() {
	m.t.Helper()
	m.signal(syscall.SIGTERM)
	m.waitEnd()
}

func (m *member) restart() {
	m.t.Helper()
	m.terminate()
	m.start()
}

// stop ends all replicas in order, at once.
func (f *fleet) stop() {
	f.t.Helper()
	atOnce(f.members, (*member).terminate)
}

// leader waits for one, and returns the replica that leads. An earlier test may have
// left a Lease.
func (f *fleet) leader() (leader *member, now term) {
	f.t.Helper()
	await.Until(f.t, "a leader", func() bool {
		var held bool
		now, held = f.lease.holder()
		i := slices.IndexFunc(f.members, func(m *member) bool { return m.peers.Address() == now.address })
		if !held || i < 0 {
			return false
		}
		leader = f.members[i]
		return true
	})
	return leader, now
}

// otherLeader waits until another replica than the former leader leads.
func (f *fleet) otherLeader(former *member) (leader *member) {
	f.t.Helper()
	await.Until(f.t, "another leader than "+former.name, func() bool {
		leader, _ = f.leader()
		return leader != former
	})
	return leader
}

// standby is one of the replicas that do not lead.
func (f *fleet) standby(leader *member, n int) *member {
	i := slices.Index(f.members, leader)
	return f.members[(i+1+n%(len(f.members)-1))%len(f.members)]
}

// read adds up a metric of a replica.
func (m *member) read(name string, labels ...string) float64 {
	m.t.Helper()
	ctx, cancel := await.Context(m.t)
	defer cancel()
	read, err := m.process().Metrics(ctx, m.cluster.Config())
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return read.Sum(name, labels...)
}
