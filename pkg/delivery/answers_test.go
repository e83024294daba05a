package delivery

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/pkg/receiver/jetstream"
	"github.com/eventd/eventd/pkg/receiver/jsonlines"
	"github.com/eventd/eventd/pkg/receiver/otlp"
)

// answers is a destination that answers requests by their IDs: nil accepts.
type answers struct {
	mu       sync.Mutex
	refuses  func(request []string, before [][]string) bool
	requests [][]string
	accepted []string
}

// accepts reports whether a request is accepted.
func (a *answers) accepts(ids ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused := a.refuses(ids, a.requests)
	a.requests = append(a.requests, ids)
	if !refused {
		a.accepted = append(a.accepted, ids...)
	}
	return !refused
}

// httpAnswer is an answer by HTTP.
type httpAnswer struct {
	status     int
	body       string
	retryAfter string
}

func (a *answers) serveHTTP(t *testing.T, with httpAnswer) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(body)
		}
		data, _ := io.ReadAll(body)
		var ids []string
		if r.Header.Get("Content-Type") == "application/x-protobuf" {
			request := &collogspb.ExportLogsServiceRequest{}
			if err := proto.Unmarshal(data, request); err != nil {
				t.Error(err)
			}
			ids = idsOfRequest(request)
		} else {
			var events []struct{ ID string }
			if err := json.Unmarshal(data, &events); err != nil {
				t.Error(err)
			}
			for _, e := range events {
				ids = append(ids, e.ID)
			}
		}
		if a.accepts(ids...) {
			return
		}
		if with.retryAfter != "" {
			w.Header().Set("Retry-After", with.retryAfter)
		}
		w.WriteHeader(with.status)
		_, _ = io.WriteString(w, with.body)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/logs"
}

func idsOfRequest(request *collogspb.ExportLogsServiceRequest) (ids []string) {
	for _, logs := range request.ResourceLogs {
		for _, a := range logs.ScopeLogs[0].LogRecords[0].Attributes {
			if a.Key == "log.record.uid" {
				ids = append(ids, a.Value.GetStringValue())
			}
		}
	}
	return ids
}

type logsServer struct {
	collogspb.UnimplementedLogsServiceServer
	*answers
	with error
}

func (s *logsServer) Export(_ context.Context, r *collogspb.ExportLogsServiceRequest) (*collogspb.ExportLogsServiceResponse, error) {
	if s.accepts(idsOfRequest(r)...) {
		return &collogspb.ExportLogsServiceResponse{}, nil
	}
	return nil, s.with
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (a *answers) serveGRPC(t *testing.T, with error) string {
	listener, server := listen(t), grpc.NewServer()
	collogspb.RegisterLogsServiceServer(server, &logsServer{answers: a, with: with})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String()
}

// serveNATS speaks as much of NATS as acknowledgements need. An answer that begins with - ends the
// connection, and the next one has maxPayload.
func (a *answers) serveNATS(t *testing.T, with string, maxPayload int) string {
	listener := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for limit := 1 << 20; ; limit = cmp.Or(maxPayload, limit) {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.serveNATSConnection(conn, with, limit)
			conn.Close()
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return "nats://" + listener.Addr().String()
}

func (a *answers) serveNATSConnection(conn net.Conn, with string, limit int) {
	fmt.Fprintf(conn, "INFO {\"server_id\":\"S\",\"version\":\"2.12.0\",\"proto\":1,\"headers\":true,\"max_payload\":%d}\r\n", limit)
	for in, sid := bufio.NewReader(conn), ""; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch f := strings.Fields(line); f[0] {
		case "PING":
			_, _ = io.WriteString(conn, "PONG\r\n")
		case "SUB":
			sid = f[len(f)-1]
		case "HPUB": // HPUB subject reply headers total
			size, _ := strconv.Atoi(f[4])
			message := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, message); err != nil {
				return
			}
			_, id, _ := strings.Cut(string(message), "Nats-Msg-Id: ")
			id, _, _ = strings.Cut(id, "\r\n")
			answer := `{"stream":"events","seq":1}`
			if !a.accepts(id) {
				answer = with
			}
			if strings.HasPrefix(answer, "-") {
				_, _ = io.WriteString(conn, answer+"\r\n")
				return
			}
			fmt.Fprintf(conn, "MSG %s %s %d\r\n%s\r\n", f[2], sid, len(answer), answer)
		}
	}
}

// attempts is a receiver that counts its attempts.
type attempts struct {
	receiver.Receiver
	n      int
	before func(n int)
}

func (a *attempts) Send(ctx context.Context, batch []receiver.Record) (int, error) {
	a.n++
	if a.before != nil {
		a.before(a.n)
	}
	return a.Receiver.Send(ctx, batch)
}

