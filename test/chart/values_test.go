package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
)

// refused renders values, which must not match the schema at a path.
func refused(t *testing.T, values map[string]any, path string) {
	t.Helper()
	_, err := template(load(t, folder), "kube-system", values)
	if err == nil || !strings.Contains(err.Error(), "schema") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v: got %v, want an error of the schema with %q", values, err, path)
	}
}

// Each value with another type, one at a time.
func TestValueOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	for _, row := range documented(t) {
		var wrong any = 17.5
		if row.scalar() {
			wrong = []any{"wrong"}
		}
		refused(t, nested(row.path, wrong), "'/"+strings.Join(row.path, "/")+"'")
	}
}

// An unknown key beside each value, such as one that is misspelled.
func TestUnknownKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, row := range documented(t) {
		path := append([]string{}, row.path...)
		path[len(path)-1] += "x"
		refused(t, nested(path, "unknown"), "'"+path[len(path)-1]+"' not allowed")
	}
}

// Helm removes a value that is null. A template would render nothing in its place.
func TestValueThatIsRemovedIsRefused(t *testing.T) {
	t.Parallel()
	optional := []string{
		"nodeSelector", "tolerations", "affinity", "priorityClassName",
	}
	for _, role := range []string{"intake.", "observe."} {
		for _, name := range []string{"resources.requests", "resources.limits", "extraArgs", "extraVolumes", "extraVolumeMounts", "extraEgress"} {
			optional = append(optional, role+name)
		}
	}
	for _, row := range documented(t) {
		values := nested(row.path, nil)
		if !slices.Contains(optional, strings.Join(row.path, ".")) {
			refused(t, values, "missing property '"+row.path[len(row.path)-1]+"'")
		} else if _, err := template(load(t, folder), "kube-system", values); err != nil {
			t.Errorf("%v: %v", values, err)
		}
	}
	for _, key := range []string{"image", "networkPolicy", "intake", "observe", "flowcontrol", "servingCA", "certificate", "apiservice", "monitoring"} {
		refused(t, map[string]any{key: nil}, "missing property '"+key+"'")
	}
}

// nested is {a: {b: value}} for the path a, b.
func nested(path []string, value any) map[string]any {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	return map[string]any{path[0]: value}
}

