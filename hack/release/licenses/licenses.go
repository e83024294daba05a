// Package licenses collects the licenses under which a Go program may be passed on in a
// binary: those of its modules, of code that these have copied from others, and of the
// standard library.
//
// They are the files in the folders of the packages that are compiled into the program,
// and in the folders above these, up to the root of a module. The text is the same whenever
// it is made of the same packages.
package licenses

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Program is a command, as it is compiled.
type Program struct {
	// Folder is the root of its module, and Package a path there, such as ./cmd/eventd.
	Folder, Package string
	// OS and Arch decide which packages it has.
	OS, Arch string
}

// file is one with a license, or a notice that belongs to it. It is named by its module.
type file struct{ name, text string }

// Of returns one text with all licenses of others. It fails if a module has none.
func Of(ctx context.Context, p Program) ([]byte, error) {
	packages, err := p.packages(ctx)
	if err != nil {
		return nil, err
	}
	files, err := p.standardLibrary(ctx)
	if err != nil {
		return nil, err
	}
	for _, module := range modulesOf(packages) {
		found, err := module.files()
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return text(files), nil
}

// module is one whose packages are in a program.
type module struct {
	Path, Version, Dir string
	Main               bool
	// folders are those of its packages.
	folders []string
}

// goPackage has the fields of "go list" that are used here.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *module
}

// packages are those that are compiled into the program.
func (p Program) packages(ctx context.Context) (packages []goPackage, err error) {
	out, err := p.goCommand(ctx, "list", "-deps", "-json=Dir,Standard,Module", p.Package)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var next goPackage
		if err := decoder.Decode(&next); err != nil {
			return nil, err
		}
		packages = append(packages, next)
	}
	return packages, nil
}

// standardLibrary has its license in the folder of the Go release that compiles.
func (p Program) standardLibrary(ctx context.Context) ([]file, error) {
	out, err := p.goCommand(ctx, "env", "-json", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	var release struct{ GOROOT, GOVERSION string }
	if err := json.Unmarshal(out, &release); err != nil {
		return nil, err
	}
	std := module{Path: "Go standard library", Version: release.GOVERSION, Dir: release.GOROOT, folders: []string{release.GOROOT}}
	return std.files()
}

// goCommand runs the go command as hack/static.sh does.
func (p Program) goCommand(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr = p.Folder, os.Stderr
	command.Env = append(os.Environ(), "GOOS="+p.OS, "GOARCH="+p.Arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// modulesOf returns the modules of packages, but for the standard library and the module of the program.
func modulesOf(packages []goPackage) (modules []*module) {
	known := map[string]*module{}
	for _, p := range packages {
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		m := known[p.Module.Path]
		if m == nil {
			m = p.Module
			known[m.Path] = m
			modules = append(modules, m)
		}
		m.folders = append(m.folders, p.Dir)
	}
	return modules
}

// named is how files with a license are named, and what belongs to one.
var named = regexp.MustCompile(`^(?i)((un)?licen[sc]e|copying|copyright|notice|patents)([.-].*)?$`)

// files are those that apply to the packages of m.
func (m *module) files() (found []file, err error) {
	for _, folder := range m.withParents() {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() || !named.MatchString(entry.Name()) || filepath.Ext(entry.Name()) == ".go" {
				continue
			}
			path := filepath.Join(folder, entry.Name())
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			within, err := filepath.Rel(m.Dir, path)
			if err != nil {
				return nil, err
			}
			found = append(found, file{m.Path + " " + m.Version + ", " + filepath.ToSlash(within), strings.TrimSpace(string(content))})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s %s has no file with a license", m.Path, m.Version)
	}
	return found, nil
}

// withParents are the folders of the packages, and those above them in the module.
func (m *module) withParents() (folders []string) {
	for _, folder := range m.folders {
		for !slices.Contains(folders, folder) {
			folders = append(folders, folder)
			if folder != m.Dir {
				folder = filepath.Dir(folder)
			}
		}
	}
	return folders
}

// text has each license once, after the names of all files that have it.
func text(files []file) []byte {
	names := map[string][]string{}
	for _, f := range files {
		names[f.text] = append(names[f.text], f.name)
	}
	var texts []string
	for text := range names {
		slices.Sort(names[text])
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(names[a][0], names[b][0]) })
	var out bytes.Buffer
	out.WriteString("This program has software of others in it, under these licenses.\n")
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(names[text], "\n"), text)
	}
	return out.Bytes()
}