// Each answer of each receiver leads to what docs/receivers.md says. No answer stops a receiver.
func TestEveryAnswerOfADestinationLeadsToADecision(t *testing.T) {
	const poison = "uid-5/105"
	batch := make([]receiver.Record, 8)
	var all []string
	for i := range batch {
		uid, rv := fmt.Sprint("uid-", i), fmt.Sprint(100+i)
		batch[i] = receiver.Record{ID: uid + "/" + rv, Event: &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: rv, Name: uid, Namespace: "shop"}, Message: "m",
		}}
		all = append(all, batch[i].ID)
	}
	batch[5].Event.Message = strings.Repeat("m", 100<<10)
	withoutPoison := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == poison })

	// A decision is shown by what a destination refuses with the answer, and what has become of the batch.
	type decision struct {
		name    string
		refuses func(request []string, before [][]string) bool
		want    []string
		// repeats: the second request is the first one again.
		repeats bool
	}
	retry := []decision{{"sends all again", func(_ []string, before [][]string) bool { return len(before) < 2 }, all, true}}
	halve := decision{"halves", func(request []string, _ [][]string) bool { return len(request) > 3 }, all, false}
	giveUp := decision{"gives up one Event", func(request []string, _ [][]string) bool { return slices.Contains(request, poison) }, withoutPoison, false}
	refused := []decision{halve, giveUp}
	unclear := []decision{halve, {"sends one Event again", func(request []string, before [][]string) bool {
		alone := 0
		for _, r := range before {
			if slices.Equal(r, []string{poison}) {
				alone++
			}
		}
		return slices.Contains(request, poison) && alone < 2
	}, all, false}}

	type row struct {
		receiver, answer string
		open             func(t *testing.T, a *answers) (receiver.Receiver, error)
		decisions        []decision
	}
	var rows []row
	insecure := v1alpha1.Connection{Insecure: true}
	overGRPC := func(name string, err error, decisions []decision) {
		rows = append(rows, row{"OTLP over gRPC", name, func(t *testing.T, a *answers) (receiver.Receiver, error) {
			return otlp.New(&v1alpha1.OTLP{Endpoint: a.serveGRPC(t, err), Connection: insecure}, 0)
		}, decisions})
	}
	overHTTP := func(answer httpAnswer, decisions []decision) {
		name := strings.TrimSpace(fmt.Sprintf("%d %.40s %s", answer.status, answer.body, answer.retryAfter))
		rows = append(rows, row{"OTLP over HTTP", name, func(t *testing.T, a *answers) (receiver.Receiver, error) {
			return otlp.New(&v1alpha1.OTLP{Protocol: v1alpha1.OTLPHTTP, Endpoint: a.serveHTTP(t, answer), Connection: insecure}, 0)
		}, decisions}, row{"CloudEvents", name, func(t *testing.T, a *answers) (receiver.Receiver, error) {
			return cloudevents.New(&v1alpha1.CloudEvents{URL: a.serveHTTP(t, answer), Batched: true, Connection: insecure}, 0)
		}, decisions})
	}
	overNATS := func(name, answer string, maxPayload int, decisions []decision) {
		rows = append(rows, row{"NATS JetStream", name, func(t *testing.T, a *answers) (receiver.Receiver, error) {
			return jetstream.New(v1alpha1.JetStream{URL: a.serveNATS(t, answer, maxPayload), Subject: "events"})
		}, decisions})
	}

	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		switch err := status.Error(code, "why"); code {
		case codes.InvalidArgument:
			overGRPC(code.String(), err, refused)
		case codes.ResourceExhausted: // retryable with RetryInfo only (OTLP specification, OTLP/gRPC response)
			overGRPC("ResourceExhausted", err, unclear)
		default:
			overGRPC(code.String(), err, retry)
		}
	}
	withRetryInfo, err := status.New(codes.ResourceExhausted, "too large").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	overGRPC("ResourceExhausted with RetryInfo", withRetryInfo.Err(), retry)
	for text, code := range map[string]codes.Code{ // of servers and proxies
		"grpc: received message larger than max (5000000 vs. 4194304)":                              codes.ResourceExhausted, // Go, C
		"grpc: received message larger than max (70000 vs. 65536)":                                  codes.ResourceExhausted,
		"grpc: received message after decompression larger than max 4194304":                        codes.ResourceExhausted,
		"Received message that decompresses to a size larger than 4194304":                          codes.ResourceExhausted, // JavaScript
		"gRPC message exceeds maximum size 4194304: 5000000":                                        codes.ResourceExhausted, // Java
		"Received message exceeds the maximum configured message size.":                             codes.ResourceExhausted, // .NET
		"Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes": codes.OutOfRange,        // Rust
		"Error decompressing: size limit, of 4194304 bytes, exceeded while decompressing message":   codes.ResourceExhausted,
		"unexpected HTTP status code received from server: 413 (Request Entity Too Large)":          codes.Unknown, // nginx
		"Payload Too Large":                   codes.Unknown, // Envoy
		"kafka server: Message was too large": codes.Unavailable,
		"rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)": codes.Internal,
	} {
		overGRPC(text, status.Error(code, text), refused)
		overHTTP(httpAnswer{500, text, ""}, refused) // a gateway passes on the words, and not the code
	}

	for _, code := range []int{400, 413, 422} {
		overHTTP(httpAnswer{status: code}, refused)
	}
	for _, code := range []int{300, 307, 401, 403, 404, 405, 408, 409, 411, 414, 415, 417, 421, 425, 429, 431, 500, 501, 502, 503, 504, 507} {
		overHTTP(httpAnswer{status: code}, retry)
	}
	overHTTP(httpAnswer{500, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)", ""}, refused)
	overHTTP(httpAnswer{400, "http: request body too large", ""}, refused)
	overHTTP(httpAnswer{503, "message larger than max", "1"}, retry)
	overHTTP(httpAnswer{413, "", "1"}, unclear) // temporary (RFC 9110, section 15.5.14)
	overHTTP(httpAnswer{400, "Client sent an HTTP request to an HTTPS server.", ""}, retry)
	overHTTP(httpAnswer{400, "<html>\r\n<head><title>400 Request Header Or Cookie Too Large", ""}, retry)

	// nats-server, server/errors.json
	overNATS("message size exceeds maximum allowed", `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`, 0, refused[1:])
	overNATS("a stream that is full", `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, 0, retry)
	overNATS("insufficient resources", `{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`, 0, retry)
	overNATS("maximum payload, which was lowered", "-ERR 'Maximum Payload Violation'", 64<<10, refused[1:])

	for _, row := range rows {
		for _, d := range row.decisions {
			t.Run(fmt.Sprintf("%s/%s/%s", row.receiver, row.answer, d.name), func(t *testing.T) {
				t.Parallel()
				a := &answers{refuses: d.refuses}
				made, err := row.open(t, a)
				if err != nil {
					t.Fatal(err)
				}
				delivered, rejected := deliver(t, made, batch)
				a.mu.Lock()
				defer a.mu.Unlock()
				slices.Sort(a.accepted)
				if !slices.Equal(slices.Compact(a.accepted), d.want) || delivered != len(d.want) || rejected != len(all)-len(d.want) {
					t.Errorf("accepted %q, want %q; %d are delivered, %d given up", a.accepted, d.want, delivered, rejected)
				}
				if d.repeats && row.receiver != "NATS JetStream" && (len(a.requests) != 3 || !slices.Equal(a.requests[0], a.requests[1])) {
					t.Errorf("the requests are %q", a.requests)
				}
			})
		}
	}
	t.Run("JSON lines/an error of the file system/sends all again", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "missing", "events.jsonl")
		made, err := jsonlines.New(v1alpha1.JSONLines{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		counted := &attempts{Receiver: made, before: func(n int) {
			if n == 3 {
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Error(err)
				}
			}
		}}
		delivered, rejected := deliver(t, counted, batch)
		if data, err := os.ReadFile(path); err != nil || strings.Count(string(data), "\n") != len(batch) || delivered != len(batch) || rejected != 0 || counted.n != 3 {
			t.Errorf("%d bytes, %v; %d are delivered, %d given up after %d attempts", len(data), err, delivered, rejected, counted.n)
		}
	})
}

// deliver lets a worker deliver a batch, and returns how many it counts as delivered and given up.
func deliver(t *testing.T, r receiver.Receiver, batch []receiver.Record) (delivered, rejected int) {
	t.Helper()
	w := &worker{
		config: v1alpha1.Receiver{Name: "a"}, delivery: newBench(t).Delivery, account: newAccount("a", nil), destination: startDestination(),
	}
	w.destination.receiver = r
	defer w.destination.end()
	ctx, cancel := context.WithTimeoutCause(quiet(t), time.Minute, errors.New("the receiver is stopped"))
	defer cancel()
	// Summaries have no cursors, and nothing else differs.
	if !w.send(ctx, outgoing{records: batch, summaries: true}) {
		t.Error(context.Cause(ctx))
	}
	return int(w.account.totals.Summaries.Delivered), int(w.account.totals.Summaries.Rejected)
}
