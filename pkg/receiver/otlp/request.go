package otlp

import (
	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/eventd/eventd/pkg/receiver"
)

// maxRequestBytes limits a request, before compression. A record has at most half of it, see
// maxBodyBytes.
const maxRequestBytes = 3 << 20

// newRequest returns a request with the first of the records, and as many of those that follow as
// fit. Each has a ResourceLogs of its own, since its resource is the involved object.
func newRequest(records []receiver.Record) *collogspb.ExportLogsServiceRequest {
	logs := make([]*logspb.ResourceLogs, 0, len(records))
	bytes := 0
	for _, r := range records {
		l := resourceLogs(r)
		bytes += protowire.SizeTag(1) + protowire.SizeBytes(proto.Size(l))
		if bytes > maxRequestBytes && len(logs) > 0 {
			break
		}
		logs = append(logs, l)
	}
	return &collogspb.ExportLogsServiceRequest{ResourceLogs: logs}
}
