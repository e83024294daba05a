package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/eventd/eventd/test/upgrade"
)

const (
	eventdImage = "eventd.local/eventd"
	posterImage = "eventd.local/poster:v1"
	// As the examples name them.
	feederImage     = "registry.example/feeder:v0.1.0"
	controllerImage = "registry.example/controller:v0.1.0"
	collectorImage  = "docker.io/otel/opentelemetry-collector-contrib:0.162.0"
	aheadTag        = "ahead"
)

// previousDeploy is the folder of the previous release's manifests, in a run with all disturbances.
var previousDeploy string

// pack builds the images for Pods in a folder, but for that of this version, and returns their archives.
func pack(work string) (archives []string, err error) {
	p := packer{work: work}
	p.pack(posterImage, p.build("poster", "./poster"))
	p.pack(feederImage, p.build("feeder", "../../examples/feeder"))
	p.pack(controllerImage, p.build("controller", "../../examples/controller"))
	p.pack(collectorImage, p.run("../collector/build.sh"), filepath.Join(*parts, "deb/usr/bin/busybox")+"=/busybox")
	if *turns > 0 {
		p.pack(eventdImage+":"+aheadTag, p.build("eventd", "../../cmd/eventd", "-overlay", p.ahead()))
		p.previous()
	}
	return p.archives, p.err
}

// packer makes images until the first error.
type packer struct {
	work     string
	archives []string
	err      error
}

// run returns the standard output of a command.
func (p *packer) run(name string, args ...string) string {
	if p.err != nil {
		return ""
	}
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	out, err := command.Output()
	if failure, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s", err, failure.Stderr)
	}
	if err != nil {
		p.err = fmt.Errorf("%s %q: %w", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

// build returns the binary of a program.
func (p *packer) build(name, folder string, flags ...string) (binary string) {
	binary = filepath.Join(p.work, name)
	p.run("go", append(append([]string{"build", "-o", binary}, flags...), folder)...)
	return binary
}

// pack packs a binary.
func (p *packer) pack(reference, binary string, more ...string) {
	archive, path := filepath.Join(p.work, fmt.Sprintf("%d.tar", len(p.archives))), "/"+filepath.Base(binary)
	p.run(filepath.Join(*parts, "cluster"), append([]string{"image", "-o", archive, "-name", reference, "-entrypoint", path, binary + "=" + path}, more...)...)
	p.archives = append(p.archives, archive)
}

// previous packs the previous release, and takes its manifests.
func (p *packer) previous() {
	if p.err != nil {
		return
	}
	var binary, commit string
	if binary, p.err = upgrade.Build(context.Background()); p.err != nil {
		return
	}
	if commit, p.err = upgrade.Commit(); p.err != nil {
		return
	}
	p.pack(eventdImage+":"+upgrade.Version, binary)
	archive := filepath.Join(p.work, "deploy.tar")
	p.run("git", "-C", "../..", "archive", "--output", archive, commit, "deploy")
	p.run("tar", "-xf", archive, "-C", p.work)
	previousDeploy = filepath.Join(p.work, "deploy")
}

// ahead returns an overlay of Go in which the clock is 5 minutes ahead on node-2.
func (p *packer) ahead() (overlay string) {
	original := filepath.Join(p.run("go", "env", "GOROOT"), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	const now, imports = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "import (\n"
	for _, once := range []string{now, imports} {
		if err == nil && strings.Count(string(source), once) != 1 {
			err = fmt.Errorf("%s of this version of Go does not have %q once", original, once)
		}
	}
	changed := strings.NewReplacer(now, now+"\tsec += ahead\n", imports, imports+"\t\"syscall\"\n").Replace(string(source)) + `
var ahead = func() int64 {
	if name, _ := syscall.Getenv("NODE_NAME"); name == "node-2" {
		return 5 * 60
	}
	return 0
}()
`
	replacement, overlay := filepath.Join(p.work, "time.go"), filepath.Join(p.work, "overlay.json")
	p.err = errors.Join(p.err, err, os.WriteFile(replacement, []byte(changed), 0o600),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, original, replacement), 0o600))
	return overlay
}
