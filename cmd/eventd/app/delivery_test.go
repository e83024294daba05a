package app

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/pipeline"
)

// everyPart has something for each part of the way out.
const everyPart = withMetrics + "intake:\n- {name: noise, match: 'true', drop: true}\n"

// newConfigured returns what a process that does not lead has with --config.
func newConfigured(t *testing.T, registry *prometheus.Registry, content string) *process {
	t.Helper()
	options := pipeline.DefaultOptions()
	options.Registerer = registry
	pipe, err := pipeline.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pipe.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	o := NewOptions()
	o.ConfigFile, o.ClusterName = filepath.Join(t.TempDir(), "configuration.yaml"), "test"
	writeConfiguration(t, o.ConfigFile, content)
	p := &process{options: o, registry: registry, pipe: pipe}
	if err := p.configure(t.Context(), &rest.Config{Host: "https://apiserver.invalid"}); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConfigurationIsThatOfEveryPart(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newConfigured(t, registry, everyPart)
	var receivers []string
	for _, s := range p.delivering.delivery.Snapshot() {
		receivers = append(receivers, s.Name)
	}
	if want := []string{metricsReceiver, "archive", "pager"}; !slices.Equal(receivers, want) {
		t.Errorf("the receivers are %q, want %q", receivers, want)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	// Counters are there before they count: increase() of Prometheus misses what a series begins with.
	for name, series := range map[string]string{
		"eventd_occurrences_settled_total":     `{outcome="filtered",reason="noise"} 0`,
		"eventd_intake_rule_occurrences_total": `{action="drop",rule="noise"} 0`,
		"eventd_rule_images_total":             `{namespace="other",object="other"} 0`,
		"eventd_rule_teams_total":              " 0",
		"eventd_route_evaluations_total":       `{result="match",route="rest"} 0`,
	} {
		if !strings.Contains(text.String(), "\n"+name+series+"\n") {
			t.Errorf("%s has no %s", name, series)
		}
	}
}

// A route without a throttle is one for which the delivery keeps no groups.
func TestOnlyRoutesWithAThrottleThrottle(t *testing.T) {
	config, set, err := loadRouting(strings.NewReader(withMetrics), "-", RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	v := view{set.For(config.Receivers[0].Name), nil}
	for route, want := range map[string]bool{"rest": true, "team": false, "": false} {
		if got := v.Throttle(route); (got != nil) != want {
			t.Errorf("route %q has the throttle %v", route, got)
		}
	}
}

func TestFileThatIsAwayIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newTestConfiguration(t, headOfConfiguration)
		logged := 0
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
			if strings.Contains(line, "Could not reload") {
				logged++
			}
		}, funcr.Options{})))
		done := make(chan error)
		go func() { done <- c.follow(ctx) }()
		time.Sleep(configurationPeriod / 2) // so that the file is not read while it is written
		for range 2 {
			if err := os.Remove(c.file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			writeConfiguration(t, c.file, headOfConfiguration)
			time.Sleep(2 * configurationPeriod)
		}
		cancel()
		if err := <-done; err != nil || logged != 2 {
			t.Errorf("%v; logged %d times, want 2", err, logged)
		}
	})
}
