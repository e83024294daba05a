package cluster

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

const exampleNamespace = "eventd-example"

// The example of a controller reports in a Pod, with its rights, when Deployments become available and unavailable. Each Event is
// stored once, and nothing that it has recorded is lost when its Pod is deleted.
func TestTheExampleOfAControllerReportsFromAPod(t *testing.T) {
	install(t)
	kubectl(t, "create", "namespace", exampleNamespace)
	copyAuthority(t, exampleNamespace)
	kubectl(t, "apply", "-k", "../../examples/controller")
	kubectl(t, "-n", exampleNamespace, "rollout", "status", "--timeout=180s", "deployment/controller")
	const count = 4
	for i := range count {
		apply(t, fmt.Sprintf(watchedDeployment, i))
	}
	reportedAs(t, "Available", count)

	// No registry has the image. eventd answers nothing of what that causes before the controller gets SIGTERM.
	signal := func(name string) {
		for _, pod := range podsOf(t, intake) {
			inContainer(t, pod, "kill -"+name+" $p")
		}
	}
	signal("STOP")
	resume := sync.OnceFunc(func() { signal("CONT") })
	defer resume()
	kubectl(t, "-n", exampleNamespace, "set", "image", "deployment", "--selector=watched", "app=registry.invalid/none:v1")
	recorded := deleteController(t, count, resume)
	t.Logf("recorded: %v", recorded)
	if recorded["Available"] < count || recorded["Unavailable"] < count {
		t.Error("it has not recorded all, or not logged it")
	}
	reportedAs(t, "Unavailable", count)
	kubectl(t, "delete", "--wait=false", "-k", "../../examples/controller")
}

// watchedDeployment is admitted where restricted Pod Security is enforced.
const watchedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-%[1]d, namespace: eventd-example, labels: {watched: ""}}
spec:
  strategy: {type: Recreate}
  minReadySeconds: 5 # it is seen before it is available
  selector: {matchLabels: {app: web-%[1]d}}
  template:
    metadata: {labels: {app: web-%[1]d}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: app
          image: busybox:1.35
          command: [sleep, "36000"]
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// reportedAs waits until there are Events of a reason about so many Deployments, or more. Each has one.
func reportedAs(t *testing.T, reason string, atLeast int) {
	t.Helper()
	about := map[corev1.ObjectReference][]corev1.Event{}
	await.Within(t, startTimeout, fmt.Sprintf("%d Deployments are reported as %s", atLeast, reason), func() bool {
		list, err := client.CoreV1().Events(exampleNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			t.Fatal(err)
		}
		clear(about)
		for _, event := range list.Items {
			if event.InvolvedObject.Name != "controller" { // which is a Deployment of the namespace, too
				object := event.InvolvedObject
				object.ResourceVersion = ""
				about[object] = append(about[object], event)
			}
		}
		return len(about) >= atLeast
	})
	want := map[string]corev1.Event{
		"Available":   {Type: corev1.EventTypeNormal, Message: "1 of 1 replicas are available"},
		"Unavailable": {Type: corev1.EventTypeWarning, Message: "0 of 1 replicas are available"},
	}[reason]
	for object, events := range about {
		deployment, err := client.AppsV1().Deployments(exampleNamespace).Get(t.Context(), object.Name, metav1.GetOptions{})
		if err != nil || object.Kind != "Deployment" || object.APIVersion != "apps/v1" || object.UID != deployment.UID {
			t.Errorf("%v: %v", object, err)
		}
		if e := events[0]; len(events) > 1 || stored.Count(&e) != 1 || !writtenByEventd(e) || e.Type != want.Type || e.Message != want.Message ||
			e.ReportingController != "example.com/controller" {
			t.Errorf("%s has %d Events of %s, such as %+v", object.Name, len(events), reason, e)
		}
	}
}

// deleteController deletes the Pod of the controller when its log has so many Deployments that are unavailable. It calls drains when
// the Pod begins to end, and returns how often its log has each reason.
func deleteController(t *testing.T, unavailable int, drains func()) map[string]int {
	t.Helper()
	pods, err := client.CoreV1().Pods(exampleNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=controller"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods (%v)", len(pods.Items), err)
	}
	name := pods.Items[0].Name
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	logs := command(ctx, "kubectl", "-n", exampleNamespace, "logs", "--follow", name)
	out, err := logs.StdoutPipe()
	if err == nil {
		err = logs.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]int{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Reporting what is pending") {
			drains()
		}
		found := aboutWatched.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		if recorded[found[1]]++; found[1] == "Unavailable" && recorded[found[1]] == unavailable {
			if err := client.CoreV1().Pods(exampleNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := logs.Wait(); err != nil {
		t.Fatalf("the log of %s: %v, %v", name, err, recorded)
	}
	return recorded
}

// aboutWatched is a line of the log about one of the Deployments.
var aboutWatched = regexp.MustCompile(`"Event occurred" object="eventd-example/web-\d+" .*reason="(\w+)"`)
