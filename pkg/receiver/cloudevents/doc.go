// Package cloudevents delivers Events as CloudEvents 1.0 by HTTP, in the JSON format: one in a
// request (application/cloudevents+json), or as many as fit into 1 MiB
// (application/cloudevents-batch+json).
//
//	id               uid/resourceVersion of the Event, the same in each repetition
//	source           /clusters/CLUSTER
//	type             io.k8s.api.core.v1.Event
//	subject          the involved object: /namespaces/NAMESPACE/pods/NAME, or /nodes/NAME
//	time             the Event's last time
//	datacontenttype  application/json
//	data             the Event, as core/v1 in JSON
//
// The type is the name that the OpenAPI document of Kubernetes gives to what data is. Those of
// Knative's ApiServerSource, dev.knative.apiserver.resource.add and update, say what happened to
// the object, which is not known for a version that was listed. The plural in the subject is
// guessed from the kind, as clients of Kubernetes do that do not read the API's discovery.
//
// A request is acknowledged by any 2xx, whatever the body. 400, 413, 422 and what says
// that it is too large refuse it for good: an Event that is alone in its request is then rejected, and the
// next is sent. After a 413 with Retry-After it is rejected at the tenth time. After all else, or no
// answer, the batch is sent again, after Retry-After if there is one, but without the Events at
// its beginning that were acknowledged. Redirects are not followed.
package cloudevents
