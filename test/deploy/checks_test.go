package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/election"
)

// scene is an eventd with a client that reports to it.
type scene struct {
	account   string
	leader    *replica // the first to be started
	standby   *replica // nil until a check needs one
	namespace string
	reporter  *rest.Config
	patience  time.Duration // of one check
}

// setScene starts an eventd as account, and does not wait for it. Its client is
// a ServiceAccount with the rights that recorders have.
func setScene(t *testing.T, account string, patience time.Duration) *scene {
	t.Helper()
	s := &scene{account: account, leader: start(t, account), namespace: cluster.Namespace(t), patience: patience}
	s.reporter = makeReporter(t, s.namespace)
	return s
}

// check is something that eventd does for those who run it. It fails if eventd
// does not.
type check func(t *testing.T, s *scene) error

func starts(t *testing.T, s *scene) error { return s.leader.serves(t) }

// startsWithoutStreams is for an apiserver that does not stream lists: those
// before 1.34.
func startsWithoutStreams(t *testing.T, s *scene) error {
	s.standby = start(t, s.account, "KUBE_FEATURE_WatchListClient=false")
	return s.standby.servesWithin(t, s.patience)
}

func leads(t *testing.T, s *scene) error {
	if err := s.leader.serves(t); err != nil {
		return err
	}
	return s.leads(t, s.leader)
}

// followsTheClientCA is not only to know the CA of the start.
func followsTheClientCA(t *testing.T, s *scene) error {
	return within(t, s.patience, func() error {
		for _, request := range requests(t, s.account) {
			need, _ := request.needs()
			if need.verb != "watch" || need.resource != "configmaps" {
				continue
			}
			if request.refused() {
				return permanent{errors.New("it may not watch configmaps")}
			}
			return nil
		}
		return errors.New("it does not watch configmaps")
	})
}

func takesAnEvent(t *testing.T, s *scene) error {
	if err := leads(t, s); err != nil {
		return err
	}
	return s.takes(t, s.leader, classic(s.namespace, "taken"))
}

func takesANewStyleEvent(t *testing.T, s *scene) error {
	if err := leads(t, s); err != nil {
		return err
	}
	return s.takes(t, s.leader, newStyle(s.namespace, "taken-new-style"))
}

func countsARepeat(t *testing.T, s *scene) error {
	return s.counts(t, "repeated", func() any { return classic(s.namespace, "repeated") })
}

func countsANewStyleRepeat(t *testing.T, s *scene) error {
	return s.counts(t, "repeated-new-style", func() any { return newStyle(s.namespace, "repeated-new-style") })
}

// answersItsProbes asks as a kubelet does: without saying who it is, or
// verifying who answers.
func answersItsProbes(t *testing.T, s *scene) error {
	c := container(t)
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
			return fmt.Errorf("it is probed at %+v", probe.HTTPGet)
		}
		for _, r := range []*replica{s.leader, s.standby} {
			if err := r.ready(t); err != nil {
				return err
			}
			code, body, err := ask(t, r.anonymous(t), http.MethodGet, r.config.Host+probe.HTTPGet.Path, nil)
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("%s is answered %d %s (%v)", probe.HTTPGet.Path, code, body, err)
			}
		}
	}
	return nil
}

// staysWhenAppliedAgain is an upgrade of deploy/ that changes nothing: what the
// Lease says is eventd's.
func staysWhenAppliedAgain(t *testing.T, s *scene) error {
	leases := administrator(t).CoordinationV1().Leases(metav1.NamespaceSystem)
	before, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		if _, err := kubectl(t.Context(), append(how, "apply", "-k", manifests, "--validate=strict")...); err != nil {
			return err
		}
	}
	after, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	const leader = election.AnnouncementAnnotation
	if !reflect.DeepEqual(before.Spec, after.Spec) || before.Annotations[leader] == "" || after.Annotations[leader] != before.Annotations[leader] {
		return fmt.Errorf("the Lease says %v %v, and said %v %v", after.Spec, after.Annotations, before.Spec, before.Annotations)
	}
	return nil
}

