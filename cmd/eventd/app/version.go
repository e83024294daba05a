package app

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
)

// Version returns the version of this binary: as stamped by
// -ldflags "-X k8s.io/component-base/version.gitVersion=…", like kube components, or
// else the module version.
func Version() string {
	if stamped := version.Get().GitVersion; !strings.Contains(stamped, "$Format") {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// commit returns the revision that this binary was built from, or "unknown".
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

// printVersion prints the version if --version asks for it, and reports whether it did.
// verflag would print "Kubernetes" as the name of the program.
func printVersion(fs *pflag.FlagSet, out io.Writer) bool {
	switch fs.Lookup("version").Value.String() {
	case "true":
		_, _ = fmt.Fprintf(out, "eventd %s\n", Version())
	case "raw":
		info := version.Get()
		info.GitVersion, info.GitCommit = Version(), commit()
		_, _ = fmt.Fprintf(out, "%#v\n", info)
	default: // not given, or --version=vX, which sets the version
		return false
	}
	return true
}
