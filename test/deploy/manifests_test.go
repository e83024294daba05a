package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/await"
)

// complete is deploy/ with all of its options, as an overlay would have it.
var complete = filepath.Join("testdata", "complete")

func TestManifestsAreTakenByAnApiserverThatIsStrict(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{manifests, complete} {
		for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
			out, err := cluster.Kubectl(t.Context(), append(how, "apply", "-k", folder, "--validate=strict", "--dry-run=server", "-o=name")...)
			if err != nil {
				t.Error(err)
			}
			for _, kind := range []string{
				"serviceaccount", "role.rbac.authorization.k8s.io", "clusterrole.rbac.authorization.k8s.io", "lease.coordination.k8s.io",
				"deployment.apps", "poddisruptionbudget.policy", "service", "networkpolicy.networking.k8s.io",
			} {
				if !strings.Contains("\n"+string(out), "\n"+kind+"/eventd") {
					t.Errorf("%s has no %s:\n%s", folder, kind, out)
				}
			}
		}
	}
}

func TestPageNamesTheKubernetesThatItIsTestedWith(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "deployment.md"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := administrator().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "tested with "+version.GitVersion+".") {
		t.Errorf("docs/deployment.md does not say that it is tested with %s", version.GitVersion)
	}
}

// podOf is what a Deployment's controller would make of its template.
func podOf(t *testing.T) *corev1.Pod {
	template := deployment(t).Spec.Template
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "eventd-", Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

func TestPodIsAdmittedWhereRestrictedIsEnforced(t *testing.T) {
	t.Parallel()
	client := administrator()
	namespace := cluster.Namespace(t)
	_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(pod *corev1.Pod) error {
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	// The admission plugin learns of the label by watching.
	if err := await.Success(t.Context(), await.Timeout, func() error {
		pod := podOf(t)
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports[0].HostPort = pod.Spec.Containers[0].Ports[0].ContainerPort
		if err := create(pod); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a Pod on the network of its node: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal("restricted is not enforced: ", err)
	}
	for name, spoil := range map[string]func(*corev1.PodSpec){
		"root":                 func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"seccomp":              func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"capabilities":         func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"privilege escalation": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
	} {
		pod := podOf(t)
		spoil(&pod.Spec)
		if err := create(pod); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := create(podOf(t)); err != nil {
		t.Error(err)
	}
}

// The restricted level does not require this.
func TestContainerHasNothingToWriteTo(t *testing.T) {
	t.Parallel()
	c := container(t)
	if !ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false) {
		t.Error("its root can be written")
	}
	for _, mount := range c.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("%s can be written", mount.MountPath)
		}
	}
}

// pinned is an image with a version or a digest.
var pinned = regexp.MustCompile(`^[^:@]+(:v\d+\.\d+\.\d+\S*|(:\S+)?@sha256:[0-9a-f]{64})$`)

// Nothing that runs is named by a tag that moves.
func TestImagesHaveAVersion(t *testing.T) {
	images := 0
	for _, folder := range []string{manifests, complete} {
		for _, object := range rendered(t, folder) {
			d, ok := object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
				images++
				if !pinned.MatchString(c.Image) {
					t.Errorf("%s: the image %q has neither a version nor a digest", folder, c.Image)
				}
			}
		}
	}
	if images < 2 {
		t.Errorf("only %d images", images)
	}
}
