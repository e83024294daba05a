package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

const (
	repository = "../.."
	manifests  = repository + "/deploy"
)

var (
	// binary is eventd as it is in the image.
	binary string
	// cluster is a control plane with an audit log and with deploy/ applied as in the
	// documentation.
	cluster *testenv.ControlPlane
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(prepared{m})
}

// prepared runs tests with all of that.
type prepared struct{ m *testing.M }

func (p prepared) Run() int {
	dir, err := os.MkdirTemp("", "deploy-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(dir)
	}
	if cluster != nil {
		defer cluster.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		return 1
	}
	return p.m.Run()
}

func prepare(dir string) error {
	binary = filepath.Join(dir, "eventd")
	if err := buildStatic(context.Background(), repository, binary); err != nil {
		return fmt.Errorf("building eventd: %w", err)
	}
	admission := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte(eventRateLimit), 0o600); err != nil {
		return err
	}
	var err error
	cluster, err = testenv.Start(context.Background(), testenv.Options{Audit: true, APIServerArgs: []string{
		"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file=" + admission,
	}})
	if err != nil {
		return err
	}
	_, err = cluster.Kubectl(context.Background(), "apply", "-k", manifests, "--validate=strict")
	return err
}

// buildStatic builds the binary of the image from a copy of this repository, for
// this machine.
func buildStatic(ctx context.Context, source, file string) error {
	build := exec.CommandContext(ctx, filepath.Join(source, "hack/static.sh"), file)
	build.Env = append(os.Environ(), "GOOS="+runtime.GOOS, "VERSION=v0.0.0-test", "COMMIT=0123abcd")
	build.Stderr = os.Stderr
	return build.Run()
}

func administrator() kubernetes.Interface { return kubernetes.NewForConfigOrDie(cluster.Config()) }
