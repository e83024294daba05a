package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// maxBatched limits the Events of all batches in flight: to a part of the default queue
	// between the intake and the correlator, which has no shares. A tenant may have half of
	// them, in one namespace a third, and a user of several less (internal/shares). test/sizing has their memory.
	maxBatched = 3 << 10
	// seatItems is how many Events of a batch are recorded with one seat. Then others have
	// their turn.
	seatItems = 64
	// maxErrorText limits the text of all errors of a batch. Further ones have a code, a reason
	// and retryAfterSeconds only. So an answer is never too large to be sent, or to be kept while
	// other Events of its batch wait for their outcome: an error may be much longer than its Event.
	maxErrorText = 256 << 10
)

// errVersionSet is the answer to an Event with a resourceVersion, as the handlers make it of
// ErrResourceVersionSetOnCreate. They log each.
var errVersionSet = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
	Reason: metav1.StatusReasonUnknown, Message: apistorage.ErrResourceVersionSetOnCreate.Error()}}

// batches handles EventLists of one API. Its storage handles each of their Events as a POST.
type batches struct {
	storage *storage
	control *flowControl
}

// batchVerb is the key of the handler of batches in an api.
const batchVerb = "batch"

func newBatches(o *ServerOptions, a occurrence.API, control *flowControl) *batches {
	return &batches{storage: newStorage(o.Intake, a, o.Authorizer), control: control}
}

// isBatch reports whether a POST to the path of Events is a batch. Most have no query, and are not parsed.
func isBatch(req *http.Request) bool {
	return req.URL.RawQuery != "" && strings.Contains(req.URL.RawQuery, batch.Parameter) && req.URL.Query().Get(batch.Parameter) == "true"
}

// withBatchCheck refuses what cannot be a batch. The rest is checked where it is handled: by
// the leader.
func (i *Intake) withBatchCheck(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		req.Header.Del("Accept-Encoding") // as in withBodyCheck
		mediaType := mediaTypeOf(req)
		switch {
		case mediaType != runtime.ContentTypeJSON && mediaType != runtime.ContentTypeProtobuf:
			refuse(w, req, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
				"a batch must be in JSON or protobuf", 0, true))
			return
		case len(req.URL.Query()["dryRun"]) > 0:
			refuse(w, req, apierrors.NewBadRequest("a batch cannot be a dry run"))
			return
		}
		options := metav1.CreateOptions{FieldValidation: req.URL.Query().Get("fieldValidation")}
		if errs := metav1validation.ValidateCreateOptions(&options); len(errs) > 0 { // as the handlers do
			refuse(w, req, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs))
			return
		}
		// The cost is reserved for each Event. This one has the batch handled with a seat for
		// large bodies, so that no other request waits for it.
		callOf(req.Context()).decoding = decoding{budget: i.decoding, cost: smallCost + 1}
		next(w, req)
	}
}

