package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/rules"
)

const (
	headOfConfiguration = "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n"
	toStdout            = headOfConfiguration + "receivers:\n- {name: log, jsonLines: {}}\n"
)

// newTestConfiguration follows a file, and returns what was put in force.
func newTestConfiguration(t *testing.T, content string) (c *configuration, inForce *[]string) {
	t.Helper()
	o := NewOptions()
	o.ConfigFile, o.ClusterName = filepath.Join(t.TempDir(), "configuration.yaml"), "test"
	writeConfiguration(t, o.ConfigFile, content)
	inForce = &[]string{}
	c, err := newConfiguration(o, prometheus.NewPedanticRegistry(), func(config *v1alpha1.EventdConfiguration, _ *rules.Set) {
		names := ""
		for _, r := range config.Receivers {
			names += r.Name
		}
		*inForce = append(*inForce, names)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, inForce
}

func writeConfiguration(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWrongConfigurationIsNotPutInForce(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"empty":                       {"", "empty"},
		"of another kind":             {strings.Replace(toStdout, "EventdConfiguration", "Other", 1), "kind"},
		"with an unknown field":       {toStdout + "reciever: x\n", "reciever"},
		"with a wrong expression":     {toStdout + "routes:\n- {name: all, match: event.nothing}\n", "routes[0].match"},
		"larger than the maximum":     {toStdout + "#" + strings.Repeat("x", v1alpha1.MaxBytes), "bytes"},
		"with a receiver but nowhere": {headOfConfiguration + "receivers:\n- {name: log}\n", "receivers[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			c, inForce := newTestConfiguration(t, test.content)
			if err := c.load(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want what says %q", err, test.says)
			}
			if len(*inForce) > 0 || testutil.ToFloat64(c.metrics.successful) != 0 {
				t.Errorf("%v is in force", *inForce)
			}
		})
	}
}

func TestErrorOfAFileIsBounded(t *testing.T) {
	c, _ := newTestConfiguration(t, strings.Repeat("a: 1\n", 100_000))
	if err := c.load(t.Context()); err == nil {
		t.Error("it is in force")
	} else if n := len(err.Error()); n > 16<<10 {
		t.Errorf("an error of %d bytes", n)
	}
}

// A pipe has nothing for the second reader, and without a writer it blocks the first one for ever.
func TestConfigurationIsARegularFile(t *testing.T) {
	c, _ := newTestConfiguration(t, headOfConfiguration)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{pipe, t.TempDir()} {
		c.file = file
		if err := c.load(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Rules are in force from one reload to the next, and nothing else is needed for them.
func TestIntakeRulesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTestConfiguration(t, headOfConfiguration)
		c.cluster = ""
		if err := c.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.follow(ctx) }()
		event := &corev1.Event{Reason: "Pulled"}
		for i, step := range []struct {
			content string
			want    occurrence.Reason
		}{
			{intakeRules, "noise"},
			{strings.Replace(intakeRules, "event.reason", "event.nothing", 1), "noise"}, // wrong: the former ones
			{strings.Replace(intakeRules, "drop: true", "drop: true\n  dryRun: true", 1), ""},
			{strings.Replace(intakeRules, "name: noise", "name: renamed", 1), "renamed"},
			{headOfConfiguration, ""},
		} {
			writeConfiguration(t, c.file, step.content)
			time.Sleep(2 * configurationPeriod)
			synctest.Wait()
			if got, _ := c.intake.Decide(event, 1, nil); got != step.want {
				t.Errorf("step %d: dropped by %q, want %q", i, got, step.want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReceiversNeedTheNameOfTheCluster(t *testing.T) {
	c, _ := newTestConfiguration(t, toStdout)
	c.cluster = ""
	if err := c.load(t.Context()); err == nil || !strings.Contains(err.Error(), "--cluster-name") {
		t.Errorf("got %v", err)
	}
	writeConfiguration(t, c.file, headOfConfiguration)
	if err := c.load(t.Context()); err != nil {
		t.Errorf("without receivers: %v", err)
	}
	writeConfiguration(t, c.file, headOfConfiguration+"metrics:\n- name: events\n")
	if err := c.load(t.Context()); err != nil {
		t.Errorf("with metrics: %v", err)
	}
}

// The file changes, becomes wrong, vanishes, and comes back as it was.
func TestConfigurationIsReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inForce := newTestConfiguration(t, headOfConfiguration)
		if err := c.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.follow(ctx) }()
		for i, step := range []struct {
			content string // "-" removes the file
			applied string // all that was put in force so far
			ok      float64
		}{
			{headOfConfiguration, ",", 1},
			{toStdout, ",log,", 1},
			{"wrong", ",log,", 0},
			{toStdout, ",log,log,", 1},
			{"-", ",log,log,", 0},
			{toStdout, ",log,log,", 1}, // it is still in force
			{"wrong", ",log,log,", 0},
			{"-", ",log,log,", 0},
			{"wrong", ",log,log,", 0}, // it never was
		} {
			before, loaded := testutil.ToFloat64(c.metrics.succeeded), len(*inForce)
			if step.content == "-" {
				if err := os.Remove(c.file); err != nil {
					t.Fatal(err)
				}
			} else {
				writeConfiguration(t, c.file, step.content)
			}
			time.Sleep(2 * configurationPeriod)
			synctest.Wait()
			if got := strings.Join(*inForce, ",") + ","; got != step.applied {
				t.Errorf("step %d: %q was put in force, want %q", i, got, step.applied)
			}
			if got := testutil.ToFloat64(c.metrics.successful); got != step.ok {
				t.Errorf("step %d: the last reload was successful: %v, want %v", i, got, step.ok)
			}
			if later := testutil.ToFloat64(c.metrics.succeeded) > before; later != (len(*inForce) > loaded) {
				t.Errorf("step %d: the time of the last reload is another one: %t", i, later)
			}
			if n := testutil.CollectAndCount(c.metrics.hash); n != 1 {
				t.Errorf("step %d: %d hashes are in force", i, n)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
