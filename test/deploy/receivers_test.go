package deploy

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// exampleReceivers is eventd with receivers that need files, a volume and a port, as
// docs/receivers.md has them.
const exampleReceivers = repository + "/examples/receivers"

// Not beside tests that delete what it is about to patch.
func TestExampleOfReceiversIsTakenByAnApiserverThatIsStrict(t *testing.T) {
	if _, err := cluster.Kubectl(t.Context(), "apply", "-k", exampleReceivers, "--validate=strict", "--dry-run=server"); err != nil {
		t.Error(err)
	}
}

// Every file of the configuration is in a volume, and the destination is reached.
func TestExampleOfReceiversFitsTogether(t *testing.T) {
	t.Parallel()
	stream := configurationOf(t, exampleReceivers).Receivers[0].JetStream
	for _, file := range []string{stream.CredentialsFile, stream.TLS.CAFile} {
		if volume, mount := mounted(t, exampleReceivers, observe, file); volume.Secret == nil || !mount.ReadOnly {
			t.Errorf("%s is not in a Secret: %+v", file, mount)
		}
	}
	config := slices.IndexFunc(containerOf(t, exampleReceivers, observe).Args, func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	_, file, _ := strings.Cut(containerOf(t, exampleReceivers, observe).Args[config], "=")
	if volume, _ := mounted(t, exampleReceivers, observe, file); volume.ConfigMap == nil || volume.ConfigMap.Name != observe+"-configuration" {
		t.Errorf("%s is not in the ConfigMap", file)
	}
	server, err := url.Parse(stream.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range rendered(t, exampleReceivers) {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok && policy.Name == observe && !allows(policy, server.Port()+" TCP") {
			t.Errorf("the network policy does not allow port %s", server.Port())
		}
	}
}

// A kubelet creates the folder of a mount, which it cannot below one that is read-only.
func TestNoVolumeIsMountedBelowAnother(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{manifests, complete, example, exampleReceivers} {
		mounts := containerOf(t, folder, observe).VolumeMounts
		for _, inner := range mounts {
			for _, outer := range mounts {
				if strings.HasPrefix(inner.MountPath, outer.MountPath+"/") {
					t.Errorf("%s: %s is below %s", folder, inner.MountPath, outer.MountPath)
				}
			}
		}
	}
}

// mounted returns the volume that has a file, at the first level of its mount.
func mounted(t *testing.T, folder, name, file string) (corev1.Volume, corev1.VolumeMount) {
	t.Helper()
	pod := deploymentOf(t, folder, name).Spec.Template.Spec
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.MountPath != path.Dir(file) {
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name == mount.Name {
				return volume, mount
			}
		}
	}
	t.Fatalf("%s is in no volume", file)
	panic("unreachable")
}
