package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/request"
)

// awaitLine waits until a version of an Event is in the file of a receiver, and returns all lines.
func awaitLine(t *testing.T, file string, of *corev1.Event) (lines []line) {
	t.Helper()
	await.Until(t, "the version in "+file, func() bool {
		lines = readLines(t, file)
		return slices.ContainsFunc(lines, func(l line) bool { return l.ID == string(of.UID)+"/"+of.ResourceVersion })
	})
	return lines
}

// What a receiver must not get does not leave the process, neither with a version nor with a summary
// of throttled ones. Another receiver gets it.
func TestRedactedFieldsAreNotDelivered(t *testing.T) {
	a, namespace := newAuthor(t)
	dir := t.TempDir()
	whole, redacted := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "redacted.jsonl")
	e := startConfigured(t, "redacted", `
receivers:
- name: whole
  from: Oldest
  jsonLines: {path: `+whole+`}
- name: redacted
  redact: [message, involvedObject.name, metadata.name]
  jsonLines: {path: `+redacted+`}
routes:
- name: whole
  match: event.metadata.namespace == "`+namespace+`"
  receivers: [whole]
  continue: true
- name: throttled
  match: event.metadata.namespace == "`+namespace+`"
  receivers: [redacted]
  throttle: {interval: 3s, by: [reason]}
`, "--cluster-name=e2e")
	event := a.create(namespace, "secret-name", "BackOff", 1)
	for i := range 5 {
		event = a.repeat(event, int32(i+2))
	}
	for file, secret := range map[string]bool{whole: false, redacted: true} {
		lines := awaitLine(t, file, event)
		if summary := slices.ContainsFunc(lines, func(l line) bool { return l.Summarized > 0 }); summary != secret || lines[0].Summarized > 0 {
			t.Errorf("%s has %v", file, lines)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{event.Message, event.InvolvedObject.Name, event.Name} {
			if has := bytes.Contains(data, []byte(text)); has == secret {
				t.Errorf("%s has %q: %t, want %t", file, text, has, !secret)
			}
		}
		if !bytes.Contains(data, []byte(event.Reason)) {
			t.Errorf("%s has no reason", file)
		}
	}
	e.Terminate(t)
}

// A wrong file leaves the former one in force, and takes no replica out of service.
func TestWrongFileLeavesEventdReadyAndDelivering(t *testing.T) {
	a, namespace := newAuthor(t)
	dir := t.TempDir()
	file, delivered := filepath.Join(dir, "configuration.yaml"), filepath.Join(dir, "delivered.jsonl")
	e := startWithFile(t, file, "reloaded", "receivers:\n- {name: reloaded, jsonLines: {path: "+delivered+"}}\n", "--cluster-name=e2e")
	if err := os.WriteFile(file, []byte("receivers: wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const successful = "eventd_configuration_last_reload_successful"
	await.Until(t, "the file to be rejected", func() bool { return e.counters().Sum(successful) == 0 })
	client := e.Client(t, rest.AnonymousClientConfig(e.cluster.Config()))
	for i := range 3 {
		if got := request.Do(t.Context(), client, http.MethodGet, e.URL("/readyz?verbose"), ""); got.Code != http.StatusOK {
			t.Errorf("/readyz: %v", got)
		}
		awaitLine(t, delivered, a.create(namespace, "later-"+strconv.Itoa(i), "BackOff", 1))
	}
	if now := e.counters().Sum(successful); now != 0 {
		t.Errorf("the last reload was successful: %v", now)
	}
	e.Terminate(t)
}
