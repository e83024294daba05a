package increase

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// version is an Event of the namespace shop that was created at a time.
func version(uid string, count int32, created time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", CreationTimestamp: metav1.NewTime(created)},
		Count:      count,
	}
}

// Events that are forgotten count 1, those of the same namespace that are new cannot be told from
// them, and other namespaces have nothing to do with that.
func TestWhatIsKnownIsBoundedAndFair(t *testing.T) {
	c := New(100)
	at := time.Now().Add(time.Minute).Truncate(time.Second)
	other := version("quiet", 10, at)
	other.Namespace = "other"
	c.Of(other)
	for i := range 1000 {
		c.Of(version(fmt.Sprint(i), 1, at))
	}
	if c.known.Len() != 100 {
		t.Errorf("%d Events are known", c.known.Len())
	}
	for _, test := range []struct {
		event *corev1.Event
		want  int64
	}{
		{version("0", 9, at), 1},              // forgotten
		{version("999", 9, at), 8},            // known
		{version("new", 9, at), 1},            // may be forgotten
		{version("later", 9, at.Add(1e9)), 9}, // is new
	} {
		if n := c.Of(test.event); n != test.want {
			t.Errorf("%s counts %d, want %d", test.event.UID, n, test.want)
		}
	}
	other = version("quiet", 15, at)
	other.Namespace = "other"
	fresh := version("fresh", 7, at)
	fresh.Namespace = "other"
	if n, m := c.Of(other), c.Of(fresh); n != 5 || m != 7 {
		t.Errorf("another namespace counts %d and %d", n, m)
	}
	for i := range 2 * maxForgotten {
		c.forget("", known{1, fmt.Sprint(i), at.Add(time.Duration(i) * time.Second)})
	}
	if len(c.forgotten) > maxForgotten || c.isNew(version("new", 9, at)) {
		t.Errorf("%d namespaces are remembered", len(c.forgotten))
	}
}
