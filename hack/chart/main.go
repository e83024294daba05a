// Command chart packs deploy/chart for a release, as "helm package" does, with the same bytes wherever
// it runs:
//
//	go run ./hack/chart -version v1.2.3 -out dist
//
// It writes dist/eventd-1.2.3.tgz. The chart in it has that version, and installs the image with the tag
// v1.2.3 unless its values name another: with -repository and -digest, they name that one.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "version of eventd, such as v1.2.3")
	flag.StringVar(&r.repository, "repository", "", "where the image is")
	flag.StringVar(&r.digest, "digest", "", "digest of the image")
	folder := flag.String("chart", filepath.Join("deploy", "chart"), "folder of the chart")
	out := flag.String("out", "dist", "folder for the archive")
	flag.Parse()
	if (r.repository == "") != (r.digest == "") {
		fmt.Fprintln(os.Stderr, "chart: -repository and -digest belong together")
		os.Exit(2)
	}
	file, err := pack(*folder, r, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
	fmt.Println(file)
}

// pack writes the archive of a chart into a folder, and returns its path.
func pack(folder string, r release, out string) (string, error) {
	content, err := archive(folder, r)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(out, fmt.Sprintf("%s-%s.tgz", name, chartVersion(r.version)))
	return file, os.WriteFile(file, content, 0o644)
}
