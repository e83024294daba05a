package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/upgrade"
)

// everything is an overlay with all components but the aggregated API.
func everything() overlay {
	return overlay{components: []string{"certificate", "monitoring"}, more: receivers}
}

// values are those of the chart for the same, in any release.
func values(tag string) string {
	return fmt.Sprintf(`
image: {repository: %s, tag: %q}
flowcontrol: {enabled: true}
certificate: {enabled: true}
monitoring: {enabled: true}
observe:
  configuration:
    receivers:
    %s
`, eventdImage, tag, strings.ReplaceAll(receiverList, "\n", "\n    "))
}

// Either way, all components are installed and removed as docs/deployment.md and docs/helm.md say: each does its work, and nothing
// is left but what others have made. With Helm there is an upgrade and a rollback in between; in a long run, the previous release
// is the first.
func TestEveryComponentWorksAndLeavesNothing(t *testing.T) {
	startCollector(t, "node-1")
	kubectl(t, "apply", "-f", "testdata/prometheus.yaml")
	kubectl(t, "wait", "--for=create", "--timeout=180s", "-n", "monitoring", "serviceaccount/default", "configmap/kube-root-ca.crt", "apiservice/v1.monitoring.coreos.com")
	authority := makeCertificate(t)
	for _, way := range []struct {
		name            string
		install, remove func(t *testing.T)
	}{
		{
			"kubectl",
			func(t *testing.T) { kubectl(t, "apply", "-k", everything().write(t)) },
			func(t *testing.T) { kubectl(t, "delete", "--ignore-not-found", "-k", everything().write(t)) },
		},
		{
			"helm",
			func(t *testing.T) {
				if *turns > 0 {
					helm(t, values(upgrade.Version), "install", "eventd", filepath.Join(previousDeploy, "chart"), "--values=-")
				} else {
					helm(t, values(*tag), "install", "eventd", chart, "--values=-", dnsPorts)
				}
				awaitRollout(t)
				helm(t, values(*tag), "upgrade", "eventd", chart, "--values=-", dnsPorts, "--set=intake.replicas=3")
				kubectl(t, "-n", system, "rollout", "status", "--timeout=180s", "deployment/"+intake)
				if replicas := len(nodesOf(t, intake)); replicas != 3 {
					t.Errorf("%d replicas after an upgrade to 3", replicas)
				}
				helm(t, "", "rollback", "eventd", "1")
				if *turns > 0 {
					awaitRollout(t)
					helm(t, values(*tag), "upgrade", "eventd", chart, "--values=-", dnsPorts)
				}
			},
			func(t *testing.T) { helm(t, "", "uninstall", "eventd") },
		},
	} {
		if *turns == 0 && way.name == "kubectl" {
			continue // by which all other tests install it, with fewer components
		}
		t.Run(way.name, func(t *testing.T) {
			before, dispatched := objects(t), dispatchedOf(t)
			way.install(t)
			awaitRollout(t)
			works(t, "by-"+way.name, authority)
			if dispatchedOf(t) == dispatched {
				t.Error("no request of eventd is of its FlowSchema")
			}
			if *turns > 0 { // a kubelet replaces the files within a minute
				authority = makeCertificate(t)
				works(t, "renewed-by-"+way.name, authority)
			}
			endReplicas(t)
			way.remove(t)
			err := await.Success(t.Context(), startTimeout, func() (err error) { // owners of some objects are removed before them
				after := objects(t)
				for _, key := range slices.Sorted(maps.Keys(after)) {
					if !before[key] {
						err = errors.Join(err, fmt.Errorf("%s is left", key))
					}
				}
				for _, key := range slices.Sorted(maps.Keys(before)) {
					if !after[key] {
						err = errors.Join(err, fmt.Errorf("%s is gone", key))
					}
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

const (
	chart    = "../../deploy/chart"
	dnsPorts = "--set=networkPolicy.dnsPorts={53,1053}" // as hack/cluster has it
)

// helm runs Helm in the namespace of eventd.
func helm(t *testing.T, in string, args ...string) {
	t.Helper()
	command := command(t.Context(), "helm", append([]string{"--namespace", system}, args...)...)
	command.Stdin = strings.NewReader(in)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("helm %q: %v\n%s", args, err, out)
	}
}

// endReplicas returns when no Pod of eventd is left.
func endReplicas(t *testing.T) {
	t.Helper()
	kubectl(t, "-n", system, "delete", "--ignore-not-found", "deployment", intake, observe, "--cascade=foreground")
	await.Within(t, startTimeout, "all replicas are gone", func() bool { return len(podsOf(t, intake))+len(podsOf(t, observe)) == 0 })
}

// makeCertificate makes or replaces the Secret that deploy/certificate names, and returns the CA of its certificate.
func makeCertificate(t *testing.T) (authority string) {
	t.Helper()
	var names []string
	for _, service := range []string{"eventd", observe} {
		names = append(names, service+"."+system+".svc")
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(names[0], nil, names)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "eventd-serving-certificate", Namespace: system}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}}
	_, err = client.CoreV1().Secrets(system).Update(t.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.CoreV1().Secrets(system).Create(t.Context(), secret, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, signer, _ := bytes.Cut(chain, []byte("-----END CERTIFICATE-----\n"))
	return string(signer)
}

// works fails the test unless each component does its work for a client in a namespace that it makes.
func works(t *testing.T, namespace, authority string) {
	t.Helper()
	apply(t, posterRights(namespace))
	for _, n := range []string{namespace, "monitoring"} {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "eventd-serving-ca"}, Data: map[string]string{"ca.crt": authority}}
		if _, err := client.CoreV1().ConfigMaps(n).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	defer kubectl(t, "-n", "monitoring", "delete", "configmap", "eventd-serving-ca")
	defer kubectl(t, "delete", "namespace", namespace)

	// The certificate, and the intake: a poster repeats what fails.
	r := resultOf(t, runPoster(t, namespace, "poster", "-run="+namespace, "-duration=2s", "-namespace="+namespace))
	if r.Posted == 0 || r.Accepted != r.Posted {
		t.Errorf("%+v", r)
	}
	// The history, and the delivery.
	delivered := func() (count int) {
		for _, record := range collected(t) {
			if record["k8s.event.reason"] == namespace && record["k8s.event.reporting_controller"] == "poster" {
				count++
			}
		}
		return count
	}
	await.Within(t, startTimeout, "all are kept, and delivered", func() bool {
		return strings.Count(kubectlEventd(t, "timeline", "-n", namespace, "--limit=5000"), "posted "+namespace+"-") == r.Posted && delivered() >= r.Posted
	})
	// Monitoring, and who may not see it.
	urls := []string{"-get=https://eventd.kube-system.svc/metrics", "-get=https://eventd-observe.kube-system.svc/metrics"}
	read := runPoster(t, "monitoring", "prometheus-k8s", urls...)
	for _, role := range []string{"intake", "observe"} {
		if !regexp.MustCompile(`eventd_build_info{.*role="` + role + `"`).MatchString(read) {
			t.Errorf("the metrics of %s are not in %.2000s", role, read)
		}
	}
	if out := runPoster(t, namespace, "poster", urls...); strings.Count(out, "403 Forbidden") != len(urls) {
		t.Errorf("an account without rights reads metrics: %.2000s", out)
	}
}

// dispatchedOf returns what the kube-apiserver has counted of the FlowSchema of eventd.
func dispatchedOf(t *testing.T) (lines string) {
	t.Helper()
	for line := range strings.Lines(kubectl(t, "get", "--raw", "/metrics")) {
		if strings.HasPrefix(line, `apiserver_flowcontrol_dispatched_requests_total{flow_schema="eventd",`) {
			lines += line
		}
	}
	return lines
}

// runPoster runs a poster as an account, and returns what it prints.
func runPoster(t *testing.T, namespace, account string, args ...string) string {
	t.Helper()
	name := "poster"
	apply(t, posterPod(namespace, name, "node-1", account, args...))
	var phase corev1.PodPhase
	await.Within(t, startTimeout, "the poster has ended", func() bool {
		pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			phase = pod.Status.Phase
		}
		return phase == corev1.PodSucceeded || phase == corev1.PodFailed
	})
	out := kubectl(t, "-n", namespace, "logs", name)
	if phase == corev1.PodFailed {
		t.Fatalf("%q has failed: %s", args, out)
	}
	kubectl(t, "-n", namespace, "delete", "pod", name)
	return out
}

// objects are all objects but Events, by resource, namespace and name.
func objects(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	resources := strings.Fields(kubectl(t, "api-resources", "--verbs=list,delete", "-o", "name"))
	resources = slices.DeleteFunc(resources, func(name string) bool { return strings.HasPrefix(name, "events") })
	out := kubectl(t, "get", strings.Join(resources, ","), "-A", "--no-headers", "-o", "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name")
	for line := range strings.Lines(out) {
		found[strings.Join(strings.Fields(line), " ")] = true
	}
	return found
}
