// Package notes finds the release notes in the changelog.
package notes

import (
	"fmt"
	"regexp"
	"strings"
)

// link is the target of a Markdown link that is no URL and no place in the same page: a
// file of the repository.
var link = regexp.MustCompile(`\]\(([^)#:][^):]*)\)`)

// unreleased is the section of what no release has yet.
const unreleased = "Unreleased"

// Of is the section of a version in a changelog, without its heading. A pre-release that has none,
// such as the version that the go command has for a commit, has what is unreleased. Links to files
// of the repository get the prefix, which has to end in a slash: the notes are not read there.
func Of(changelog, version, prefix string) (string, error) {
	text := section(changelog, version)
	if text == "" && strings.Contains(version, "-") {
		text = section(changelog, unreleased)
	}
	if text == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section %q, or nothing in it: add it below %q, or make a pre-release, such as %s-rc.1, which needs none",
			"## "+version, "## "+unreleased, version)
	}
	return link.ReplaceAllString(text, "]("+prefix+"$1)") + "\n", nil
}

// section is the text below a heading, or nothing.
func section(changelog, heading string) string {
	var lines []string
	found := false
	for line := range strings.Lines(changelog) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			if found {
				break
			}
			name, _, _ := strings.Cut(strings.TrimSpace(title), " ")
			found = name == heading
			continue
		}
		if found {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}
