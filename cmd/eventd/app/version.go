package app

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
)

// Version is what this process is: the version that was stamped into the
// binary with -ldflags "-X k8s.io/component-base/version.gitVersion=…", as in
// the kube components, else what the go command knows of it.
func Version() string {
	if stamped := version.Get().GitVersion; !strings.Contains(stamped, "$Format") {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// commit is the revision that this process was built from, if that is known.
func commit() string {
	if stamped := version.Get().GitCommit; !strings.Contains(stamped, "$Format") {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}

// printVersion obeys --version and tells whether that was all. verflag would
// do it, but it calls every program that it is not told about Kubernetes.
func printVersion(fs *pflag.FlagSet, out io.Writer) bool {
	switch fs.Lookup("version").Value.String() {
	case "true":
		_, _ = fmt.Fprintf(out, "eventd %s\n", Version())
	case "raw":
		info := version.Get()
		info.GitVersion, info.GitCommit = Version(), commit()
		_, _ = fmt.Fprintf(out, "%#v\n", info)
	default: // not asked for, or --version=vX, which has set it
		return false
	}
	return true
}
