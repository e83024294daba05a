package rules

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// receivers are those of examples that are routes only.
const receivers = `apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
receivers:
- {name: archive, jsonLines: {}}
- {name: pager, jsonLines: {path: /pager}}
- {name: shop, jsonLines: {path: /shop}}
- {name: security, jsonLines: {path: /security}}
`

func page(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Each example is a configuration, the rules, routes or receivers of one, or a ConfigMap with one.
func TestExamplesOfThePagesCompile(t *testing.T) {
	for name, least := range map[string]int{"routing.md": 5, "receivers.md": 4, "delivery.md": 1, "intake-rules.md": 3, "event-metrics.md": 1} {
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page(t, name), -1)
		if len(blocks) < least {
			t.Errorf("%s has %d examples", name, len(blocks))
		}
		for _, block := range blocks {
			text := block[1]
			switch head, inner, _ := strings.Cut(text, "  configuration.yaml: |\n"); {
			case strings.HasPrefix(text, "routes:"):
				text = receivers + text
			case strings.HasPrefix(text, "receivers:"), strings.HasPrefix(text, "intake:"), strings.HasPrefix(text, "metrics:"):
				before, _, _ := strings.Cut(receivers, "receivers:")
				text = before + text
			case strings.HasPrefix(head, "apiVersion: v1\nkind: ConfigMap"):
				text = inner
			}
			config, err := v1alpha1.Load([]byte(text))
			if err == nil {
				_, err = Compile(config)
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", name, err, text)
			}
		}
	}
}

func TestPageHasEveryField(t *testing.T) {
	_, table, _ := strings.Cut(page(t, "routing.md"), "| field of `event` |")
	table, _, _ = strings.Cut(table, "\n\n")
	for name := range metadataType.fields {
		wantInTable(t, table, "metadata."+name)
	}
	for name := range referenceType.fields {
		if name != "kind" {
			wantInTable(t, table, "."+name)
		}
	}
	for name := range eventType.fields {
		if name != "metadata" && name != "involvedObject" {
			wantInTable(t, table, name)
		}
	}
}

// Every field that a receiver can have is in a table or an example.
func TestPageHasEveryFieldOfReceivers(t *testing.T) {
	text := page(t, "receivers.md")
	for _, of := range []any{
		v1alpha1.Receiver{}, v1alpha1.OTLP{}, v1alpha1.CloudEvents{}, v1alpha1.JetStream{}, v1alpha1.JSONLines{},
		v1alpha1.Connection{}, v1alpha1.TLS{}, v1alpha1.Header{},
	} {
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			if name != "" && !regexp.MustCompile("[`.]"+name+"`|\\b"+name+":").MatchString(text) {
				t.Errorf("docs/receivers.md has no %s of %T", name, of)
			}
		}
	}
}

func wantInTable(t *testing.T, table, name string) {
	t.Helper()
	if !strings.Contains(table, "`"+name+"`") {
		t.Errorf("docs/routing.md has no %s", name)
	}
}
