package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// The receivers of configuration.yaml, and where they deliver to.
const (
	archive, logsPath = "archive", "/v1/logs"
	pager, eventsPath = "pager", "/events"
)

// maxBody is above what a receiver sends at once: 3 MiB.
const maxBody = 4 << 20

// destination accepts what the receivers deliver, as an OpenTelemetry collector and a consumer of
// CloudEvents do. It is a server of this process: a collector would take minutes more to compile.
type destination struct {
	server *http.Server
	url    string
	ended  chan error // of the server

	mu      sync.Mutex
	arrived map[string]*arrivals // by receiver
}

// arrivals are the versions that have arrived for one receiver.
type arrivals struct {
	versions int64
	// repeated have arrived before, or after a later version of the same Event.
	repeated int64
	// latest is the latest resourceVersion of each Event that is stored, by UID. There are as many
	// as the view has Events, since the routes let no other namespace pass.
	latest map[string]string
}

// version is what identifies a version of an Event.
type version struct{ uid, resourceVersion string }

func newDestination() *destination {
	d := &destination{arrived: map[string]*arrivals{}, ended: make(chan error, 1)}
	for _, receiver := range []string{archive, pager} {
		d.arrived[receiver] = &arrivals{latest: map[string]string{}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+logsPath, d.accept(archive, "application/x-protobuf", decodeLogs))
	mux.HandleFunc("POST "+eventsPath, d.accept(pager, "application/json", decodeCloudEvents))
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return d
}

// start serves at a free port until close.
func (d *destination) start() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.url = "http://" + listener.Addr().String()
	go func() { d.ended <- d.server.Serve(listener) }()
	return nil
}

func (d *destination) close() error {
	err := d.server.Close()
	if ended := <-d.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// accept acknowledges what can be decoded.
func (d *destination) accept(receiver, contentType string, decode func([]byte) ([]version, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		var versions []version
		if err == nil {
			versions, err = decode(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.add(receiver, versions)
		w.Header().Set("Content-Type", contentType)
	}
}

func readBody(r *http.Request) ([]byte, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	content, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if len(content) > maxBody {
		return nil, fmt.Errorf("more than %d bytes", maxBody)
	}
	return content, err
}

func decodeLogs(body []byte) (versions []version, err error) {
	request := &collogspb.ExportLogsServiceRequest{}
	if err := proto.Unmarshal(body, request); err != nil {
		return nil, err
	}
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				v, err := parseID(attribute(record.Attributes, "log.record.uid"))
				if err != nil {
					return nil, err
				}
				versions = append(versions, v)
			}
		}
	}
	return versions, nil
}

func attribute(all []*commonpb.KeyValue, key string) string {
	for _, a := range all {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func decodeCloudEvents(body []byte) (versions []version, err error) {
	var batch []struct{ ID string }
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	for _, e := range batch {
		v, err := parseID(e.ID)
		if err != nil {
			return nil, err
		}
		versions = append(versions, v)
	}
	return versions, nil
}

// parseID parses uid/resourceVersion.
func parseID(id string) (version, error) {
	uid, resourceVersion, found := strings.Cut(id, "/")
	if !found {
		return version{}, fmt.Errorf("the id %q is not UID/RESOURCEVERSION", id)
	}
	_, err := resourceversion.CompareResourceVersion(resourceVersion, resourceVersion)
	return version{uid, resourceVersion}, err
}

func (d *destination) add(receiver string, versions []version) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.arrived[receiver]
	for _, v := range versions {
		a.versions++
		if latest, ok := a.latest[v.uid]; ok {
			// Both are valid: parseID has compared them.
			if order, _ := resourceversion.CompareResourceVersion(v.resourceVersion, latest); order <= 0 {
				a.repeated++
				continue
			}
		}
		a.latest[v.uid] = v.resourceVersion
	}
}

// forget removes what is kept of an Event that is no longer stored.
func (d *destination) forget(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.arrived {
		delete(a.latest, uid)
	}
}

// arrivals returns how many versions have arrived for a receiver, how many of them again, and
// whether a version of an Event is the latest that has.
func (d *destination) arrivals(receiver string) (versions, repeated int64, latest func(uid, resourceVersion string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.arrived[receiver]
	return a.versions, a.repeated, func(uid, resourceVersion string) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return a.latest[uid] == resourceVersion
	}
}
