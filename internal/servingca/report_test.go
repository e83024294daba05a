package servingca

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/ratelimitedlog"
)

// reporter returns a Manager that only reports, a context with its log, and the number of lines.
func reporter(t *testing.T) (*Manager, context.Context, *int) {
	t.Helper()
	m := &Manager{clock: &clock{own: time.Now}, lines: ratelimitedlog.New(ratelimitedlog.Interval)}
	var err error
	if m.metrics, err = newMetrics(nil); err != nil {
		t.Fatal(err)
	}
	lines := new(int)
	return m, klog.NewContext(t.Context(), funcr.New(func(string, string) { *lines++ }, funcr.Options{})), lines
}

func (m *Manager) counted() map[string]float64 {
	counted := map[string]float64{}
	for _, reason := range reasons {
		if n := testutil.ToFloat64(m.metrics.failures.WithLabelValues(reason)); n > 0 {
			counted[reason] = n
		}
	}
	return counted
}

// Only what others have changed is reported, each time, and logged once a minute.
func TestChangesByOthersAreReported(t *testing.T) {
	now := time.Now()
	a, b := mustMake(t, now), mustMake(t, now)
	one := state{current: a}
	for name, c := range map[string]struct {
		do     action
		state  state
		agreed string
		want   string
	}{
		"the first CA":                 {createFirst, state{}, "", ""},
		"the next CA":                  {createNext, one, "", ""},
		"the Secret was deleted":       {createNext, state{}, "", foundSecret},
		"the Secret has no key":        {createNext, state{problem: errors.New("edited")}, "", foundSecret},
		"a CA is lost":                 {repair, one, "", foundSecret},
		"the first publication":        {publish, one, "", ""},
		"no publication of anything":   {publish, state{}, "", ""},
		"another CA is published":      {publish, state{current: a, next: b}, string(encodeBundle(one.bundle())), ""},
		"the ConfigMap was edited":     {publish, one, string(encodeBundle(one.bundle())), foundConfigMap},
		"the next CA was published":    {notePublished, state{current: a, next: b}, "", ""},
		"the next CA signs":            {switchOver, state{current: a, next: b}, "", ""},
		"a former CA is not trusted":   {retire, one, "", ""},
		"the Secret is not all gone":   {repair, state{current: a, problem: errors.New("edited")}, "", foundSecret},
		"it is published, with a flaw": {publish, state{current: a, problem: errors.New("edited")}, "", foundSecret},
	} {
		m, ctx, lines := reporter(t)
		m.last.state, m.agreed = c.state, c.agreed
		m.report(ctx, c.do)
		m.report(ctx, c.do)
		counted := m.counted()
		if c.want == "" && (len(counted) > 0 || *lines > 0) || c.want != "" && (len(counted) != 1 || counted[c.want] != 2 || *lines != 1) {
			t.Errorf("%s: counted %v, %d lines, want %q", name, counted, *lines, c.want)
		}
	}
}

func TestWritesAreReportedByTheirResult(t *testing.T) {
	resource, other := schema.GroupResource{Resource: "secrets"}, errors.New("no connection")
	for name, c := range map[string]struct {
		err    error
		want   string
		lines  int // of two writes
		failed bool
	}{
		"written":             {nil, "", 2, false},
		"written by another":  {apierrors.NewConflict(resource, objectName, other), failedConflict, 0, false},
		"deleted by another":  {apierrors.NewNotFound(resource, objectName), failedConflict, 0, false},
		"not allowed":         {apierrors.NewForbidden(resource, objectName, other), failedWrite, 1, true},
		"without a response":  {other, failedWrite, 1, true},
		"a Secret is invalid": {apierrors.NewBadRequest("invalid"), failedWrite, 1, true},
	} {
		m, ctx, lines := reporter(t)
		err := errors.Join(m.wrote(ctx, publish, c.err), m.wrote(ctx, publish, c.err))
		if counted := m.counted(); (err != nil) != c.failed || *lines != c.lines || c.want != "" && counted[c.want] != 2 || c.want == "" && len(counted) > 0 {
			t.Errorf("%s: got %v, counted %v, %d lines", name, err, counted, *lines)
		}
	}
	m, ctx, lines := reporter(t)
	ended, end := context.WithCancel(ctx)
	end()
	if err := m.wrote(ended, publish, other); !errors.Is(err, other) || len(m.counted()) > 0 || *lines > 0 {
		t.Errorf("after the term: got %v, counted %v, %d lines", err, m.counted(), *lines)
	}
}
