package relay_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// whoAsks is an API that answers who asks, and then watches until the client goes away.
type whoAsks struct{ ended chan struct{} }

func (whoAsks) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "query.example.com", Version: "v1"}
}

func (whoAsks) Resources() []metav1.APIResource { return []metav1.APIResource{{Name: "things"}} }

func (q whoAsks) Query(r intake.Query) (http.HandlerFunc, bool, error) {
	caller, _ := request.UserFrom(r.Context())
	watch := r.URL.Query().Has("watch")
	return func(w http.ResponseWriter, req *http.Request) {
		if !r.Relayed {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, caller.GetName())
		if watch {
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			close(q.ended)
		}
	}, watch, nil
}

func TestLeaderAnswersAQueryInTheNameOfItsCaller(t *testing.T) {
	api := whoAsks{make(chan struct{})}
	_, other, where := pair(t, options{set: func(_ *intake.Options, s *intake.ServerOptions) { s.Queries = api }}, options{})
	query := func(path string) (*http.Response, error) {
		req := newRequest(t.Context(), t, http.MethodGet, "/apis/query.example.com/v1/"+path, nil, "Authorization", "Bearer of-jane")
		return other.relay.Query(t.Context(), req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
	}
	response, err := query("things")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK || string(body) != "jane" {
		t.Errorf("answered %d: %q (%v)", response.StatusCode, body, err)
	}
	// A watch ends at the leader with its client here.
	if response, err = query("things?watch=true"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, body); err != nil || string(body) != "jane" {
		t.Errorf("the watch begins with %q (%v)", body, err)
	}
	_ = response.Body.Close()
	select {
	case <-api.ended:
	case <-time.After(await.Timeout):
		t.Error("the watch goes on at the leader")
	}
	where.leads(other)
	other.relay.SetLeader("", "")
	if _, err := query("things"); err == nil {
		t.Error("without a leader, the query is answered")
	}
}
