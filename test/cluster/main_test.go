package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
)

var (
	parts  = flag.String("parts", "", "the `folder` that hack/cluster/build.sh prints; without it, nothing is tested")
	image  = flag.String("image", "", "the `archive` of eventd's image")
	tag    = flag.String("tag", "", "the `tag` of that image")
	turns  = flag.Int("turns", 0, "how `often` each disturbance happens; 0 is the short run: three disturbances, Helm only, no previous release, no lost node, no limits of time")
	report = flag.String("report", "", "the `page` with the tables that are to be written")
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
	await.Interval = 250 * time.Millisecond
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

// nodeMemory is what each kubelet sees, in KiB.
const nodeMemory = 3 << 20

// startTimeout is for a start on a busy machine. An idle one takes 10 s.
const startTimeout = 3 * time.Minute

// start starts the cluster of all tests, and returns when it is ready.
func start() (end func() error, err error) {
	if untouched, err = machine(); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return nil, err
	}
	images, err := pack(work)
	if err != nil {
		return nil, err
	}
	args := []string{"-nodes", "2", "-disk", "2g", "-memory", strconv.Itoa(nodeMemory), "-image", *image}
	for _, archive := range images {
		args = append(args, "-image", archive)
	}
	dir = filepath.Join(filepath.Dir(*parts), "cluster-test")
	c, err := begin(dir, args...)
	if err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(c.end(), nothingIsLeft(dir), os.RemoveAll(work)) }
	if err := c.await("export KUBECONFIG"); err != nil {
		return end, err
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

// running is a "cluster up".
type running struct {
	*process.Process
	// lines are those that it prints, until its end.
	lines <-chan string
}

// begin starts a cluster in a folder.
func begin(dir string, args ...string) (running, error) {
	command := exec.Command(filepath.Join(*parts, "cluster"), append([]string{"up", "-exit-on-stdin-eof", "-dir", dir, "-parts", *parts}, args...)...)
	process.Group(command)
	if _, err := command.StdinPipe(); err != nil {
		return running{}, err
	}
	out, in := io.Pipe()
	command.Stdout = in
	up, err := process.Start("cluster up", "", command)
	if err != nil {
		return running{}, err
	}
	lines := make(chan string, 100) // more than there are
	go func() {
		<-up.Done()
		in.Close()
	}()
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			fmt.Println(scanner.Text())
			lines <- scanner.Text()
		}
	}()
	return running{up, lines}, nil
}

// await waits for a line that has a text.
func (r running) await(text string) error {
	deadline := time.After(startTimeout)
	for {
		select {
		case line, ok := <-r.lines:
			switch {
			case !ok:
				<-r.Done()
				return r.Failure("has ended")
			case strings.Contains(line, text):
				return nil
			}
		case <-deadline:
			return r.Failure("is not ready")
		}
	}
}

// end ends the cluster as Ctrl-C does.
func (r running) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := r.Send(os.Interrupt)
	if code, waitErr := r.Wait(ctx); waitErr != nil || code != 0 {
		r.Kill()
		err = errors.Join(err, waitErr, r.Failure(fmt.Sprint("has ended with ", code)))
	}
	for range r.lines {
	}
	return err
}

// nothingIsLeft returns an error if the cluster of a folder has left a cgroup or that.
func nothingIsLeft(dir string) (err error) {
	cgroup := fmt.Sprintf("eventd-cluster-%x", sha256.Sum256([]byte(dir)))[:len("eventd-cluster-")+8]
	left, globErr := filepath.Glob("/sys/fs/cgroup/*/" + cgroup)
	for _, path := range []string{dir, "/sys/fs/cgroup/" + cgroup} {
		if _, err := os.Stat(path); err == nil {
			left = append(left, path)
		}
	}
	if len(left) > 0 {
		err = fmt.Errorf("the cluster has left %q", left)
	}
	return errors.Join(err, globErr)
}
