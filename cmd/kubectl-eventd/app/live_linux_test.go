package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/eventd/eventd/cmd/kubectl-eventd/app"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
)

// openTerminal returns a terminal, and what is written to it.
func openTerminal(t *testing.T) (*os.File, *output) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 120})
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := &output{}
	read := make(chan struct{})
	go func() { // ends with an error when the terminal is closed
		defer close(read)
		_, _ = io.Copy(shown, master)
	}()
	t.Cleanup(func() {
		_ = terminal.Close()
		<-read
		_ = master.Close()
	})
	return terminal, shown
}

func TestStatusIsDrawnAgainOnATerminal(t *testing.T) {
	var connections atomic.Int32
	change := make(chan struct{})
	c := newCLI(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if connections.Add(1) > 1 {
			servertest.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "\x1b[2Jno leader").ServeHTTP(w, req)
			return
		}
		status := v1alpha1.PipelineStatus{TypeMeta: typeMeta("PipelineStatus"), Replica: v1alpha1.Replica{Identity: "first"}}
		servertest.Frame(w, "ADDED", status)
		<-change
		status.Replica.Identity = "second"
		servertest.Frame(w, "MODIFIED", status)
		<-change
	}))
	terminal, shown := openTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errOut output
	done := make(chan int)
	go func() {
		done <- app.Run(ctx, genericiooptions.IOStreams{In: terminal, Out: terminal, ErrOut: &errOut}, append([]string{"status"}, c.flags...))
	}()
	sees := func(text string) {
		t.Helper()
		await.Until(t, text, func() bool { return strings.Contains(shown.String(), text) })
	}
	sees("\x1b[?1049h") // the screen is taken
	sees("first")
	change <- struct{}{}
	sees("second")
	change <- struct{}{} // the end of the connection, and then errors
	sees(", reconnecting: ^[[2Jno leader")
	sees("apiserver   <unknown>")
	if text := shown.String(); !regexp.MustCompile(`STALE since \d\d:\d\d:\d\d, reconnecting`).MatchString(text) || strings.Contains(text[strings.Index(text, "STALE"):], " false ") {
		t.Errorf("it says what is not known: %q", text)
	}
	cancel() // Ctrl-C
	if code := <-done; code != 0 || errOut.String() != "" {
		t.Errorf("exit code %d, %s", code, errOut.String())
	}
	sees("\x1b[?1049l") // and given back
	if strings.Contains(shown.String(), "\x1b[2Jno leader") {
		t.Error("the error is not escaped")
	}

	// With --once, or a format, a terminal is no screen.
	before := len(shown.String())
	connections.Store(1)
	if code := app.Run(t.Context(), genericiooptions.IOStreams{In: terminal, Out: terminal, ErrOut: &errOut}, append([]string{"status", "--once"}, c.flags...)); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(shown.String()[before:], "\x1b") {
		t.Errorf("shown: %q", shown.String()[before:])
	}
}
