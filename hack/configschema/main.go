// Command configschema prints docs/eventdconfiguration.schema.json: the JSON schema of the
// configuration file, for editors, from the types and their comments.
//
//	go run ./hack/configschema >docs/eventdconfiguration.schema.json
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

func main() {
	schema, err := generate("pkg/config/v1alpha1/types.go")
	if err != nil {
		fmt.Fprintln(os.Stderr, "configschema:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(schema)
}

// schema is the part of JSON Schema that the types need. What eventd checks beyond it, eventd
// config check shows.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a name, or several
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	// AdditionalProperties is false, or the schema of the values of a map.
	AdditionalProperties any `json:"additionalProperties,omitempty"`
}

// generate returns the schema of the types in a source file.
func generate(source string) ([]byte, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	g := &generator{comments: make(map[string]string), enums: make(map[string][]string)}
	for _, decl := range file.Decls {
		if gen, isGen := decl.(*ast.GenDecl); isGen {
			g.read(gen)
		}
	}
	root := g.of(reflect.TypeFor[v1alpha1.EventdConfiguration]())
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", v1alpha1.Kind
	root.Properties["apiVersion"] = &schema{Const: v1alpha1.APIVersion}
	root.Properties["kind"] = &schema{Const: v1alpha1.Kind}
	root.Required = append([]string{"apiVersion", "kind"}, root.Required...)
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

type generator struct {
	comments map[string]string   // by TYPE or TYPE.FIELD
	enums    map[string][]string // the constants by type
}

// read keeps the comments of types and fields, and the constants of string types.
func (g *generator) read(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			g.comments[s.Name.Name] = text(decl.Doc)
			if of, isStruct := s.Type.(*ast.StructType); isStruct {
				for _, f := range of.Fields.List {
					for _, name := range f.Names {
						g.comments[s.Name.Name+"."+name.Name] = text(f.Doc)
					}
				}
			}
		case *ast.ValueSpec:
			of, named := s.Type.(*ast.Ident)
			if !named || len(s.Values) != 1 {
				continue
			}
			if literal, isLiteral := s.Values[0].(*ast.BasicLit); isLiteral {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					g.enums[of.Name] = append(g.enums[of.Name], value)
				}
			}
		}
	}
}

func text(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

func (g *generator) of(t reflect.Type) *schema {
	switch t.Kind() {
	case reflect.Pointer:
		return g.of(t.Elem())
	case reflect.Slice:
		return &schema{Type: "array", Items: g.of(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", AdditionalProperties: g.of(t.Elem())}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int32, reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.String:
		if t == reflect.TypeFor[v1alpha1.Rate]() {
			return &schema{Type: []string{"string", "number"}}
		}
		return &schema{Type: "string", Enum: g.enums[t.Name()]}
	case reflect.Struct:
		if t.PkgPath() != reflect.TypeFor[v1alpha1.Receiver]().PkgPath() {
			return &schema{Type: "string"} // metav1.Duration
		}
		s := &schema{Type: "object", Description: g.comments[t.Name()], Properties: make(map[string]*schema), AdditionalProperties: false}
		g.addFields(s, t)
		return s
	default:
		panic(fmt.Sprint("no schema for ", t))
	}
}

func (g *generator) addFields(s *schema, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			property := g.of(f.Type)
			property.Description = g.comments[t.Name()+"."+f.Name]
			s.Properties[name] = property
			if !strings.Contains(options, "omitempty") {
				s.Required = append(s.Required, name)
			}
		case f.Type.PkgPath() == t.PkgPath(): // inline
			g.addFields(s, f.Type)
		}
	}
}
