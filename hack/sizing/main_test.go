package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/sizing"
)

// The page shows what this command prints for the flags that it names.
func TestPageIsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(string(page)) {
		_, flags, ok := strings.Cut(line, "    go run ./hack/sizing")
		if !ok {
			continue
		}
		shown++
		var made bytes.Buffer
		if err := run(&made, strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), made.String()) {
			t.Errorf("docs/sizing.md does not have what go run ./hack/sizing%s prints:\n%s", strings.TrimSpace(flags), &made)
		}
	}
	if shown == 0 {
		t.Error("the page shows nothing")
	}
}

// What eventd refuses has no size.
func TestWrongFlagIsAnError(t *testing.T) {
	for _, flags := range []string{"--max-pending-bytes=much", "--role=x", "--role=intake --history-bytes=24Mi", "--role=observe --config=FILE --kube-api-qps=3"} {
		var made bytes.Buffer
		if err := run(&made, strings.Fields(flags)); err == nil || made.Len() > 0 {
			t.Errorf("%s: no error, and printed %q", flags, &made)
		}
	}
}

// The pages name what the command calculates.
func TestPagesHaveTheSumsOfTheHistoryAndTheMetrics(t *testing.T) {
	o := app.NewOptions()
	o.Role, o.ConfigFile, o.HistoryBytes = app.RoleObserve, "FILE", 24<<20
	var history, metrics int64
	for _, p := range sizing.Memory(o) {
		switch {
		case slices.Contains(p.Flags, "history-bytes"):
			history += p.Most
		case p.What == "metrics of the configuration":
			metrics = p.Most
		}
	}
	for page, said := range map[string]string{
		"sizing.md":  fmt.Sprintf("up to %s MiB. The history, and what reads it, takes up to %s MiB of these.", mebibytes(metrics), mebibytes(history)),
		"history.md": fmt.Sprintf("Beside the limit, eventd needs up to %s MiB:", mebibytes(history-o.HistoryBytes)),
	} {
		content, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), said) {
			t.Errorf("docs/%s does not say %q", page, said)
		}
	}
}