func TestWrongValueIsRefused(t *testing.T) {
	t.Parallel()
	for values, path := range map[string]string{
		`image: {repository: ""}`:                                       "/image/repository",
		`image: {repository: "a b"}`:                                    "/image/repository",
		`image: {tag: "a:b"}`:                                           "/image/tag",
		`image: {digest: sha256:` + digest[1:] + `}`:                    "/image/digest",
		`image: {pullPolicy: Sometimes}`:                                "/image/pullPolicy",
		`image: {pullSecrets: [registry]}`:                              "/image/pullSecrets/0",
		`intake: {replicas: 0}`:                                         "/intake/replicas",
		`observe: {replicas: "2"}`:                                      "/observe/replicas",
		`intake: {resources: {request: {}}}`:                            "/intake/resources",
		`intake: {resources: {requests: {cpu: some}}}`:                  "/intake/resources/requests/cpu",
		`intake: {resources: {limits: {memory: 8Gi}}}`:                  "/intake/resources/limits",  // without goMemLimit
		`observe: {goMemLimit: 7GiB}`:                                   "/observe/resources/limits", // without a limit
		`intake: {goMemLimit: 7Gi, resources: {limits: {memory: 8Gi}}}`: "/intake/goMemLimit",
		`observe: {historyBytes: many}`:                                 "/observe/historyBytes",
		`intake: {extraArgs: [v=2]}`:                                    "/intake/extraArgs/0",
		`observe: {extraVolumes: [{emptyDir: {}}]}`:                     "/observe/extraVolumes/0",
		`observe: {extraVolumeMounts: [{mountPath: /x}]}`:               "/observe/extraVolumeMounts/0",
		`nodeSelector: {zone: 1}`:                                       "/nodeSelector/zone",
		`tolerations: [master]`:                                         "/tolerations/0",
		`affinity: {podAntiAfinity: {}}`:                                "/affinity",
		`priorityClassName: System`:                                     "/priorityClassName",
		`networkPolicy: {apiserverPorts: []}`:                           "/networkPolicy/apiserverPorts",
		`networkPolicy: {apiserverPorts: [https]}`:                      "/networkPolicy/apiserverPorts/0",
		`networkPolicy: {apiserverPorts: [70000]}`:                      "/networkPolicy/apiserverPorts/0",
		`networkPolicy: {dnsPorts: []}`:                                 "/networkPolicy/dnsPorts",
		`networkPolicy: {dnsPorts: [dns]}`:                              "/networkPolicy/dnsPorts/0",
		`networkPolicy: {apiserverCIDRs: [10.0.0.1]}`:                   "/networkPolicy/apiserverCIDRs/0",
		`observe: {extraEgress: [4222]}`:                                "/observe/extraEgress/0",
		`observe: {clusterName: ""}`:                                    "/observe/clusterName",
		`observe: {configuration: {kind: Pod}}`:                         "/observe/configuration/kind",
		`intake: {configuration: {apiVersion: v1}}`:                     "/intake/configuration/apiVersion",
		`observe: {configuration: {receivers: [{otlp: {}}]}}`:           "/observe/configuration/receivers/0",
		`certificate: {secretName: ""}`:                                 "/certificate/secretName",
		`apiservice: {caBundle: "-----BEGIN"}`:                          "/apiservice/caBundle",
		// One step beyond what each pattern allows.
		`image: {tag: a/b}`:                         "/image/tag",
		`image: {tag: .a}`:                          "/image/tag",
		`image: {pullSecrets: [{name: a, key: b}]}`: "/image/pullSecrets/0",
		`intake: {goMemLimit: 0B, resources: {limits: {memory: 8Gi}}}`:                       "/intake/goMemLimit",
		`observe: {goMemLimit: 5GiB, resources: {limits: {memory: 6Gi}}, historyBytes: "0"}`: "/observe/historyBytes",
		`intake: {extraArgs: [-v=2]}`:                                                        "/intake/extraArgs/0",
		`networkPolicy: {apiserverPorts: [0]}`:                                               "/networkPolicy/apiserverPorts/0",
		`networkPolicy: {apiserverCIDRs: [all 10.0.0.0/24]}`:                                 "/networkPolicy/apiserverCIDRs/0",
		`certificate: {secretName: a b}`:                                                     "/certificate/secretName",
		`monitoring: {labels: {release: 1}}`:                                                 "/monitoring/labels/release",
		`monitoring: {prometheus: {namespace: ""}}`:                                          "/monitoring/prometheus/namespace",
	} {
		refused(t, parse(t, values), "'"+path+"'")
	}
}

// Values that do not go together are refused with a sentence.
func TestValuesThatDoNotGoTogetherAreRefused(t *testing.T) {
	t.Parallel()
	const needsACA = "apiservice.enabled needs certificate.enabled, or servingCA.enabled and apiservice.caBundle"
	for values, want := range map[string]string{
		`{intake: {enabled: false}, observe: {enabled: false}}`:                                  "nothing is installed: intake.enabled and observe.enabled are both false",
		`observe: {historyBytes: 256Mi}`:                                                         "observe.historyBytes needs observe.goMemLimit and observe.resources.limits.memory",
		`apiservice: {enabled: true}`:                                                            needsACA,
		`{apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBD}, servingCA: {enabled: false}}`: needsACA,
	} {
		if _, err := template(load(t, folder), "kube-system", parse(t, values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", values, err, want)
		}
	}
}

// Helm passes "global" to the charts that another one depends on.
func TestChartOfAnotherOne(t *testing.T) {
	t.Parallel()
	parent := &helmchart.Chart{
		Metadata: &helmchart.Metadata{APIVersion: "v2", Name: "platform", Version: "1.0.0"},
		Values:   parse(t, `{global: {region: north}, eventd: {intake: {replicas: 3}}}`),
	}
	parent.AddDependency(load(t, folder))
	release, err := template(parent, "kube-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	deployment := decode(t, release.Manifest)["apps/v1 Deployment kube-system/eventd-intake"]
	if got := deployment["spec"].(map[string]any)["replicas"]; fmt.Sprint(got) != "3" {
		t.Errorf("%v replicas", got)
	}
}
