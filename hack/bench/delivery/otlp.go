package main

import (
	"compress/gzip"
	"io"
	"net/http"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// readRequest returns what is sent to /v1/logs.
func readRequest(r *http.Request) (*collogspb.ExportLogsServiceRequest, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	request := &collogspb.ExportLogsServiceRequest{}
	return request, proto.Unmarshal(content, request)
}

// versionsOf returns the versions of this run in a request, in order.
func versionsOf(request *collogspb.ExportLogsServiceRequest) (versions []version) {
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				if v, ok := parseVersion(messageOf(record.Body)); ok {
					versions = append(versions, v)
				}
			}
		}
	}
	return versions
}

// messageOf returns the message of an Event: the body, or with k8sobjects a field of the object in it.
func messageOf(body *commonpb.AnyValue) string {
	if object := field(body, "object"); object != nil {
		body = field(object, "message")
	}
	return body.GetStringValue()
}

func field(of *commonpb.AnyValue, key string) *commonpb.AnyValue {
	for _, pair := range of.GetKvlistValue().GetValues() {
		if pair.Key == key {
			return pair.Value
		}
	}
	return nil
}
