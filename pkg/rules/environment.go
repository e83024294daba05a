package rules

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// variable is the name of the Event in expressions.
const variable = "event"

// newEnvironment returns the environment that the apiserver has for expressions in configuration
// files, with the Event. It is expensive, so there is one for all sets.
var newEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	extended, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(variable, eventType.value)},
		DeclTypes:         []*apiservercel.DeclType{eventType.decl},
	})
	if err != nil {
		return nil, err
	}
	env, err := extended.Env(environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	return boundedMacros(env)
})

// sizes estimates how large a value is.
type sizes struct{}

// EstimateSize is that of checker.CostEstimator.
func (sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || path[0] != variable {
		if element.Type().Kind() == types.StringKind {
			// A part of a field, usually. The budget at run time is for what is not.
			return &checker.SizeEstimate{Max: longest}
		}
		return nil
	}
	of := eventType.decl
	for _, name := range path[1:] {
		f, isField := of.Fields[name]
		switch {
		case isField:
			of = f.Type
		case name == "@keys" && of.IsMap():
			of = of.KeyType
		case of.IsMap():
			of = of.ElemType
		default:
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(of.MaxElements)}
}

// EstimateCallCost is that of checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// estimator is that of the apiserver, with what a function makes: a tenant's message in which each
// character is replaced by a tenant's annotation has the product of their sizes. And indexOf compares
// the string at each place, as contains does, which costs the product too.
type estimator struct{ library.CostEstimator }

func newEstimator() *estimator {
	return &estimator{library.CostEstimator{SizeEstimator: sizes{}}}
}

// EstimateCallCost is that of checker.CostEstimator.
func (e *estimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	call := e.CostEstimator.EstimateCallCost(function, overload, target, args)
	if call != nil && call.ResultSize != nil {
		call.CostEstimate = call.Add(call.ResultSize.MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	if call != nil && (function == "indexOf" || function == "lastIndexOf") && len(args) > 0 {
		call.CostEstimate = call.Multiply(sizeOf(args[0]).MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	return call
}

// sizeOf returns the size of an argument.
func sizeOf(argument checker.AstNode) checker.SizeEstimate {
	for _, size := range []*checker.SizeEstimate{argument.ComputedSize(), sizes{}.EstimateSize(argument)} {
		if size != nil {
			return *size
		}
	}
	return checker.SizeEstimate{Max: longest}
}
