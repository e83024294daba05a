package app

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// eventd runs eventd to its end, outside of a cluster.
func eventd(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), asEventd+"=1", "KUBERNETES_SERVICE_HOST=")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	stderr = errs.String()
	// component-base prints a line in a binary with the race detector.
	if line, rest, _ := strings.Cut(stderr, "\n"); strings.Contains(line, "Data race detection enabled") {
		stderr = rest
	}
	return out.String(), stderr, cmd.ProcessState.ExitCode()
}

// wantError runs eventd, and requires exit code 1 and one line on stderr with want in it.
func wantError(t *testing.T, want string, args ...string) {
	t.Helper()
	stdout, stderr, code := eventd(t, args...)
	line, rest, _ := strings.Cut(stderr, "\n")
	if code != 1 || stdout != "" || rest != "" || !strings.HasPrefix(line, "eventd: ") || !strings.Contains(line, want) {
		t.Errorf("exit code %d, stdout %q, stderr %q, want one line with %q", code, stdout, stderr, want)
	}
}

func TestWrongCommandLineIsOneLineAndExitCode1(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: {\n  - \t"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := startAPIServer(t).kubeconfig
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"-x"}, "unknown shorthand flag: 'x'"},
		{[]string{"serve"}, `unexpected argument "serve"`},
		{[]string{"--kubeconfig"}, "flag needs an argument: --kubeconfig"},
		{[]string{"--secure-port=https"}, "--secure-port"},
		{[]string{"--shutdown-grace-period=30"}, "--shutdown-grace-period"},
		{[]string{"--kube-api-qps=fast"}, `"--kube-api-qps" flag: must be a number, a fraction, or "unlimited"`},
		{[]string{"--max-request-body-bytes=1MiB"}, "must be a quantity of bytes"},
		{[]string{"--acknowledge=never"}, `"--acknowledge" flag: must be "replicated", "committed" or "received"`},
		{[]string{"--on-lost-lease=panic"}, `"--on-lost-lease" flag: must be "standby" or "exit"`},
		{[]string{"--kubeconfig=" + kubeconfig, "--peer-token-file=none"},
			`--peer-token-file: open none: no such file or directory: replicas authenticate each other by a token of eventd's ServiceAccount for the audience "eventd"; --leader-elect=false needs none`},
		{[]string{"--kubeconfig=" + kubeconfig, "--peer-token-file=" + empty}, "--peer-token-file: " + empty + " is empty: replicas authenticate each other by a token"},
		{[]string{"--logging-format=json", "--vmodule=a=1"}, "Only supported for text log format"},
		{[]string{"--version=maybe"}, "--version"},
		{nil, "no apiserver to write to: --kubeconfig is not set, and this process does not run in a Pod"},
		{[]string{"--kubeconfig=does-not-exist"}, "kubeconfig does-not-exist: "},
		{[]string{"--kubeconfig=" + broken}, "kubeconfig " + broken + ": "},
		{[]string{"--kubeconfig=" + empty}, "kubeconfig " + empty + ": it has no current-context with a cluster"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) { wantError(t, test.want, test.args...) })
	}
}

func TestHelpIsGroupedAndGoesToStdout(t *testing.T) {
	stdout, stderr, code := eventd(t, "--help")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"Writing flags:", "Leader election flags:", "Secure serving flags:", "Logs flags:", "--kube-api-qps rate", "--logging-format string"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("--help does not show %q", want)
		}
	}
}

func TestVersionIsEventdsOwn(t *testing.T) {
	for _, flag := range []string{"--version", "--version=true", "--version=raw"} {
		// With another flag that is an error otherwise.
		stdout, stderr, code := eventd(t, flag, "--leader-elect-retry-period=0")
		if code != 0 || stderr != "" || stdout == "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", flag, code, stdout, stderr)
		}
		if strings.Contains(stdout, "Kubernetes") || strings.Contains(stdout, "$Format") {
			t.Errorf("%s: %q", flag, stdout)
		}
	}
}

func TestStartThatFailsOnThisMachineIsOneLineAndExitCode1(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := startAPIServer(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--secure-port=" + port}, "address already in use"},
		{[]string{"--secure-port=" + port, "--logging-format=json"}, "address already in use"},
		{[]string{"--cert-dir=" + filepath.Join(file, "certs")}, "creating a serving certificate: "},
		{[]string{"--tls-cert-file=" + file, "--tls-private-key-file=" + file}, "reading the serving certificate: "},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) { wantError(t, test.want, a.flags(test.args...)...) })
	}
}

// The error follows lines that were logged before.
func TestStartWithoutAnAPIServerEndsWithOneLineThatIsNoLog(t *testing.T) {
	a := startAPIServer(t)
	a.close()
	_, stderr, code := eventd(t, "--kubeconfig="+a.kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false")
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if last := lines[len(lines)-1]; code != 1 || !strings.HasPrefix(last, "eventd: looking up the CA of client certificates: ") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
