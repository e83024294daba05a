package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSchemaIsWhatTheTypesAre(t *testing.T) {
	file, err := os.ReadFile("../../docs/eventdconfiguration.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	made, err := generate("../../pkg/config/v1alpha1/types.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(made), string(file)); diff != "" {
		t.Errorf("the schema is not what the types are (-types +file); go run ./hack/configschema >docs/eventdconfiguration.schema.json makes it anew:\n%s", diff)
	}
}

func TestEveryFieldSaysWhatItIs(t *testing.T) {
	made, err := generate("../../pkg/config/v1alpha1/types.go")
	if err != nil {
		t.Fatal(err)
	}
	root := new(schema)
	if err := json.Unmarshal(made, root); err != nil {
		t.Fatal(err)
	}
	wantDescribed(t, "", root)
}

func wantDescribed(t *testing.T, path string, s *schema) {
	t.Helper()
	if s.Description == "" && s.Const == "" {
		t.Errorf("%s has no description", path)
	}
	if s.Type == "object" && (s.AdditionalProperties == nil || s.AdditionalProperties == true) {
		t.Errorf("%s accepts unknown fields", path)
	}
	for name, property := range s.Properties {
		wantDescribed(t, path+"."+name, property)
	}
	if s.Items != nil && s.Items.Type == "object" {
		wantDescribed(t, path+"[]", s.Items)
	}
}