// serve records the Events of a batch, one after the other, and answers when each of them has
// an answer. It has a seat while it records, and none while it waits for outcomes.
func (b *batches) serve(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := early(req.Context())
	defer cancel()
	l, err := splitList(b.storage.api, mediaTypeOf(req), bodyOf(req).all)
	if err != nil {
		refuse(w, req, err)
		return
	}
	l.fieldValidation = req.URL.Query().Get("fieldValidation")
	call, count := callOf(ctx), int64(len(l.items))
	if !b.control.batched.Acquire(call.inFlight.flow, count) {
		b.control.refuse(w, req, refusedBatched)
		return
	}
	defer b.control.batched.Release(call.inFlight.flow, count)
	createOnly, err := b.storage.createOnly(ctx)
	if err != nil {
		refuse(w, req, err)
		return
	}
	text := errorText(maxErrorText)
	results := b.record(withNamespaceOf(ctx), l, createOnly, &text)
	for i := range results {
		results[i].await(ctx, b.storage, &text)
	}
	if ended(results) {
		call.termEnded.Store(true) // this answer is withheld, and another replica can handle it
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	b.answer(w, results)
}

// itemResult is what becomes of an Event of a batch.
type itemResult struct {
	report *report // nil if err is not, as the event
	event  *corev1.Event
	err    *apierrors.StatusError
	code   int // of a success
	// ended: nothing was recorded, since the term had ended.
	ended bool
}

// record records all Events without waiting for the outcome of one. After seatItems of them, others have their
// turn.
func (b *batches) record(ctx context.Context, l eventList, createOnly bool, text *errorText) []itemResult {
	results := make([]itemResult, len(l.items))
	var refused error
	for i, item := range l.items {
		if i > 0 && i%seatItems == 0 && refused == nil {
			refused = b.yield(ctx)
		}
		r, err := &results[i], refused
		if err == nil {
			r.report, r.event, err = b.recordItem(ctx, &l, item, createOnly)
		}
		r.err = text.limit(err)
	}
	return results
}

// yield releases the seat, and waits for it again. The error is the answer to the Events that
// are left.
func (b *batches) yield(ctx context.Context) error {
	s := callOf(ctx).seat
	s.release()
	switch {
	case s.acquire(ctx):
		return nil
	case ctx.Err() != nil:
		return timeoutError(ctx.Err())
	default:
		return tooMany(refusedSeats)
	}
}

// withNamespaceOf adds the namespace of a request to its context, as the handlers do.
func withNamespaceOf(ctx context.Context) context.Context {
	info, _ := request.RequestInfoFrom(ctx)
	return request.WithNamespace(ctx, info.Namespace)
}

// recordItem decodes and records one Event.
func (b *batches) recordItem(ctx context.Context, l *eventList, item []byte, createOnly bool) (*report, *corev1.Event, error) {
	cost := costOf(l.mediaType, int64(len(item)), b.storage.intake.options.MaxBodyBytes)
	reserved, err := b.storage.intake.decoding.reserve(ctx, cost)
	if err != nil {
		return nil, nil, err
	}
	defer reserved.release()
	event, err := l.decode(ctx, item)
	if err != nil {
		return nil, nil, err
	}
	r, err := b.storage.post(ctx, event, createOnly)
	if err != nil {
		return nil, nil, err
	}
	return r, event, nil
}

// post records a posted Event, as Create does, without waiting for its name or its outcome. It must have a name,
// since the batch could not be sent again otherwise.
func (s *storage) post(ctx context.Context, event *corev1.Event, createOnly bool) (*report, error) {
	rest.WipeObjectMetaSystemFields(event)
	namespace := request.NamespaceValue(ctx)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(namespace, event); err != nil {
		return nil, err
	}
	if event.Name == "" {
		return nil, apierrors.NewBadRequest("an event in a batch must have a name")
	}
	rest.FillObjectMetaSystemFields(event)
	if err := s.beforeCreate(ctx, namespace, event); err != nil {
		return nil, err
	}
	if version, err := versioner.ObjectResourceVersion(event); err == nil && version != 0 {
		return nil, errVersionSet
	}
	event.ResourceVersion = ""
	k := key{namespace, event.Name}
	r := newReport(ctx, s.api, k, event, known{})
	r.post, r.occurrence.CreateOnly = true, createOnly
	joined, err := s.intake.names.tryLockForPost(k, r)
	switch {
	case errors.Is(err, errNameKnown):
		return nil, s.exists(ctx, event)
	case err != nil:
		return nil, err
	case joined != nil:
		return joined, nil
	}
	s.intake.record(ctx, r)
	return r, nil
}

// await waits for the outcome of a report, and sets the answer.
func (r *itemResult) await(ctx context.Context, s *storage, text *errorText) {
	if r.err == nil {
		r.err = text.limit(r.outcome(ctx, s))
	}
}

func (r *itemResult) outcome(ctx context.Context, s *storage) error {
	if err := r.report.wait(ctx); err != nil {
		return err
	}
	switch {
	case errors.Is(r.report.settlement.Err, errTermEnded):
		r.ended = true
		return notWritten(r.report)
	case r.report.settlement.Outcome == occurrence.Replayed:
		return s.exists(ctx, r.event)
	case r.report.view == nil:
		return notWritten(r.report)
	case r.report.accepted:
		r.code = http.StatusAccepted
	default:
		r.code = http.StatusCreated
	}
	return nil
}

// ended reports whether the term had ended before anything was recorded.
func ended(results []itemResult) bool {
	found := false
	for i := range results {
		if r := &results[i]; r.report != nil && !r.ended {
			return false
		}
		found = found || results[i].ended
	}
	return found
}

// answer writes an Answer.
func (b *batches) answer(w http.ResponseWriter, results []itemResult) {
	answer := batch.Answer{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: batch.Kind}, Code: usualCode(results)}
	for i := range results {
		status := results[i].status()
		b.control.metrics.batched.WithLabelValues(strconv.Itoa(int(status.Code))).Inc()
		if status.Code == answer.Code {
			continue
		}
		answer.Others = append(answer.Others, batch.Item{Index: i, Status: status})
	}
	body, err := json.Marshal(&answer)
	if err != nil {
		body = fmt.Appendf(nil, "%q", err) // the types can always be encoded
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}

// usualCode is the code of most successes.
func usualCode(results []itemResult) int32 {
	accepted, created := 0, 0
	for i := range results {
		switch results[i].code {
		case http.StatusAccepted:
			accepted++
		case http.StatusCreated:
			created++
		}
	}
	if created > accepted {
		return http.StatusCreated
	}
	return http.StatusAccepted
}

func (r *itemResult) status() metav1.Status {
	if r.err == nil {
		return metav1.Status{Status: metav1.StatusSuccess, Code: int32(r.code)}
	}
	return r.err.ErrStatus
}

// errorText is how much text the further errors of a batch may have.
type errorText int

// limit returns the Status of an error, without its text if that is too much.
func (t *errorText) limit(err error) *apierrors.StatusError {
	if err == nil {
		return nil
	}
	status := *responsewriters.ErrorToAPIStatus(err)
	status.TypeMeta = metav1.TypeMeta{}
	if *t -= errorText(textOf(&status)); *t < 0 {
		status.Message, status.Details = "", retryAfterOf(status.Details)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// textOf is about the length of the text of a status in an answer.
func textOf(s *metav1.Status) int {
	n := len(s.Message)
	if s.Details != nil {
		n += len(s.Details.Name)
		for i := range s.Details.Causes {
			n += len(s.Details.Causes[i].Message) + len(s.Details.Causes[i].Field)
		}
	}
	return n
}

func retryAfterOf(d *metav1.StatusDetails) *metav1.StatusDetails {
	if d == nil || d.RetryAfterSeconds == 0 {
		return nil
	}
	return &metav1.StatusDetails{RetryAfterSeconds: d.RetryAfterSeconds}
}
