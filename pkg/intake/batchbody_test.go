package intake_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

// rawList is a list as it is encoded in protobuf.
type rawList string

func (r rawList) Marshal() ([]byte, error) { return []byte(r), nil }

// A batch is asked for by one value of one parameter, whatever else is in the query, and has a content type as any
// request.
func TestWhatIsABatch(t *testing.T) {
	valid := listOf("v1", string(must(json.Marshal(classic("valid", 1)))))
	inProtobuf := string(inProtobuf(t, "v1", manyEvents(1)))
	for name, test := range map[string]struct {
		query, contentType, body string
		code                     int
	}{
		"the parameter":           {batch.Query, jsonType, valid, 200},
		"after another":           {"fieldManager=x&" + batch.Query, jsonType, valid, 200},
		"before another":          {batch.Query + "&fieldManager=x", jsonType, valid, 200},
		"another value":           {"batch=1", jsonType, valid, 400},
		"false":                   {"batch=false", jsonType, valid, 400},
		"another parameter":       {"fieldManager=batch", jsonType, valid, 400},
		"no content type":         {batch.Query, "", valid, 200},
		"a charset":               {batch.Query, "Application/JSON; charset=utf-8", valid, 200},
		"protobuf in capitals":    {batch.Query, strings.ToUpper(protoType), inProtobuf, 200},
		"with metadata":           {batch.Query, jsonType, strings.Replace(valid, "{", `{"metadata":{"resourceVersion":"5"},`, 1), 200},
		"protobuf, taken as JSON": {batch.Query, jsonType, inProtobuf, 400},
	} {
		a := serve(t, written()).Do(t, http.MethodPost, coreEvents+"?"+test.query, test.body, "Content-Type", test.contentType)
		if a.Code != test.code || a.Header.Get("Content-Type") != jsonType {
			t.Errorf("%s: %d in %q, want %d: %.500s", name, a.Code, a.Header.Get("Content-Type"), test.code, a.Body)
		}
	}
}

// What is cut in protobuf is refused, and what is unknown is ignored, as in the apiserver.
func TestPartsOfABatchInProtobuf(t *testing.T) {
	event := string(must(classic("a", 1).Marshal()))
	item := "\x12" + string(appendVarint(len(event))) + event
	for name, test := range map[string]struct {
		list string
		code int
	}{
		"an Event":            {item, 200},
		"an unknown field":    {"\x7a\x01x" + item, 200},
		"an unknown integer":  {"\x78\x05" + item, 200},
		"an integer as Event": {"\x10\x05" + item, 400},
		"a cut tag":           {item + "\x80", 400},
		"a cut Event":         {item + "\x12\x05x", 400},
		"a cut field":         {item + "\x0a\x05x", 400},
		"a cut unknown field": {item + "\x7a\x05x", 400},
	} {
		s := serve(t, written())
		a := s.Do(t, http.MethodPost, coreBatch, inProtobuf(t, "v1", rawList(test.list)), "Content-Type", protoType)
		equal(t, name, a.Code, test.code)
		if test.code == 200 {
			equal(t, name, codes(statuses(t, a, 1)), []int32{201})
		}
		s.Pipeline.WantRecorded(t, map[bool]int{true: 1}[test.code == 200])
	}
}

func appendVarint(n int) (out []byte) {
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

// What an Event may have is the same in a batch, in JSON and in protobuf.
func TestEventsOfABatchHaveTheLimitsOfEach(t *testing.T) {
	valid := classic("a", 1)
	labels := valid.DeepCopy()
	labels.Labels = manyLabels()
	owners := valid.DeepCopy()
	owners.OwnerReferences = make([]metav1.OwnerReference, 65)
	for name, event := range map[string]*corev1.Event{"valid": valid, "labels": labels, "owners": owners} {
		for path, send := range map[string]func(*server) int{
			"alone": func(s *server) int { return s.Post(t, event).Code },
			"in JSON": func(s *server) int {
				return int(s.batch(t, coreBatch, listOf("v1", string(must(json.Marshal(event)))), 1)[0].Code)
			},
			"in protobuf": func(s *server) int {
				list := &corev1.EventList{Items: []corev1.Event{*event}}
				return int(s.batch(t, coreBatch, inProtobuf(t, "v1", list), 1, "Content-Type", protoType)[0].Code)
			},
		} {
			s := serve(t, written())
			code := send(s)
			equal(t, name+", "+path, code, map[bool]int{true: 201, false: 400}[name == "valid"])
			s.Pipeline.WantRecorded(t, map[bool]int{true: 1}[name == "valid"])
		}
	}
	cut := string(must(valid.Marshal())) + "\x0a\x05x"
	s := serve(t, written())
	list := rawList("\x12" + string(appendVarint(len(cut))) + cut)
	equal(t, "cut", codes(s.batch(t, coreBatch, inProtobuf(t, "v1", list), 1, "Content-Type", protoType)), []int32{400})
	s.Pipeline.WantRecorded(t, 0)
}

// An Event that was posted in a batch continues as one that was posted alone.
func TestEventOfABatchContinuesAsOneAlone(t *testing.T) {
	event := classic("a", 1)
	event.UID, event.ResourceVersion, event.Generation = "mine", "abc", 5
	event.DeletionTimestamp, event.DeletionGracePeriodSeconds = new(metav1.Unix(1, 0)), new(int64(1))
	event.SetSelfLink("/a")
	var answers [2]*corev1.Event
	for i := range answers {
		s := serve(t, written())
		s.Pipeline.WriteLater(true) // so that the answers are not about what is stored
		if i == 0 {
			equal(t, "code", codes(s.batch(t, coreBatch, listOf("v1", string(must(json.Marshal(event)))), 1)), []int32{202})
		} else {
			s.Post(t, event).Want(t, 202, "")
		}
		answers[i] = s.Patch(t, "a", `{"count":2}`).Event(t)
		if answers[i].UID == "" || answers[i].UID == "mine" {
			t.Errorf("the uid is %q", answers[i].UID)
		}
		answers[i].UID, answers[i].CreationTimestamp = "", metav1.Time{}
	}
	equal(t, "in a batch", answers[0], answers[1])
}

// A batch that is sent again while the first one waits has the answer of that.
func TestBatchThatIsSentAgainJoinsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		send := func() <-chan answer {
			answered := background(func() answer { return s.Do(t, http.MethodPost, coreBatch, manyEvents(1)) })
			synctest.Wait()
			return answered
		}
		first, second := send(), send()
		recorded := s.Pipeline.Occurrences()
		equal(t, "recorded", len(recorded), 1)
		recorded[0].Settled(stored(occurrence.Created, 1))
		for _, answered := range []<-chan answer{first, second} {
			equal(t, "codes", codes(statuses(t, <-answered, 1)), []int32{201})
		}
	})
}

// An Event in protobuf has no more fields than one that is alone.
func TestFieldsOfAnEventOfABatchAreLimited(t *testing.T) {
	s := serve(t, written())
	list := &corev1.EventList{Items: []corev1.Event{*classic("few", 1), *classic("many", 1)}}
	list.Items[1].ManagedFields = make([]metav1.ManagedFieldsEntry, 600)
	answered := s.batch(t, coreBatch, inProtobuf(t, "v1", list), 2, "Content-Type", protoType)
	equal(t, "codes", codes(answered), []int32{201, 413})
}
