package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// name is that of the chart, and of the folder in its archive.
const name = "eventd"

// modified is when each file was changed: the first time that all programs can show.
var modified = time.Unix(0, 0).UTC()

// released is a version as Semantic Versioning defines it, with a "v" before it as git tags have.
var released = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// chartVersion is the version of the chart of a release: Helm wants it without the "v".
func chartVersion(version string) string { return strings.TrimPrefix(version, "v") }

// release is what a chart says of itself and of its image.
type release struct {
	version string
	// repository and digest are those of the image. Without them, the values stay as they are.
	repository, digest string
}

// archive returns the chart in a folder, for a release of eventd.
func archive(folder string, r release) ([]byte, error) {
	if !released.MatchString(r.version) {
		return nil, fmt.Errorf("%q is no version such as v1.2.3", r.version)
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out) // its header has no name and no time
	packed := tar.NewWriter(compressed)
	// In the order of the names.
	if err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file) // of what a link leads to
		if err != nil {
			return err
		}
		within, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		if content, err = stamp(content, r.lines(within)); err != nil {
			return fmt.Errorf("%s: %w", within, err)
		}
		return add(packed, path.Join(name, filepath.ToSlash(within)), content)
	}); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// add adds a file without anything of this machine: no owner, and the same mode for all.
func add(to *tar.Writer, file string, content []byte) error {
	header := &tar.Header{Name: file, Mode: 0o644, Size: int64(len(content)), ModTime: modified, Format: tar.FormatUSTAR}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	_, err := to.Write(content)
	return err
}

// lines returns the lines of a file that a release replaces, as they are in the repository.
func (r release) lines(file string) map[string]string {
	switch {
	case file == "Chart.yaml":
		return map[string]string{`version: .*`: "version: " + chartVersion(r.version), `appVersion: .*`: "appVersion: " + r.version}
	case file == "values.yaml" && r.digest != "":
		return map[string]string{`  repository: eventd`: "  repository: " + r.repository, `  digest: ""`: "  digest: " + r.digest}
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
