package cluster

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/process"
)

var (
	parts  = flag.String("parts", "", "the `folder` that hack/cluster/build.sh prints; without it, nothing is tested")
	image  = flag.String("image", "", "the `archive` of eventd's image")
	tag    = flag.String("tag", "", "the `tag` of that image")
	turns  = flag.Int("turns", 0, "how `often` each disturbance happens; 0 is the short ones once, without limits of time")
	report = flag.String("report", "", "the `file` for the table of disturbances")
)

// The cluster of all tests, and its administrator.
var (
	dir    string
	config *rest.Config
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *parts == "" {
		fmt.Println("test/cluster: no cluster: make cluster-test")
		return
	}
	goleak.VerifyTestMain(runner{m})
}

// runner runs tests while a cluster runs.
type runner struct{ m *testing.M }

func (r runner) Run() (code int) {
	end, err := start()
	if err == nil {
		code = r.m.Run()
	}
	if end != nil {
		err = errors.Join(err, end())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/cluster:", err)
		return 1
	}
	return code
}

// startTimeout is for a start on a busy machine. An idle one takes 10 s.
const startTimeout = 3 * time.Minute

// start starts the cluster, and returns when it is ready.
func start() (end func() error, err error) {
	work, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return nil, err
	}
	poster, err := pack(work, "poster", "./poster", posterImage)
	if err != nil {
		return nil, err
	}
	feeder, err := pack(work, "feeder", "../../examples/feeder", "registry.example/feeder:v0.1.0") // as examples/feeder names it
	if err != nil {
		return nil, err
	}
	controller, err := pack(work, "controller", "../../examples/controller", "registry.example/controller:v0.1.0") // as examples/controller names it
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(filepath.Dir(*parts), "cluster-test")
	command := exec.Command(filepath.Join(*parts, "cluster"), "up", "-exit-on-stdin-eof", "-dir", dir, "-parts", *parts, "-nodes", "2", "-disk", "2g", "-image", *image, "-image", poster, "-image", feeder, "-image", controller)
	process.Group(command)
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	command.Stdout = in
	up, err := process.Start("cluster up", "", command)
	if err != nil {
		return nil, err
	}
	end = func() error {
		in.Close()
		timeout := time.AfterFunc(time.Minute, up.Kill)
		defer timeout.Stop()
		_ = up.Send(os.Interrupt)
		<-up.Done()
		return errors.Join(nothingIsLeft(), os.RemoveAll(work))
	}
	ready := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Println(lines.Text())
			if strings.Contains(lines.Text(), "export KUBECONFIG") {
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
	case <-up.Done():
		return end, up.Failure("ended")
	case <-time.After(startTimeout):
		return end, up.Failure("is not ready")
	}
	if config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig")); err != nil {
		return end, err
	}
	config.QPS = -1
	// Of files, client-go would watch for changes until the end of the process.
	if err := rest.LoadTLSFiles(config); err != nil {
		return end, err
	}
	config.CertFile, config.KeyFile, config.CAFile = "", "", ""
	client, err = kubernetes.NewForConfig(config)
	return end, err
}

// nothingIsLeft returns an error if the cluster has left a cgroup or its folder.
func nothingIsLeft() error {
	left, err := filepath.Glob("/sys/fs/cgroup/*/eventd-cluster-*")
	if _, err := os.Stat(dir); err == nil {
		left = append(left, dir)
	}
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("the cluster has left %q", left))
	}
	return err
}

// pack builds the image of a program.
func pack(work, name, folder, reference string) (archive string, err error) {
	binary, archive := filepath.Join(work, name), filepath.Join(work, name+".tar")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	pack := exec.Command(filepath.Join(*parts, "cluster"), "image", "-o", archive, "-name", reference, "-entrypoint", "/"+name, binary+"=/"+name)
	if out, err := pack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("packing %s: %w\n%s", name, err, out)
	}
	return archive, nil
}
