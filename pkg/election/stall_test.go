package election

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// stallEnv makes the test binary a candidate: kubeconfig and namespace.
const stallEnv = "EVENTD_TEST_STALL"

// candidateProcess prints "leads" at each election, and for each line of its input
// whether it leads. It stops in order at the end of its input.
func candidateProcess(in io.Reader, out io.Writer, kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := NewLeaseClient(config, time.Second)
	if err != nil {
		return err
	}
	o := options(newLeaseLock(client, namespace, "stalled"))
	shortLease(&o)
	e, err := New(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer stop()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintln(out, e.Leading())
		}
	}()
	return e.Run(ctx, func(ctx context.Context) error {
		fmt.Fprintln(out, "leads")
		<-ctx.Done()
		return nil
	})
}

func TestStoppedProcessDoesNotLeadWhenItGoesOn(t *testing.T) {
	c := newContest(t)
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), stallEnv+"="+c.cluster.Kubeconfig()+"\n"+c.namespace)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(output)
	requireAnswer := func(want string) {
		t.Helper()
		if !answers.Scan() || answers.Text() != want {
			t.Fatalf("output %q, want %q", answers.Text(), want)
		}
	}
	requireAnswer("leads")
	fmt.Fprintln(input)
	requireAnswer("true")

	standby := c.start("standby", shortLease)
	standby.awaitLeader("stalled")
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	standby.awaitTerm()
	fmt.Fprintln(input) // read first after SIGCONT
	if err := process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	requireAnswer("false")
	_ = input.Close()
	for answers.Scan() { // to its end
		t.Errorf("output %q", answers.Text())
	}
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
	if !standby.Leading() {
		t.Error("the stalled leader has cleared its successor")
	}
}

// asCandidate is true in the process that the test starts.
func asCandidate() bool {
	kubeconfig, namespace, ok := strings.Cut(os.Getenv(stallEnv), "\n")
	if !ok {
		return false
	}
	if err := candidateProcess(os.Stdin, os.Stdout, kubeconfig, namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}
