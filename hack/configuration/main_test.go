package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eventd/eventd/cmd/eventd/app"
)

func TestPageIsWhatTheFlagsAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	write(&made, app.NewOptions())
	if diff := cmp.Diff(made.String(), string(page)); diff != "" {
		t.Errorf("docs/flags.md is not what the flags are (-flags +page); go run ./hack/configuration >docs/flags.md makes it anew:\n%s", diff)
	}
}
