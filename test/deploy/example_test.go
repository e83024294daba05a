package deploy

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
)

// example is eventd with a collector, as docs/first-delivery.md has it installed.
const example = repository + "/examples/delivery"

// configurationOf returns the configuration of those that observe in a folder.
func configurationOf(t *testing.T, folder string) *configv1alpha1.EventdConfiguration {
	t.Helper()
	for _, object := range rendered(t, folder) {
		if c, ok := object.(*corev1.ConfigMap); ok && c.Name == observe+"-configuration" {
			config, err := configv1alpha1.Load([]byte(c.Data["configuration.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			return config
		}
	}
	t.Fatalf("%s has no configuration", folder)
	return nil
}

// exampleClient and exampleController are clients in Pods, by whose names the Deployments are.
const (
	exampleClient     = repository + "/examples/feeder"
	exampleController = repository + "/examples/controller"
)

var exampleClients = map[string]string{exampleClient: "feeder", exampleController: "controller"}

func TestExamplesInOtherNamespacesAreTakenByAnApiserverThatIsStrict(t *testing.T) {
	t.Parallel()
	for folder, name := range map[string]string{
		example: "eventd-collector", exampleClient: "eventd-demo", exampleController: "eventd-example",
	} {
		// A dry run does not make it for what is in it.
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := administrator().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Kubectl(t.Context(), "apply", "-k", folder, "--validate=strict", "--dry-run=server"); err != nil {
			t.Error(err)
		}
	}
}

// A client connects to the Service, verifies it by the CA that eventd publishes, and has its rights where it reports.
func TestExampleOfAClientFitsTogether(t *testing.T) {
	t.Parallel()
	for folder, name := range exampleClients {
		t.Run(name, func(t *testing.T) {
			args := containerOf(t, folder, name).Args
			server, _ := strings.CutPrefix(args[0], "--server=https://")
			if !slices.ContainsFunc(rendered(t, manifests), func(object runtime.Object) bool {
				service, ok := object.(*corev1.Service)
				return ok && service.Name+"."+service.Namespace+".svc" == server && service.Spec.Ports[0].Port == 443
			}) {
				t.Errorf("there is no Service for %s", args[0])
			}
			file, _ := strings.CutPrefix(args[1], "--certificate-authority=")
			volume, _ := mounted(t, folder, name, file)
			if volume.ConfigMap == nil || volume.ConfigMap.Name != "eventd-serving-ca" || !strings.HasSuffix(file, "/ca.crt") {
				t.Errorf("%s is not the CA of eventd", file)
			}
			for _, object := range rendered(t, folder) {
				if role, ok := object.(*rbacv1.Role); ok && args[2] != "--namespace="+role.Namespace {
					t.Errorf("it has %s, and rights in %s", args[2], role.Namespace)
				}
			}
		})
	}
}

// Who has installed eventd.yaml of a release, which is deploy/, and then applies the example, still has
// the history: kubectl apply takes away the flags that the example does not have.
func TestExampleOfDeliveryKeepsWhatIsInstalled(t *testing.T) {
	t.Parallel()
	have := containerOf(t, example, observe).Args
	for _, flag := range containerOf(t, manifests, observe).Args {
		if !slices.Contains(have, flag) {
			t.Errorf("it has no %s", flag)
		}
	}
}

// eventd delivers to the Service, the Service leads to the collector, and the collector listens
// there. TestExampleOfACollectorPrintsWhatIsDelivered runs the collector.
func TestExampleOfDeliveryFitsTogether(t *testing.T) {
	t.Parallel()
	receivers := configurationOf(t, example).Receivers
	endpoint, err := url.Parse(receivers[0].OTLP.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var service *corev1.Service
	var collector *appsv1.Deployment
	var config *corev1.ConfigMap
	var egress *networkingv1.NetworkPolicy
	for _, object := range rendered(t, example) {
		switch o := object.(type) {
		case *corev1.Service:
			if o.Name+"."+o.Namespace == endpoint.Hostname() {
				service = o
			}
		case *appsv1.Deployment:
			if o.Name == "collector" {
				collector = o
			}
		case *corev1.ConfigMap:
			if o.Name == "collector" {
				config = o
			}
		case *networkingv1.NetworkPolicy:
			if o.Name == observe {
				egress = o
			}
		}
	}
	if service == nil || collector == nil || config == nil || egress == nil {
		t.Fatalf("no Service of %s, no collector, no configuration or no network policy", endpoint)
	}
	template := collector.Spec.Template
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) || service.Namespace != collector.Namespace {
		t.Error("the Service does not select the collector")
	}
	port := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return endpoint.Port() == strconv.Itoa(int(p.Port)) })
	if port < 0 {
		t.Fatalf("the Service does not have the port of %s", endpoint)
	}
	if target := service.Spec.Ports[port].TargetPort.String(); target != "0" && target != endpoint.Port() {
		t.Errorf("the Service leads to port %s", target)
	}
	if !strings.Contains(config.Data["config.yaml"], ":"+endpoint.Port()+`"`) {
		t.Errorf("the collector does not listen on port %s", endpoint.Port())
	}
	if template.Spec.Volumes[0].ConfigMap.Name != config.Name {
		t.Error("the collector has another configuration")
	}
	if file := template.Spec.Containers[0].VolumeMounts[0].MountPath + "/config.yaml"; template.Spec.Containers[0].Args[0] != "--config="+file {
		t.Errorf("the collector does not read %s", file)
	}
	// Names are resolved, and the collector is reached.
	for _, want := range []string{"53 UDP", "53 TCP", endpoint.Port() + " TCP"} {
		if !allows(egress, want) {
			t.Errorf("the network policy of eventd does not allow %s", want)
		}
	}
}

// allows reports whether a policy lets something out to any address.
func allows(policy *networkingv1.NetworkPolicy, want string) bool {
	for _, rule := range policy.Spec.Egress {
		for _, p := range rule.Ports {
			if len(rule.To) == 0 && p.Port.String()+" "+string(*p.Protocol) == want {
				return true
			}
		}
	}
	return false
}