// putsItsLeaseBack is that of a leader. It does not wait for the next renewal,
// which would be minutes later.
func putsItsLeaseBack(t *testing.T, s *scene) error {
	if err := leads(t, s); err != nil {
		return err
	}
	leases := administrator(t).CoordinationV1().Leases(metav1.NamespaceSystem)
	before, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := leases.Delete(t.Context(), s.account, metav1.DeleteOptions{}); err != nil {
		return err
	}
	var after *coordinationv1.Lease
	err = within(t, s.patience, func() (err error) {
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

// passesOn is what a standby does: nothing is recorded there.
func passesOn(t *testing.T, s *scene) error {
	if err := s.takes(t, s.standby, classic(s.namespace, "passed-on")); err != nil {
		return err
	}
	metrics, err := s.standby.metrics(t)
	if err == nil && recorded.MatchString(metrics) {
		err = fmt.Errorf("the standby has recorded it: %s", recorded.FindString(metrics))
	}
	return err
}

// handsOver ends the leader. A standby that does not watch the Lease would look
// at it minutes later.
func handsOver(t *testing.T, s *scene) error {
	if err := leads(t, s); err != nil {
		return err
	}
	if s.standby == nil {
		s.standby = start(t, s.account)
	}
	if err := s.standby.serves(t); err != nil {
		return err
	}
	// A standby that has not looked at the Lease yet would find it free.
	if err := s.standby.ready(t); err != nil {
		return err
	}
	if err := s.leader.terminate(t); err != nil {
		return err
	}
	return s.leads(t, s.standby)
}

// ready waits until r knows who leads.
func (r *replica) ready(t *testing.T) error {
	t.Helper()
	client := r.anonymous(t)
	return within(t, deadline, func() error {
		code, body, err := ask(t, client, http.MethodGet, r.config.Host+"/readyz", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("it is not ready: %s", body)
		}
		return err
	})
}

func (s *scene) leads(t *testing.T, r *replica) error {
	return within(t, s.patience, func() error {
		metrics, err := r.metrics(t)
		if err == nil && !leading.MatchString(metrics) {
			err = errors.New("it does not lead")
		}
		return err
	})
}

var (
	leading  = regexp.MustCompile(`(?m)^eventd_election_leading 1$`)
	recorded = regexp.MustCompile(`(?m)^eventd_occurrences_recorded_total\{.*\} [^0].*$`)
	pending  = regexp.MustCompile(`(?m)^eventd_occurrences_pending\{.*\} [^0].*$`)
)

// metrics reads them as the administrator, who needs no review of who that is and
// what they may do.
func (r *replica) metrics(t *testing.T) (string, error) {
	t.Helper()
	code, body, err := ask(t, r.as(t, cluster.Config()), http.MethodGet, r.config.Host+"/metrics", nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("metrics are answered %d: %s", code, body)
	}
	return body, err
}

// takes posts an Event, once.
func (s *scene) takes(t *testing.T, r *replica, event any) error {
	path := "/api/v1/namespaces/"
	if _, ok := event.(*eventsv1.Event); ok {
		path = "/apis/events.k8s.io/v1/namespaces/"
	}
	code, body, err := ask(t, r.as(t, s.reporter), http.MethodPost, r.config.Host+path+s.namespace+"/events", event)
	if err != nil {
		return err
	}
	if code != http.StatusCreated && code != http.StatusAccepted {
		return fmt.Errorf("an Event is answered %d: %s", code, body)
	}
	return nil
}

// counts posts two Events of one series.
func (s *scene) counts(t *testing.T, object string, event func() any) error {
	if err := leads(t, s); err != nil {
		return err
	}
	if err := s.takes(t, s.leader, event()); err != nil {
		return err
	}
	err := s.takes(t, s.leader, event())
	if err == nil {
		err = s.counted(t, object, 2)
	}
	if err != nil {
		return fmt.Errorf("the repeat is not counted: %w", err)
	}
	return nil
}

// counted waits until eventd owes nothing, and looks at what is stored.
func (s *scene) counted(t *testing.T, object string, want int32) error {
	err := within(t, s.patience, func() error {
		metrics, err := s.leader.metrics(t)
		if err == nil && pending.MatchString(metrics) {
			err = fmt.Errorf("it owes something: %s", pending.FindString(metrics))
		}
		return err
	})
	if err != nil {
		return err
	}
	stored, err := administrator(t).EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range stored.Items {
		if e.Regarding.Name != object {
			continue
		}
		got := max(1, e.DeprecatedCount)
		if e.Series != nil {
			got = e.Series.Count
		}
		if got != want {
			return fmt.Errorf("the count of %s is %d, not %d", object, got, want)
		}
		return nil
	}
	return fmt.Errorf("%s has no Event", object)
}

// ask makes one request.
func ask(t *testing.T, client *http.Client, method, url string, body any) (code int, answer string, err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(content))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), err
}

func classic(namespace, object string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: object + ".", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: object},
		Source:         corev1.EventSource{Component: "deploy"},
		Type:           corev1.EventTypeNormal, Reason: "Tested", Message: "It was tested.",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

func newStyle(namespace, object string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: object + "-", Namespace: namespace},
		EventTime:           metav1.NowMicro(),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: object},
		ReportingController: "eventd.example/deploy", ReportingInstance: "deploy-0",
		Action: "Testing", Type: corev1.EventTypeNormal, Reason: "Tested", Note: "It was tested.",
	}
}
