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
				for _, of := range typesOf(object) {
					wantPublic(t, path+"."+name, of)
				}
			}
		}
	}
}

// typesOf returns the types that an exported object makes part of the API. Named types in
// them are objects of their own.
func typesOf(object types.Object) (out []types.Type) {
	name, isType := object.(*types.TypeName)
	if !isType || name.IsAlias() {
		return []types.Type{types.Unalias(object.Type())}
	}
	methods := types.NewMethodSet(types.NewPointer(object.Type())) // promoted ones included
	for i := range methods.Len() {
		if m := methods.At(i).Obj(); m.Exported() {
			out = append(out, m.Type())
		}
	}
	return append(out, object.Type().Underlying())
}

// wantPublic checks that a type names none of internal/, except in unexported fields.
func wantPublic(t *testing.T, at string, of types.Type) {
	t.Helper()
	fields, isStruct := of.(*types.Struct)
	if !isStruct {
		types.TypeString(of, func(p *types.Package) string {
			if isInternal(p.Path()) {
				t.Errorf("%s mentions %s", at, p.Path())
			}
			return p.Name()
		})
		return
	}
	for field := range fields.Fields() {
		switch {
		case field.Exported():
			wantPublic(t, at+"."+field.Name(), field.Type())
		case field.Embedded(): // its fields are promoted
			wantPublic(t, at, field.Type().Underlying())
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
