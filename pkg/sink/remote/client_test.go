package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

func clientOf(t *testing.T, host string) Client {
	t.Helper()
	c, err := NewClientForConfig(&rest.Config{Host: host, BearerToken: "of-the-tester"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A batch is posted to the path of its API, below that of the server.
func TestBatchIsPostedToThePathOfItsAPI(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		timeout, err := time.ParseDuration(req.URL.Query().Get("timeout"))
		if err != nil || timeout <= 0 || timeout > 10*time.Second || req.URL.Query().Get("batch") != "true" {
			t.Errorf("%s: %v", req.URL.RawQuery, err)
		}
		got = append(got, req.Method+" "+req.URL.EscapedPath()+" "+req.Header.Get("Content-Type")+" "+req.Header.Get("Authorization")+" "+string(body))
		_ = json.NewEncoder(w).Encode(&batch.Answer{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: batch.Kind}, Code: 202})
	}))
	defer s.Close()
	c := clientOf(t, s.URL+"/prefix")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for api, path := range map[occurrence.API]string{
		occurrence.CoreV1:   "/prefix/api/v1/namespaces/a%2Fb/events",
		occurrence.EventsV1: "/prefix/apis/events.k8s.io/v1/namespaces/a%2Fb/events",
	} {
		got = nil
		answer, err := c.Post(ctx, api, "a/b", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answer.Statuses(1); err != nil {
			t.Error(err)
		}
		if want := "POST " + path + " application/vnd.kubernetes.protobuf Bearer of-the-tester x"; len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Errors tell whether a batch may have been handled.
func TestErrorsTellWhetherABatchWasSent(t *testing.T) {
	var unsent *UnsentError
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := "http://" + listener.Addr().String()
	_ = listener.Close()
	if _, err := clientOf(t, host).Post(t.Context(), occurrence.CoreV1, "ns", nil); !errors.As(err, &unsent) {
		t.Errorf("refused: %v", err)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("a redirect is followed, with the credentials %q", req.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		code   int32 // of a Status; 0 for another error
		after  int32
	}{
		"cut":         {answer: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"no answer":   {answer: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") }},
		"no Status":   {answer: func(w http.ResponseWriter) { w.Header().Set("Retry-After", "7"); w.WriteHeader(503) }, code: 503, after: 7},
		"a Status":    {answer: func(w http.ResponseWriter) { w.WriteHeader(403); _ = json.NewEncoder(w).Encode(status(403)) }, code: 403},
		"a long text": {answer: func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = w.Write(make([]byte, maxAnswerBytes)) }, code: 502},
		"a redirect": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(307)
		}, code: 307},
		"a long Status": {answer: func(w http.ResponseWriter) {
			s := status(500)
			s.Message = strings.Repeat("x", 1<<20)
			w.WriteHeader(500)
			_ = json.NewEncoder(w).Encode(&s)
		}, code: 500},
		"many others": {answer: func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"others":[`+strings.Repeat("{},", batch.MaxItems)+`{}]}`)
		}},
		"no list":  {answer: func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"others":7}`) }},
		"too long": {answer: func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, maxAnswerBytes+1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }))
			defer s.Close()
			_, err := clientOf(t, s.URL).Post(t.Context(), occurrence.CoreV1, "ns", []byte("x"))
			if errors.As(err, &unsent) || err == nil {
				t.Fatalf("%v", err)
			}
			if len(err.Error()) > 2<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			status, ok := errors.AsType[*apierrors.StatusError](err)
			if ok != (test.code != 0) {
				t.Fatalf("%v", err)
			}
			if ok && (status.ErrStatus.Code != test.code || retryAfterOf(status.ErrStatus.Details) != time.Duration(test.after)*time.Second) {
				t.Errorf("%+v", status.ErrStatus)
			}
		})
	}
}

// An answer that cannot be one to the batch is as one that is lost.
func TestAnswersThatDoNotFitAreRefused(t *testing.T) {
	typed := metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: batch.Kind}
	at := func(index int, code int32) batch.Item {
		return batch.Item{Index: index, Status: metav1.Status{Code: code}}
	}
	for name, answer := range map[string]batch.Answer{
		"another kind":  {Code: 202},
		"no success":    {TypeMeta: typed, Code: 500},
		"too many":      {TypeMeta: typed, Code: 202, Others: []batch.Item{at(2, 422)}},
		"not ascending": {TypeMeta: typed, Code: 202, Others: []batch.Item{at(1, 422), at(0, 422)}},
		"negative":      {TypeMeta: typed, Code: 202, Others: []batch.Item{at(-1, 422)}},
		"no code":       {TypeMeta: typed, Code: 202, Others: []batch.Item{at(0, 0)}},
	} {
		if _, err := answer.Statuses(2); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
