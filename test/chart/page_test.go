package chart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the table of docs/helm.md")

// row is a value with its comment. What is below it has no comments of its own.
type row struct {
	path    []string
	comment string
	value   *yaml.Node
}

func (r row) scalar() bool { return r.value.Kind == yaml.ScalarNode }

// documented returns the rows of values.yaml. Each value has a comment.
func documented(t *testing.T) []row {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(nil, document.Content[0])
	if len(rows) < 30 {
		t.Fatalf("only %d values", len(rows))
	}
	return rows
}

func rowsOf(parent []string, mapping *yaml.Node) (rows []row) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := append(append([]string{}, parent...), key.Value)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && commented(value) {
			rows = append(rows, rowsOf(path, value)...)
			continue
		}
		comment := strings.ReplaceAll(strings.ReplaceAll(key.HeadComment, "\n# ", " "), "# ", "")
		rows = append(rows, row{path, comment, value})
	}
	return rows
}

// commented reports whether a key of a mapping, or of one below it, has a comment.
func commented(mapping *yaml.Node) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].HeadComment != "" || mapping.Content[i+1].Kind == yaml.MappingNode && commented(mapping.Content[i+1]) {
			return true
		}
	}
	return false
}

const (
	begin = "<!-- values of deploy/chart: go -C test/chart test -run Page -update -->\n"
	end   = "<!-- end of values -->\n"
)

func TestPageHasEachValue(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, row := range documented(t) {
		name := strings.Join(row.path, ".")
		if !strings.HasSuffix(row.comment, ".") || strings.Contains(row.comment, "|") {
			t.Errorf("%s has no comment that is a sentence: %q", name, row.comment)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, inline(t, row.value), linked(row.comment))
	}
	file := filepath.Join(repository, "docs", "helm.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("docs/helm.md has no place for the values")
	}
	want := before + begin + table.String() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("docs/helm.md does not have the values as they are; write them with: %s", begin)
	}
}

// Each example of values is rendered. The second is that of the cases.
func TestExamplesOfThePageAreRendered(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "helm.md"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(page), -1) {
		if strings.Contains(block, "    observe:\n") {
			examples = append(examples, block)
			rendered(t, "kube-system", block)
		}
	}
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	if diff := cmp.Diff(parse(t, receivers), parse(t, examples[1])); diff != "" {
		t.Errorf("docs/helm.md does not have the values of examples/receivers (-want +got):\n%s", diff)
	}
}

// inline is a default in a cell. One that is long is in values.yaml only.
func inline(t *testing.T, value *yaml.Node) string {
	t.Helper()
	var content any
	if err := value.Decode(&content); err != nil {
		t.Fatal(err)
	}
	node := *value
	node.Style = yaml.FlowStyle
	for _, child := range node.Content {
		child.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&node)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.TrimSpace(string(text)); len(line) <= 60 && !strings.Contains(line, "\n") {
		return "`" + line + "`"
	}
	return "[values.yaml](../deploy/chart/values.yaml)"
}

// linked makes links of the pages that a comment names.
func linked(comment string) string {
	words := strings.Fields(comment)
	for i, word := range words {
		page := strings.TrimRight(word, ".,")
		if name, found := strings.CutPrefix(page, "docs/"); found {
			words[i] = fmt.Sprintf("[%s](%s)%s", strings.TrimSuffix(name, ".md"), name, word[len(page):])
		}
	}
	return strings.Join(words, " ")
}

// The table of cases has each value, so each does what it says.
func TestEachValueIsTested(t *testing.T) {
	t.Parallel()
	var set []map[string]any
	for _, c := range cases {
		set = append(set, parse(t, c.values))
	}
	for _, row := range documented(t) {
		tested := false
		for _, values := range set {
			tested = tested || has(values, row.path)
		}
		if !tested {
			t.Errorf("no case sets %s", strings.Join(row.path, "."))
		}
	}
}

func has(values map[string]any, path []string) bool {
	value, found := values[path[0]]
	if len(path) == 1 || !found {
		return found
	}
	below, ok := value.(map[string]any)
	return ok && has(below, path[1:])
}
