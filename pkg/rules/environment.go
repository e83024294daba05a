package rules

import (
	"cmp"
	"strings"
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

// Costs of calls that the apiserver takes for one unit.
const (
	// zoneCost is that of a time in a time zone, whose file is read: 0.05 ms if there is one, and 0.3 ms if not.
	zoneCost = 200
	// formatCost is that of a format of what may have all annotations: 5 ms.
	formatCost = 4000
)

// estimator is that of the apiserver, with what a function makes: a tenant's message in which each
// character is replaced by a tenant's annotation has the product of their sizes. And indexOf compares
// the string at each place, as contains does, which costs the product too. Some functions cost more than one unit.
type estimator struct{ library.CostEstimator }

// EstimateCallCost is that of checker.CostEstimator.
func (e *estimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	call := e.CostEstimator.EstimateCallCost(function, overload, target, args)
	if call != nil && call.ResultSize != nil {
		call.CostEstimate = call.Add(call.ResultSize.MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	if call != nil && (function == "indexOf" || function == "lastIndexOf") && len(args) > 0 {
		call.CostEstimate = call.Multiply(sizeOf(args[0]).MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	if call == nil {
		if cost, ok := costOf(function, target, args); ok {
			return &checker.CallEstimate{CostEstimate: cost}
		}
	}
	return call
}

// costOf returns that of a call of a function for which the apiserver has no estimate, if it is more than one unit.
func costOf(function string, target *checker.AstNode, args []checker.AstNode) (cost checker.CostEstimate, ok bool) {
	switch {
	case function == "format" && len(args) == 1:
		list := args[0].Type().Parameters()
		if len(list) != 1 {
			return checker.FixedCostEstimate(formatCost), true
		}
		switch list[0].Kind() {
		case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind:
			return checker.SizeEstimate{Min: longest, Max: longest}.MultiplyByCostFactor(common.StringTraversalCostFactor), true
		}
		return checker.FixedCostEstimate(formatCost), true
	case strings.HasPrefix(function, "get") && target != nil && len(args) == 1:
		return checker.FixedCostEstimate(zoneCost), true
	case function == "charAt" && target != nil:
		return sizeOf(*target).MultiplyByCostFactor(common.StringTraversalCostFactor), true
	case function == "timestamp" && len(args) == 1 && args[0].Type().Kind() != types.IntKind:
		return sizeOf(args[0]).MultiplyByCostFactor(common.StringTraversalCostFactor), true
	}
	return cost, false
}

// sizeOf returns the size of an argument.
func sizeOf(argument checker.AstNode) checker.SizeEstimate {
	return *cmp.Or(argument.ComputedSize(), sizes{}.EstimateSize(argument), &checker.SizeEstimate{Max: longest})
}
