package sbom

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/xeipuuv/gojsonschema"
)

var subject = Subject{Name: "eventd", Version: "v1.2.3", License: "Apache-2.0", Created: time.Date(2026, 11, 26, 22, 0, 0, 0, time.UTC)}

// program is a small one that has a module in it, as the binary of a test does not.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sbom-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "sbom:", err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "program")
		if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../testdata/program").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "sbom: %v: %s\n", err, out)
			return 1
		}
		return m.Run()
	}())
}

func billOfProgram(t *testing.T) []byte {
	t.Helper()
	bill, err := Of(program, subject)
	if err != nil {
		t.Fatal(err)
	}
	return bill
}

// The schema is in the module of the library, with the two that it refers to.
func TestBillIsWhatItsSchemaAllows(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f={{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) gojsonschema.JSONLoader {
		content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		return gojsonschema.NewBytesLoader(content)
	}
	schemas := gojsonschema.NewSchemaLoader()
	if err := schemas.AddSchemas(file("jsf-0.82.schemax.json"), file("spdx.schema.json")); err != nil {
		t.Fatal(err)
	}
	schema, err := schemas.Compile(file("bom-1.6.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema.Validate(gojsonschema.NewBytesLoader(billOfProgram(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range result.Errors() {
		t.Error(problem)
	}
}

func TestBillHasAllModulesOfTheBinary(t *testing.T) {
	t.Parallel()
	bill := billOfProgram(t)
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(bill), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, component := range *bom.Components {
		versions[component.Name] = component.Version
		if component.Name != "std" && (component.Hashes == nil || len(*component.Hashes) != 1) {
			t.Errorf("%s has the checksums %v", component.Name, component.Hashes)
		}
	}
	if len(info.Deps) == 0 || len(versions) != len(info.Deps)+1 {
		t.Errorf("%d modules of %d, and the standard library", len(versions), len(info.Deps))
	}
	for _, module := range info.Deps {
		if versions[module.Path] != module.Version {
			t.Errorf("%s is %q, not %q", module.Path, versions[module.Path], module.Version)
		}
	}
	if want := strings.TrimPrefix(info.GoVersion, "go"); versions["std"] != want {
		t.Errorf("the standard library is %q, not %q", versions["std"], want)
	}
}

// Scanners look for the license of the program, and for what it needs. Which machine it is for decides which flaws it has.
func TestBillSaysWhatTheProgramIs(t *testing.T) {
	t.Parallel()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(billOfProgram(t)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	own := bom.Metadata.Component
	if own.Licenses == nil || len(*own.Licenses) != 1 || (*own.Licenses)[0].License.ID != subject.License {
		t.Errorf("its license is %v", own.Licenses)
	}
	settings := map[string]string{}
	for _, property := range *own.Properties {
		settings[property.Name] = property.Value
	}
	if settings["go:GOOS"] != runtime.GOOS || settings["go:GOARCH"] != runtime.GOARCH || settings["go:version"] != runtime.Version() {
		t.Errorf("it was built with %v", settings)
	}
	var references []string
	for _, component := range *bom.Components {
		references = append(references, component.BOMRef)
	}
	needs := (*bom.Dependencies)[0]
	if needs.Ref != own.BOMRef || needs.Dependencies == nil || !slices.Equal(*needs.Dependencies, references) {
		t.Errorf("%s needs %v, not %v", needs.Ref, needs.Dependencies, references)
	}
}

func TestModuleThatWasReplacedIsTheOther(t *testing.T) {
	t.Parallel()
	other := &debug.Module{Path: "example.com/other", Version: "v1.0.1"}
	component, err := module(&debug.Module{Path: "example.com/m", Version: "v1.0.0", Replace: other})
	if err != nil || component.Name != other.Path || component.Version != other.Version {
		t.Errorf("it is %s %s (%v)", component.Name, component.Version, err)
	}
}

func TestBillOfTheSameBinaryIsTheSame(t *testing.T) {
	t.Parallel()
	if !bytes.Equal(billOfProgram(t), billOfProgram(t)) {
		t.Error("two bills of one binary differ")
	}
}

func TestPackageURLs(t *testing.T) {
	t.Parallel()
	for want, have := range map[string]string{
		"pkg:golang/std@1.26.8":               purl("std", "1.26.8", ""),
		"pkg:golang/k8s.io/api@v0.37.2":       purl("k8s.io/api", "v0.37.2", ""),
		"pkg:golang/example.com/m/v2@v2.0.1":  purl("example.com/m/v2", "v2.0.1", ""),
		"pkg:golang/example.com/m@v1#cmd/m":   purl("example.com/m", "v1", "cmd/m"),
		"pkg:golang/example.com/m@v2.0.1%2Bi": purl("example.com/m", "v2.0.1+i", ""),
	} {
		if have != want {
			t.Errorf("%s is not %s", have, want)
		}
	}
}

func TestWhatIsNoBinaryHasNoBill(t *testing.T) {
	t.Parallel()
	if bill, err := Of("sbom_test.go", subject); err == nil {
		t.Errorf("it has %s", bill)
	}
}
