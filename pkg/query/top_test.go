package query_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// occurs has an Event about a Pod recorded.
func (s *scene) occurs(namespace, pod, reason string) {
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod}, Reason: reason,
	}
	var d correlator.Decision
	d.Target.Event = e
	s.trail.Decided(&occurrence.Occurrence{Event: e, User: "jane", Weight: 1}, d)
}

// However many objects there are, what top lists is right: the first is the noisiest, no error is as large as what it
// belongs to, and what happened is within it.
func TestWhatTopListsIsRight(t *testing.T) {
	for _, test := range []struct {
		name                   string
		objects, others, first int
		maxError, needed       int
	}{
		{"a small namespace", 300, 6500, 60, 0, 20},
		{"a large one", 3000, 18_000, 400, 399, 1},
		{"a flat flood", 5000, 5000, 0, 5000, 0},
	} {
		for _, path := range []string{"top?namespace=shop", "top", "top?namespace=shop&by=reason", "top?by=reason"} {
			t.Run(test.name+" "+path, func(t *testing.T) {
				s := newScene(t)
				rng := rand.New(rand.NewPCG(1, 1))
				happened := map[string]int64{}
				pods := make([]string, 0, test.others+test.first)
				for i := range test.others {
					pods = append(pods, fmt.Sprint(i%test.objects))
				}
				rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
				// All at the end, so that its upper bound is too high.
				for range test.first {
					pods = append(pods, "noisy")
				}
				for _, pod := range pods {
					reason := pod
					if n, err := strconv.Atoi(pod); err == nil {
						reason = fmt.Sprint("Reason", n/2)
					}
					happened["Pod/"+pod]++
					happened[reason]++
					s.occurs("shop", pod, reason)
				}
				top := get[v1alpha1.Top](t, s, path)
				if top.Occurrences != int64(len(pods)) || len(top.Items) < test.needed {
					t.Errorf("%d items, %d occurrences", len(top.Items), top.Occurrences)
				}
				for i, item := range top.Items {
					key := item.Reason
					if item.Object != nil {
						key = "Pod/" + item.Object.Name
					}
					if i == 0 && test.first > 0 && !strings.HasSuffix(key, "noisy") {
						t.Errorf("the first is %s of %+v", key, item)
					}
					if n := happened[key]; item.Error >= item.Occurrences || n < item.Occurrences || n > item.Occurrences+item.Error || item.Error > int64(test.maxError) {
						t.Errorf("%s happened %d times: %+v", key, n, item)
					}
				}
				if !slices.IsSortedFunc(top.Items, func(a, b v1alpha1.TopItem) int { return int(b.Occurrences - a.Occurrences) }) {
					t.Errorf("the order is %+v", top.Items)
				}
				t.Logf("%d items, the first: %+v", len(top.Items), top.Items[:min(1, len(top.Items))])
			})
		}
	}
}
