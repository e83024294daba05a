package intake_test

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// kubectl asks a server which fields it validates before it sends an Event. It says the same of eventd as of a
// kube-apiserver.
func TestKubectlSendsEvents(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	direct := cluster.ServiceAccount(t, namespace, "writer")
	cluster.Grant(t, namespace, "writer", rbacv1.PolicyRule{
		APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "get", "patch", "update"},
	})
	eventd := inFrontOf(t, cluster.Config())
	through := rest.CopyConfig(direct)
	through.Host = eventd.url
	through.CAFile, through.CAData = "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: eventd.certificate.Raw})

	newStyle := a(newEvent, fields{"metadata.name": "NAME-new", "nonsense": 1})
	for _, test := range []struct {
		command, manifest, want string
		unlike                  string // what it says of eventd
	}{
		{command: "create", manifest: a(coreClassic, nil), want: "event/NAME created"},
		{command: "create", manifest: a(coreClassic, nil), want: "already exists"},
		{command: "create", manifest: newStyle, want: `strict decoding error: unknown field "nonsense"`},
		{command: "create --validate=warn", manifest: newStyle, want: `Warning: unknown field "nonsense"`},
		{command: "create --validate=false", manifest: strings.Replace(newStyle, "new", "ignored", 1), want: "event.events.k8s.io/NAME-ignored created"},
		{command: "create --dry-run=server", manifest: a(coreClassic, fields{"metadata.name": "NAME-dry"}), want: "created (server dry run)"},
		{command: "create --validate=strict", manifest: "apiVersion: v1\nkind: List\nitems:\n- " + a(coreClassic, fields{"metadata.name": "NAME-listed"}),
			want: "event/NAME-listed created"},
		{command: "replace", manifest: a(coreClassic, fields{"count": 2}), want: "event/NAME replaced"},
		{command: "patch --patch={\"count\":3}", manifest: a(coreClassic, nil), want: "event/NAME patched"},
		// It reads the Event first.
		{command: "apply", manifest: a(coreClassic, fields{"count": 4}), want: "event/NAME configured", unlike: "Error from server (MethodNotAllowed)"},
		{command: "apply --server-side --force-conflicts", manifest: a(coreClassic, nil), want: "event/NAME serverside-applied", unlike: "Server-side apply not available on the server"},
	} {
		var said []string
		for server, config := range map[string]*rest.Config{"eventd": through, "apisrv": direct} {
			out := kubectlSends(t, config, test.command, strings.NewReplacer("NS", namespace, "NAME", "sent-to-"+server).Replace(test.manifest))
			out = strings.ReplaceAll(out, "sent-to-"+server, "NAME")
			if server == "eventd" && test.unlike != "" {
				if !strings.Contains(out, test.unlike) {
					t.Errorf("%s: %s", test.command, out)
				}
				continue
			}
			said = append(said, out)
		}
		if !strings.Contains(said[0], test.want) || said[0] != said[len(said)-1] {
			t.Errorf("%s: want %q of both servers, not\n%s", test.command, test.want, strings.Join(said, "\n"))
		}
	}
}

// kubectlSends returns what kubectl says when it sends a manifest.
func kubectlSends(t *testing.T, config *rest.Config, command, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(must(testenv.Binary(t.Context()))), "kubectl"),
		append(strings.Fields(command), "--filename=-", "--kubeconfig="+kubeconfig, "--cache-dir="+dir)...)
	cmd.Stdin = strings.NewReader(manifest)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its output says whether it succeeds
	return out.String()
}
