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

// Of is the section of a version in a changelog, without its heading. Links to files
// of the repository get the prefix, which has to end in a slash: the notes are not read there.
func Of(changelog, version, prefix string) (string, error) {
	var section []string
	found := false
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			if found {
				break
			}
			name, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			found = name == version
			continue
		}
		if found {
			section = append(section, line)
		}
	}
	text := strings.TrimSpace(strings.Join(section, ""))
	if !found || text == "" {
		return "", fmt.Errorf("the changelog has no section %q, or nothing in it", "## "+version)
	}
	return link.ReplaceAllString(text, "]("+prefix+"$1)") + "\n", nil
}
