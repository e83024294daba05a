// Package chart packs deploy/chart for a release, as "helm package" does, to the same bytes
// wherever it is done.
package chart

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/eventd/eventd/hack/release/archive"
)

// name is that of the chart, and of the folder in its archive.
const name = "eventd"

// Release is what a chart says of itself and of its image.
type Release struct {
	// Version is a tag such as v1.2.3. Helm wants that of the chart without the "v".
	Version string
	// Repository and Digest are those of the image. Without both, the values stay as they are.
	Repository, Digest string
	// Created is the time of all files.
	Created time.Time
}

func (r Release) chartVersion() string { return strings.TrimPrefix(r.Version, "v") }

// Pack writes the archive of the chart in a folder, and returns its path.
func Pack(folder string, r Release, out string) (file string, err error) {
	if (r.Repository == "") != (r.Digest == "") {
		return "", fmt.Errorf("the image is %q with the digest %q: a chart names both or none", r.Repository, r.Digest)
	}
	work, err := os.MkdirTemp("", "eventd-chart-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	var files []archive.File
	// In the order of the names.
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		within, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		stamped := filepath.Join(work, fmt.Sprint(len(files)))
		files = append(files, archive.File{Name: path.Join(name, filepath.ToSlash(within)), Path: stamped, Mode: 0o644})
		return r.stampFile(within, file, stamped)
	})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	file = filepath.Join(out, fmt.Sprintf("%s-%s.tgz", name, r.chartVersion()))
	return file, archive.Write(file, r.Created, files...)
}

// stampFile copies a file of the chart, or what a link leads to, with the lines of the release.
func (r Release) stampFile(within, from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if content, err = stamp(content, r.lines(within)); err != nil {
		return fmt.Errorf("%s: %w", within, err)
	}
	return os.WriteFile(to, content, 0o600)
}

// lines returns the lines of a file that a release replaces, as they are in the repository.
func (r Release) lines(file string) map[string]string {
	switch {
	case file == "Chart.yaml":
		return map[string]string{`version: .*`: "version: " + r.chartVersion(), `appVersion: .*`: "appVersion: " + r.Version}
	case file == "values.yaml" && r.Digest != "":
		return map[string]string{`  repository: eventd`: "  repository: " + r.Repository, `  digest: ""`: "  digest: " + r.Digest}
	}
	return nil
}

// stamp replaces lines, each of which is there once.
func stamp(content []byte, lines map[string]string) ([]byte, error) {
	for line, value := range lines {
		is := regexp.MustCompile(`(?m)^` + line + `$`)
		if n := len(is.FindAll(content, -1)); n != 1 {
			return nil, fmt.Errorf("there are %d lines %q", n, line)
		}
		content = is.ReplaceAllLiteral(content, []byte(value))
	}
	return content, nil
}
