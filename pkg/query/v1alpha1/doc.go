// Package v1alpha1 has the types of query.eventd.io/v1alpha1, the read-only API of eventd: what it does, and
// what it knows about the Events of a cluster.
//
// Each resource is served at /apis/query.eventd.io/v1alpha1/RESOURCE, and answers a GET with the object of
// its kind:
//
//	status    PipelineStatus  what eventd does now
//	top       Top             the noisiest objects, reasons, namespaces or reporters
//	timeline  Timeline        what was observed, in order
//	why       Explanation     what became of the occurrences of an object
//	drops     DropList        what was not written, and why
//	tail      (watch only)    Events and steps as they come
//
// The parameters of a query are in the URL (Query). Its answer has what its caller may list: Events of the
// namespaces of the query. With watch=true, status, top and drops send their object again when it has
// changed, and tail sends items: lines of metav1.WatchEvent, or server-sent events if the client accepts
// text/event-stream.
package v1alpha1
