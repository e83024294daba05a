package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestLastVersionIsThatOfTheControlPlane(t *testing.T) {
	last := versions[len(versions)-1]
	if !strings.Contains(read(t, "test/controlplane/go.mod"), "k8s.io/kubernetes "+last+"\n") {
		t.Errorf("test/controlplane is not of %s", last)
	}
}

func TestPagesNameTheVersions(t *testing.T) {
	for _, page := range []string{"README.md", "docs/deployment.md"} {
		if listed := "tested with " + strings.Join(versions[:len(versions)-1], ", ") + " and " + versions[len(versions)-1]; !strings.Contains(read(t, page), listed) {
			t.Errorf("%s does not say: %s", page, listed)
		}
	}
}

func TestSuiteHasTestsThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, part := range suite {
		for _, tests := range part.tests {
			files, err := filepath.Glob(filepath.Join(repository, tests.folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var exist []string
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, match := range declared.FindAllSubmatch(content, -1) {
					exist = append(exist, string(match[1]))
				}
			}
			for _, name := range strings.Fields(tests.names) {
				if !slices.Contains(exist, name) {
					t.Errorf("%s: %s has no %s", part.name, tests.folder, name)
				}
			}
		}
	}
}

func TestModuleHasTheLibrariesOfItsKubernetes(t *testing.T) {
	got := string(goMod([]byte(`module k8s.io/kubernetes

godebug default=go1.25

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
`), "v1.35.4"))
	want := `module github.com/eventd/eventd/test/controlplane

godebug default=go1.25

require k8s.io/api v0.0.0

replace (
	k8s.io/api => k8s.io/api v0.35.4
)

require k8s.io/kubernetes v1.35.4
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestOnlyWhatHasPassedIsNotReported(t *testing.T) {
	output := []byte(`=== RUN   TestPasses
--- PASS: TestPasses (0.10s)
    --- PASS: TestSubtest (0.10s)
--- FAIL: TestFails (0.10s)
--- SKIP: TestSkips (0.00s)
`)
	got := notPassed(strings.Fields("TestPasses TestSubtest TestFails TestSkips TestNeverRan"), output)
	if want := strings.Fields("TestSubtest TestFails TestSkips TestNeverRan"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTableIsAnErrorIfAPartHasFailed(t *testing.T) {
	results := []result{{version: "v1.35.4", part: "intake", tests: 3, took: 2e9}, {version: "v1.36.3", part: "plugin", tests: 4, took: 61e9}}
	var out strings.Builder
	if err := report(&out, results); err != nil {
		t.Error(err)
	}
	results[1].failed, results[1].log = []string{"TestIt"}, "plugin.log"
	out.Reset()
	if err := report(&out, results); err == nil || err.Error() != "v1.36.3, plugin: TestIt plugin.log" {
		t.Errorf("got %v", err)
	}
	const want = `MINOR  VERSION  PART    TESTS  RESULT  SECONDS
1.35   v1.35.4  intake  3      ok      2
1.36   v1.36.3  plugin  4      FAILED  61
`
	if out.String() != want {
		t.Errorf("got:\n%s", out.String())
	}
	if err := report(&out, nil); err == nil {
		t.Error("nothing was tested, and that is no error")
	}
}
