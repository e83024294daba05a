package deploy

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/stored"
)

// scene is an eventd with a client that reports to it.
type scene struct {
	account   string
	leader    *replica.Replica // the first to be started
	standby   *replica.Replica // nil until a check needs one
	namespace string
	reporter  *rest.Config
	patience  time.Duration // with what may never happen; a check waits for all else until await.Timeout
}

// setScene starts an eventd as account, and does not wait until it serves.
func setScene(t *testing.T, account string, patience time.Duration) *scene {
	t.Helper()
	s := &scene{account: account, leader: start(t, account), namespace: cluster.Namespace(t), patience: patience}
	s.reporter = replica.Reporter(t, cluster, s.namespace)
	return s
}

// check is a function of eventd. It returns an error if eventd does not work.
type check func(t *testing.T, s *scene) error

func starts(t *testing.T, s *scene) error { return serves(t, s.leader) }

// startsWithoutStreams is for an apiserver that does not stream lists: those
// before 1.34.
func startsWithoutStreams(t *testing.T, s *scene) error {
	s.standby = start(t, s.account, "KUBE_FEATURE_WatchListClient=false")
	return s.standby.WaitServing(t.Context(), s.patience)
}

func leads(t *testing.T, s *scene) error { return s.leads(t, s.leader, s.patience) }

// waitLeading is what most checks begin with.
func (s *scene) waitLeading(t *testing.T) error { return s.leads(t, s.leader, await.Timeout) }

// followsTheClientCA is for a CA that changes after the start.
func followsTheClientCA(t *testing.T, s *scene) error {
	return s.follows(t, "configmaps", "extension-apiserver-authentication")
}

// follows waits until eventd watches an object, or is refused to.
func (s *scene) follows(t *testing.T, resource, name string) error {
	return await.Success(t.Context(), await.Timeout, func() error {
		for _, request := range cluster.Audited(t, s.account) {
			need, _ := needed(&request)
			if need.verb != "watch" || need.resource != resource || need.name != name {
				continue
			}
			if request.Refused() {
				return await.Permanent(fmt.Errorf("it may not watch %s/%s", resource, name))
			}
			return nil
		}
		return fmt.Errorf("it does not watch %s/%s", resource, name)
	})
}

func takes(event func(namespace, object string) any) check {
	return func(t *testing.T, s *scene) error {
		if err := s.waitLeading(t); err != nil {
			return err
		}
		return s.takes(t, s.leader, event(s.namespace, "taken"))
	}
}

// counts posts two Events of one series.
func counts(object string, event func(namespace, object string) any) check {
	return func(t *testing.T, s *scene) error {
		if err := s.waitLeading(t); err != nil {
			return err
		}
		err := s.takes(t, s.leader, event(s.namespace, object))
		if err != nil {
			return err
		}
		if err = s.takes(t, s.leader, event(s.namespace, object)); err == nil {
			err = s.counted(t, object, 2)
		}
		if err != nil {
			return fmt.Errorf("the repeat is not counted: %w", err)
		}
		return nil
	}
}

func answersItsProbes(t *testing.T, s *scene) error {
	c := containerOf(t, manifests, intake)
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
			return fmt.Errorf("it is probed at %+v", probe.HTTPGet)
		}
		for _, r := range []*replica.Replica{s.leader, s.standby} {
			if err := ready(t, r); err != nil {
				return err
			}
			if a := get(t, r, probe.HTTPGet.Path); a.Code != http.StatusOK {
				return fmt.Errorf("%s is answered %v", probe.HTTPGet.Path, a)
			}
		}
	}
	return nil
}

// staysWhenAppliedAgain is an upgrade of deploy/ that changes nothing: it leaves the
// content of the Lease, and the CA, to eventd.
func staysWhenAppliedAgain(t *testing.T, s *scene) error {
	leases := administrator().CoordinationV1().Leases(metav1.NamespaceSystem)
	before, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := hasACertificate(t, s); err != nil {
		return err
	}
	secret, bundle := contentOfCA(t, s.account)
	if len(secret) == 0 || len(bundle) == 0 {
		return errors.New("there is no CA")
	}
	for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		if _, err := cluster.Kubectl(t.Context(), append(how, "apply", "-k", manifests, "--validate=strict")...); err != nil {
			return err
		}
	}
	after, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if newSecret, newBundle := contentOfCA(t, s.account); !reflect.DeepEqual(newSecret, secret) || !reflect.DeepEqual(newBundle, bundle) {
		return errors.New("the CA has changed")
	}
	const leader = election.AnnouncementAnnotation
	if !reflect.DeepEqual(before.Spec, after.Spec) || before.Annotations[leader] == "" || after.Annotations[leader] != before.Annotations[leader] {
		return fmt.Errorf("the Lease says %v %v, and said %v %v", after.Spec, after.Annotations, before.Spec, before.Annotations)
	}
	return nil
}

