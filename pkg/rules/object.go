package rules

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// An object is a struct of Go as a value of CEL. A field is converted when an expression reads it,
// so an Event is never converted as a whole.
type object[T any] struct {
	*objectType[T]
	of *T
}

// An objectType has the fields that expressions can read.
type objectType[T any] struct {
	decl   *apiservercel.DeclType
	value  *types.Type
	fields map[string]accessor[T]
}

type accessor[T any] struct {
	decl *apiservercel.DeclType
	get  func(*T) ref.Val
}

func newObjectType[T any](name string, fields map[string]accessor[T]) *objectType[T] {
	declared := make(map[string]*apiservercel.DeclField, len(fields))
	for name, f := range fields {
		declared[name] = apiservercel.NewDeclField(name, f.decl, true, nil, nil)
	}
	decl := apiservercel.NewObjectType(name, declared)
	return &objectType[T]{decl: decl, value: decl.CelType(), fields: fields}
}

func (t *objectType[T]) new(of *T) object[T] { return object[T]{t, of} }

// The methods of ref.Val, traits.Indexer and traits.FieldTester.
var (
	_ traits.Indexer     = object[int]{}
	_ traits.FieldTester = object[int]{}
)

// Get returns a field.
func (o object[T]) Get(name ref.Val) ref.Val {
	if text, isString := name.(types.String); isString {
		if f, found := o.fields[string(text)]; found {
			return f.get(o.of)
		}
	}
	return types.NewErr("no such field: %v", name)
}

// IsSet reports whether a field is not its zero value.
func (o object[T]) IsSet(name ref.Val) ref.Val {
	value := o.Get(name)
	if zero, canBeZero := value.(traits.Zeroer); canBeZero {
		return types.Bool(!zero.IsZeroValue())
	}
	if types.IsError(value) {
		return value
	}
	return types.True
}

// IsZeroValue reports whether no field is set.
func (o object[T]) IsZeroValue() bool {
	for _, f := range o.fields {
		if zero, canBeZero := f.get(o.of).(traits.Zeroer); !canBeZero || !zero.IsZeroValue() {
			return false
		}
	}
	return true
}

// ConvertToNative fails: no function of an expression takes an object.
func (o object[T]) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("no conversion of %s to %s", o.value, to)
}

// ConvertToType returns the object itself, or its type.
func (o object[T]) ConvertToType(to ref.Type) ref.Val {
	switch to.TypeName() {
	case o.value.TypeName():
		return o
	case types.TypeType.TypeName():
		return o.value
	default:
		return types.NewErr("no conversion of %s to %s", o.value, to.TypeName())
	}
}

// Equal compares all fields.
func (o object[T]) Equal(other ref.Val) ref.Val {
	that, same := other.(object[T])
	if !same {
		return types.False
	}
	for _, f := range o.fields {
		if equal := types.Equal(f.get(o.of), f.get(that.of)); equal != types.True {
			return equal
		}
	}
	return types.True
}

// Type is the type of ref.Val.
func (o object[T]) Type() ref.Type { return o.value }

// Value is the struct.
func (o object[T]) Value() any { return o.of }
