// Package jetstream delivers versions of Events to a stream of NATS JetStream.
//
// A message is the Event as JSON (core/v1). Its Nats-Msg-Id is the ID of the version, so the stream
// removes repetitions within its duplicate window. Headers have what the Event lacks: the cluster,
// and when the version was observed.
//
// Nothing that was published is outstanding between two calls of Send: each message was answered,
// or its connection is closed. The client buffers nothing for a later connection. What a server
// still reads from a connection that was closed can only add a version again that is added anyway,
// within seconds; so the duplicate window keeps the order.
package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/eventjson"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// Headers of a message.
const (
	// HeaderCluster is the name of the cluster that the Event is of.
	HeaderCluster = "Eventd-Cluster"
	// HeaderObserved is when the version was observed, in RFC 3339.
	HeaderObserved = "Eventd-Observed"
	// HeaderSummarized is the number of versions that a summary of throttled versions stands for. Other
	// messages do not have it.
	HeaderSummarized = "Eventd-Summarized"
)

// Receiver delivers to the stream that has a subject. Make it with New. As with every
// receiver.Receiver, one goroutine at a time uses it. Close ends it.
//
// It connects in Send if there is no connection, and reads the files of its configuration each
// time it connects.
type Receiver struct {
	config v1alpha1.JetStream
	log    *ratelimitedlog.Limiter

	conn *connection // nil before the first Send, and after a failure
	// acknowledged are the records of the last batch that the stream has although Send failed.
	// They are not sent again, so a batch makes progress that takes longer than a timeout.
	acknowledged map[string]struct{}
}

// New returns a receiver for a configuration. It does not connect.
func New(config v1alpha1.JetStream) (*Receiver, error) {
	if err := validateURLs(config.URL); err != nil {
		return nil, err
	}
	if err := validateSubject(config.Subject); err != nil {
		return nil, err
	}
	return &Receiver{config: config, log: ratelimitedlog.New(ratelimitedlog.Interval)}, nil
}

func validateURLs(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil {
			return errors.New("url is malformed") // it may contain a password
		}
		if u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
			return errors.New("url must be nats://HOST:PORT or tls://HOST:PORT, or several with commas between them")
		}
	}
	return nil
}

// validateSubject refuses what cannot be published to, and the API of the server, $JS.API and $SYS.
func validateSubject(subject string) error {
	if strings.HasPrefix(subject, "$") || strings.ContainsAny(subject, " \t\r\n\x00") {
		return fmt.Errorf("subject %q: it must not begin with $ or contain spaces", subject)
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return fmt.Errorf("subject %q: a token is empty or a wildcard", subject)
		}
	}
	return nil
}

// Send publishes a batch in its order. It implements receiver.Receiver. It returns when the stream
// has acknowledged each record, or rejected it as too large: those it counts, and logs one a
// minute. Any other failure is an error, after which the batch is sent again. It returns when ctx
// ends.
func (r *Receiver) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	if r.conn != nil && r.conn.failure() != nil {
		r.disconnect()
	}
	if r.conn == nil {
		if r.conn, err = connect(ctx, r.config); err != nil {
			return 0, fmt.Errorf("connect: %w", err)
		}
	}
	keep := context.AfterFunc(ctx, r.conn.abort)
	w := newWindow(r.conn, r.config.Subject, r.acknowledged, batch)
	known := len(w.acknowledged)
	err = r.publish(ctx, w, batch)
	err = errors.Join(err, w.drain(ctx, err != nil))
	if !keep() { // something may be outstanding
		r.disconnect()
	}
	if err != nil {
		if len(w.acknowledged) > known {
			err = receiver.Progressed(err)
		}
		r.acknowledged = w.acknowledged
		return 0, err
	}
	r.acknowledged = nil
	if w.rejected > 0 && r.log.Allow("rejected") {
		klog.FromContext(ctx).Info("The stream accepts no Event of this size; the limit is max_payload of the server or max_msg_size of the stream",
			"id", w.rejectedID, "reason", w.reason.Error())
	}
	return w.rejected, nil
}

// publish publishes all of a batch that the stream does not have, until the first failure.
func (r *Receiver) publish(ctx context.Context, w *window, batch []receiver.Record) error {
	for i := range batch {
		record := &batch[i]
		if w.has(record.ID) {
			continue
		}
		m, err := r.message(record)
		if err != nil {
			return &receiver.Error{Permanent: true, Err: err}
		}
		if err := w.publish(ctx, record, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *Receiver) message(record *receiver.Record) (*nats.Msg, error) {
	var data bytes.Buffer
	event := eventjson.Of(record.Event)
	if err := eventjson.NewEncoder(&data).Encode(&event); err != nil {
		return nil, fmt.Errorf("encode %s: %w", record.ID, err)
	}
	data.Truncate(data.Len() - 1) // the newline
	header := nats.Header{
		natsjs.MsgIDHeader: {record.ID},
		HeaderCluster:      {record.Cluster},
		HeaderObserved:     {record.Observed.UTC().Format(time.RFC3339Nano)},
	}
	if record.Summarized > 0 {
		header.Set(HeaderSummarized, strconv.Itoa(record.Summarized))
	}
	return &nats.Msg{Subject: r.config.Subject, Header: header, Data: data.Bytes()}, nil
}

// Close closes the connection. It implements receiver.Receiver.
func (r *Receiver) Close() error {
	r.disconnect()
	return nil
}

func (r *Receiver) disconnect() {
	if r.conn != nil {
		r.conn.close()
		r.conn = nil
	}
}
