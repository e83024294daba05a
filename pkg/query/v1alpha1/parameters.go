package v1alpha1

// The parameters of a query, in its URL.
const (
	// ParamNamespace may be repeated, up to MaxNamespaces times. Without it, a query is over all namespaces.
	ParamNamespace = "namespace"
	// ParamGroup, ParamKind, ParamName and ParamUID name the object that Events are about. The group is GroupCore
	// for Pods; an Event that does not say the group of its object matches each.
	ParamGroup = "group"
	ParamKind  = "kind"
	ParamName  = "name"
	ParamUID   = "uid"
	// ParamReason, ParamType and ParamReporter are equal to fields of Events.
	ParamReason   = "reason"
	ParamType     = "type"
	ParamReporter = "reporter"
	// ParamSince and ParamUntil limit the time at which Events were last seen, whenever that was observed: RFC
	// 3339, or a duration before now, such as 10m.
	ParamSince = "since"
	ParamUntil = "until"
	// ParamLimit is the maximum number of items.
	ParamLimit = "limit"
	// ParamVersions, of timeline, is latest (one version for each Event, the default) or all.
	ParamVersions = "versions"
	// ParamBy, of top, is object, reason, namespace or reporter.
	ParamBy = "by"
	// ParamMatch, of tail, is an expression as in the rules of the configuration.
	ParamMatch = "match"
	// ParamInclude, of tail, is events, steps or both, separated by a comma; events by default.
	ParamInclude = "include"
	// ParamResourceVersion, of tail, is the cursor to resume from: what comes after it.
	ParamResourceVersion = "resourceVersion"
	// ParamWatch keeps the answer open.
	ParamWatch = "watch"
	// ParamLocal, of status, asks for the replica that answers.
	ParamLocal = "local"
)

// Limits of a query.
const (
	MaxNamespaces = 20
	DefaultLimit  = 500
	MaxLimit      = 5000
)
