package intake

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/occurrence"
)

// wire is the writer of a response, and records what happens to it.
type wire struct {
	*httptest.ResponseRecorder
	unwritten        *unreadResponses
	inUse            int64 // while the answer was written
	flushed          bool
	deadline         time.Time
	failing, flushes error
	closed           chan bool // of the stream
}

// CloseNotify implements http.CloseNotifier, as the response writers of the server do.
func (w *wire) CloseNotify() <-chan bool { return w.closed }

func (w *wire) Write(b []byte) (int, error) {
	w.inUse = w.unwritten.shares.InUse()
	if w.failing != nil {
		return 0, w.failing
	}
	return w.ResponseRecorder.Write(b)
}

// FlushError is called by http.ResponseController.
func (w *wire) FlushError() error {
	w.flushed = true
	return w.flushes
}

// SetWriteDeadline is called by http.ResponseController.
func (w *wire) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

// The memory of a response is counted until it has been written: until its handler
// returns, or with HTTP/2 until its stream ends.
func TestResponsesAreCountedUntilTheyAreWritten(t *testing.T) {
	broken := errors.New("broken pipe")
	for name, test := range map[string]struct {
		method           string
		version          int // of HTTP; 0 is none, in process
		failing, flushes error
		aborted          float64
	}{
		"in process":                             {http.MethodPost, 0, nil, broken, 0},
		"HTTP/1.1":                               {http.MethodPost, 1, nil, nil, 0},
		"HTTP/1.1, not written":                  {http.MethodPost, 1, broken, nil, 1},
		"HTTP/1.1, not flushed":                  {http.MethodPost, 1, nil, broken, 1},
		"HTTP/1.1, HEAD, of which nothing is":    {http.MethodHead, 1, http.ErrBodyNotAllowed, nil, 0},
		"HTTP/2":                                 {http.MethodPost, 2, nil, broken, 0},
		"HTTP/2, not written":                    {http.MethodPost, 2, broken, nil, 1},
		"HTTP/2, HEAD, of which nothing is sent": {http.MethodHead, 2, http.ErrBodyNotAllowed, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIntake(t)
				u := newUnreadResponses(i)
				ctx := t.Context()
				if test.version > 0 {
					ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{})
				}
				req := httptest.NewRequestWithContext(ctx, test.method, "/", nil)
				req.ProtoMajor = test.version
				w := &wire{ResponseRecorder: httptest.NewRecorder(), unwritten: u, failing: test.failing, flushes: test.flushes, closed: make(chan bool)}
				u.buffered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if u.shares.InUse() != 0 {
						t.Error("it is counted before there is an answer")
					}
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte("answer"))
				})).ServeHTTP(w, req)

				if w.inUse < unreadOverhead+int64(len("answer")) {
					t.Errorf("%d bytes are counted while it is written", w.inUse)
				}
				if left, open := u.shares.InUse(), test.version == 2; (left > 0) != open {
					t.Errorf("%d bytes are counted when its handler has returned", left)
				}
				if w.flushed != (test.version == 1 && test.failing == nil) {
					t.Errorf("flushed %t", w.flushed)
				}
				if w.deadline != time.Now().Add(writeTimeout) {
					t.Errorf("it has until %s", w.deadline)
				}
				if got := testutil.ToFloat64(i.metrics.aborted.WithLabelValues(abortedWrite)); got != test.aborted {
					t.Errorf("%v were counted that were not written", got)
				}
				if test.failing == nil && (w.Code != http.StatusCreated || w.Body.String() != "answer") {
					t.Errorf("written: %d %s", w.Code, w.Body)
				}
				close(w.closed)
				synctest.Wait()
				if left := u.shares.InUse(); left != 0 {
					t.Errorf("%d bytes are counted when all is over", left)
				}
			})
		})
	}
}

// A response above the share of its caller is aborted before the first byte.
func TestResponseAboveTheShareOfItsCallerIsAborted(t *testing.T) {
	for _, known := range []bool{true, false} {
		i := newIntake(t)
		u := newUnreadResponses(i)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		of := flowOfAddress(req)
		if known {
			of = flow{Tenant: "jane"}
		}
		if !u.shares.Acquire(of, maxUnreadBytes/2) {
			t.Fatal("there is no room")
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("panicked with %v", p)
				}
			}()
			u.buffered(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if known {
					tenant := "jane"
					callOf(req.Context()).tenant.Store(&tenant)
				}
				_, _ = w.Write([]byte("answer"))
			})).ServeHTTP(w, req)
		}()
		if got := testutil.ToFloat64(i.metrics.aborted.WithLabelValues(abortedShare)); got != 1 || w.Body.Len() > 0 {
			t.Errorf("%v were counted, and %d bytes written", got, w.Body.Len())
		}
		if got := u.shares.InUse(); got != maxUnreadBytes/2 {
			t.Errorf("%d bytes are counted", got)
		}
	}
}

// The refusal of a terminating namespace is cached for a second, and may be that of a
// write in the other API.
func TestRefusalHasTheAPIOfTheRequest(t *testing.T) {
	terminating := errors.New("unable to create new content")
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		for _, written := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			of := func(api occurrence.API, name string) metav1.Status {
				return apierrors.NewForbidden(schema.GroupResource{Group: api.GroupVersion().Group, Resource: "events"}, name, terminating).ErrStatus
			}
			r := &report{key: key{"ns", "a"}, occurrence: &occurrence.Occurrence{API: api}, settlement: occurrence.Settlement{
				Outcome: occurrence.Dropped, Reason: occurrence.NamespaceTerminating, Err: &apierrors.StatusError{ErrStatus: of(written, "stored")},
			}}
			status, ok := notWritten(r).(apierrors.APIStatus)
			if !ok || !reflect.DeepEqual(status.Status(), of(api, "a")) {
				t.Errorf("answered %v", notWritten(r))
			}
		}
	}
}