// putsItsLeaseBack is that of a leader, before the next renewal, which is minutes
// later.
func putsItsLeaseBack(t *testing.T, s *scene) error {
	if err := s.waitLeading(t); err != nil {
		return err
	}
	leases := administrator().CoordinationV1().Leases(metav1.NamespaceSystem)
	before, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := leases.Delete(t.Context(), s.account, metav1.DeleteOptions{}); err != nil {
		return err
	}
	var after *coordinationv1.Lease
	err = await.Success(t.Context(), s.patience, func() (err error) {
		if after, err = leases.Get(t.Context(), s.account, metav1.GetOptions{}); err != nil {
			err = fmt.Errorf("the Lease is not put back: %w", err)
		}
		return err
	})
	if err == nil && (after.UID == before.UID || *after.Spec.HolderIdentity != *before.Spec.HolderIdentity) {
		err = fmt.Errorf("the Lease says %v, and said %v", after.Spec, before.Spec)
	}
	return err
}

// passesOn is forwarding by a standby, which records nothing.
func passesOn(t *testing.T, s *scene) error {
	if err := s.takes(t, s.standby, classic(s.namespace, "passed-on")); err != nil {
		return err
	}
	m, err := metricsOf(t, s.standby)
	if err == nil && m.Sum("eventd_occurrences_recorded_total") > 0 {
		err = errors.New("the standby has recorded it")
	}
	return err
}

// handsOver ends the leader. A standby that does not watch the Lease would read it
// minutes later.
func handsOver(t *testing.T, s *scene) error {
	if err := s.waitLeading(t); err != nil {
		return err
	}
	if s.standby == nil {
		s.standby = start(t, s.account)
	}
	if err := serves(t, s.standby); err != nil {
		return err
	}
	// A standby that has not read the Lease yet would find it free.
	if err := ready(t, s.standby); err != nil {
		return err
	}
	s.leader.Terminate(t)
	return s.leads(t, s.standby, s.patience)
}

// ready waits until r is ready, which it is when it knows the leader.
func ready(t *testing.T, r *replica.Replica) error {
	t.Helper()
	return await.Success(t.Context(), await.Timeout, func() error {
		if a := get(t, r, "/readyz"); a.Code != http.StatusOK {
			return fmt.Errorf("it is not ready: %v", a)
		}
		return nil
	})
}

// get makes a request as a kubelet does: without credentials, and without verifying the
// server.
func get(t *testing.T, r *replica.Replica, path string) request.Answer {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	return request.Do(t.Context(), &http.Client{Transport: transport}, http.MethodGet, r.URL(path), "")
}

// leads waits until r serves, and then that long until it leads.
func (s *scene) leads(t *testing.T, r *replica.Replica, patience time.Duration) error {
	if err := serves(t, r); err != nil {
		return err
	}
	return await.Success(t.Context(), patience, func() error {
		m, err := metricsOf(t, r)
		if err == nil && m.Sum("eventd_election_leading") != 1 {
			err = errors.New("it does not lead")
		}
		return err
	})
}

// metricsOf reads metrics as the administrator, which takes no reviews by r.
func metricsOf(t *testing.T, r *replica.Replica) (metrics.Metrics, error) {
	return r.Metrics(t.Context(), cluster.Config())
}

// takes posts an Event, once.
func (s *scene) takes(t *testing.T, r *replica.Replica, event any) error {
	path := "/api/v1/namespaces/"
	if _, ok := event.(*eventsv1.Event); ok {
		path = "/apis/events.k8s.io/v1/namespaces/"
	}
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	a := request.Do(t.Context(), r.Client(t, s.reporter), http.MethodPost, r.URL(path+s.namespace+"/events"), string(body))
	if a.Err != nil || a.Code != http.StatusCreated && a.Code != http.StatusAccepted {
		return fmt.Errorf("an Event is answered %v", a)
	}
	return nil
}

// counted waits until nothing is pending, and compares what is stored.
func (s *scene) counted(t *testing.T, object string, want int64) error {
	err := await.Success(t.Context(), s.patience, func() error {
		m, err := metricsOf(t, s.leader)
		if pending := m.Sum("eventd_occurrences_pending"); err == nil && pending > 0 {
			err = fmt.Errorf("%v occurrences are pending", pending)
		}
		return err
	})
	if err != nil {
		return err
	}
	events := stored.ByObject(t, cluster, s.namespace)[object]
	if len(events) == 0 {
		return fmt.Errorf("%s has no Event", object)
	}
	if got := stored.Count(&events[0]); got != want {
		return fmt.Errorf("the count of %s is %d, not %d", object, got, want)
	}
	return nil
}

func classic(namespace, object string) any {
	event := replica.Event(namespace, "", object)
	event.GenerateName = object + "."
	return event
}

func newStyle(namespace, object string) any {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: object + "-", Namespace: namespace},
		EventTime:           metav1.NowMicro(),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: object},
		ReportingController: "eventd.example/deploy", ReportingInstance: "deploy-0",
		Action: "Testing", Type: corev1.EventTypeNormal, Reason: "Tested", Note: "It was tested.",
	}
}
