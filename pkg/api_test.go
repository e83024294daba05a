// Package pkg_test checks what holds for all packages of the public API.
package pkg_test

import (
	"bufio"
	"bytes"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A type of internal/ in an exported signature compiles here, and cannot be named
// or implemented in another module.
func TestPublicAPIMentionsNoInternalType(t *testing.T) {
	exports, public := listPackages(t, "./...")
	if len(public) < 5 {
		t.Fatalf("only %d packages are listed", len(public))
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, path := range public {
		p, err := compiled.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			if object := p.Scope().Lookup(name); object.Exported() {
				w := walker{seen: make(map[types.Type]bool), report: func(at, of string) { t.Errorf("%s.%s mentions %s", path, at, of) }}
				w.object(object)
			}
		}
	}
}

// listPackages compiles the packages and what they import. It returns the files with
// the export data by import path, and the packages that other modules can import.
func listPackages(t *testing.T, pattern string) (exports map[string]string, public []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}} {{.DepOnly}}", pattern)
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as make builds all else
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports = make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, rest, _ := strings.Cut(lines.Text(), " ")
		file, depOnly, _ := strings.Cut(rest, " ")
		if exports[path] = file; depOnly == "false" && file != "" && !isInternal(path) {
			public = append(public, path)
		}
	}
	return exports, public
}

func isInternal(path string) bool {
	return strings.HasPrefix(path, "github.com/eventd/") && strings.Contains(path+"/", "/internal/")
}

// walker visits all types that an exported object makes part of the API.
type walker struct {
	seen   map[types.Type]bool
	report func(at, of string)
}

func (w *walker) object(o types.Object) {
	name, isType := o.(*types.TypeName)
	if !isType || name.IsAlias() {
		w.visit(o.Name(), o.Type())
		return
	}
	w.visit(o.Name(), o.Type().Underlying())
	methods := types.NewMethodSet(types.NewPointer(o.Type())) // promoted ones included
	for i := range methods.Len() {
		if m := methods.At(i).Obj(); m.Exported() {
			w.visit(o.Name()+"."+m.Name(), m.Type())
		}
	}
}

// visit follows a type down to named types, which are visited as objects of their own.
func (w *walker) visit(at string, of types.Type) {
	if w.seen[of] {
		return
	}
	w.seen[of] = true
	switch of := of.(type) {
	case *types.Alias:
		w.named(at, of.Obj(), of.TypeArgs())
		w.visit(at, of.Rhs())
	case *types.Named:
		w.named(at, of.Obj(), of.TypeArgs())
	case *types.Struct:
		for field := range of.Fields() {
			switch {
			case field.Exported():
				w.visit(at+"."+field.Name(), field.Type())
			case field.Embedded(): // its fields are promoted
				w.visit(at, field.Type().Underlying())
			}
		}
	case *types.Interface:
		for m := range of.Methods() {
			w.visit(at+"."+m.Name(), m.Type())
		}
	case *types.Signature:
		w.visit(at, of.Params())
		w.visit(at, of.Results())
	case *types.Tuple:
		for v := range of.Variables() {
			w.visit(at, v.Type())
		}
	case *types.Map:
		w.visit(at, of.Key())
		w.visit(at, of.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.visit(at, of.Elem())
	}
}

func (w *walker) named(at string, name *types.TypeName, arguments *types.TypeList) {
	if p := name.Pkg(); p != nil && isInternal(p.Path()) {
		w.report(at, p.Path()+"."+name.Name())
	}
	for argument := range arguments.Types() {
		w.visit(at, argument)
	}
}
