// Package otlp delivers Events as OTLP log records, over gRPC or HTTP, to an OpenTelemetry
// collector or to anything else that accepts OTLP.
//
// The names of attributes are those of the collector's k8seventsreceiver, so what is built on it
// works with eventd. What it leaves empty is left out, and k8s.event.start_time is in RFC 3339:
//
//	body             the message
//	time             the Event's last time
//	observed time    when eventd read the version
//	severity         INFO for Normal, WARN for Warning, unspecified for all else
//	resource         k8s.cluster.name, k8s.node.name (source.host),
//	                 k8s.object.{kind,name,uid,fieldpath,api_version,resource_version}
//	attributes       k8s.event.{reason,action,start_time,name,uid,count,reporting_controller,
//	                 reporting_instance}, k8s.namespace.name (of the object), and
//	                 log.record.uid, which is uid/resourceVersion of the Event
//
// The count is that of the series, if there is one. The reporting controller is source.component
// if the Event names none. Strings that are not UTF-8 are repaired, since protobuf would refuse
// them. The body is cut to 1 MiB, and each attribute to 64 KiB.
//
// A request has at most 3 MiB before compression, since a collector accepts 4 MiB over gRPC. A
// larger batch is several requests, one after another.
//
// What the destination answers, and what follows:
//
//	HTTP 2xx, gRPC OK                      delivered, but for the records that partial_success
//	                                       rejects
//	HTTP 2xx with half a body or a page    sent again: it was not a receiver of OTLP
//	HTTP 400, 413, 422, gRPC InvalidArgument, and any other status or code whose text says that
//	the request is too large               refused for good: sent in halves, until one record is alone
//	                                       and given up
//	gRPC ResourceExhausted without RetryInfo, HTTP 413 with Retry-After
//	                                       sent in halves; one record alone is given up after ten
//	                                       attempts
//	gRPC codes with RetryInfo, HTTP statuses with Retry-After
//	                                       sent again after that
//	HTTP 3xx and all other                 sent again; redirects are not followed
//	no answer                              sent again, over another connection
//
// The specification of OTLP has a request dropped after Unknown, NotFound, AlreadyExists,
// PermissionDenied, FailedPrecondition, Unimplemented, Internal and Unauthenticated, after
// ResourceExhausted without RetryInfo, and after all HTTP statuses but 429, 502, 503 and 504. Most of
// them say that the client or the destination is not configured as it should be, and no Event is to
// be lost for that.
package otlp
