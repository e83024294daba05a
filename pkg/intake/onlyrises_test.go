package intake_test

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/test/testenv"
)

// Whatever arrives late, in the API or from another client, a stored Event has the highest count and the latest time.
func TestCountAndTimeOfAStoredEventOnlyRise(t *testing.T) {
	cluster := testenv.Shared(t)
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(minute int) string { return noon.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339) }
	micro := func(minute int) string { return strings.Replace(at(minute), "Z", ".000007Z", 1) }
	of := func(count, minute int) fields {
		return fields{"series": fields{"count": count, "lastObservedTime": micro(minute)}}
	}
	patch := func(path string, change fields) input { return patched(path, strategicType, a(fields{}, change)) }
	type step struct {
		input
		count  int32
		minute int
	}
	for name, steps := range map[string][]step{
		"classic": {
			{posted(corePath, a(coreClassic, fields{"lastTimestamp": at(10)})), 1, 10},
			{patch(corePath, fields{"count": 3, "lastTimestamp": at(30)}), 3, 30},
			{patch(corePath, fields{"count": 2, "lastTimestamp": at(20)}), 3, 30},
			{patched(corePath, mergeType, `{"count":null}`), 3, 30},
		},
		"classic, another client": {
			{posted(corePath, a(coreClassic, fields{"lastTimestamp": at(30), "count": 3})), 3, 30},
			{posted(corePath, a(coreClassic, fields{"lastTimestamp": at(10), "metadata.name": "NAME-2"})), 4, 30},
		},
		"classic with a series": {
			{posted(corePath, a(coreClassic, fields{"lastTimestamp": at(10), "series": of(5, 20)["series"]})), 5, 20},
			{patched(corePath, strategicType, `{"series":null}`), 5, 20},
			{patch(corePath, of(6, 30)), 6, 30},
		},
		"new style": {
			{posted(eventsPath, a(newEvent, fields{"eventTime": micro(10)})), 1, 10},
			{patch(eventsPath, of(2, 5)), 2, 10},
			{patch(eventsPath, of(5, 30)), 5, 30},
			{patch(eventsPath, of(4, 20)), 5, 30},
			{patched(eventsPath, strategicType, `{"series":null}`), 5, 30},
			{patch(eventsPath, of(6, 20)), 6, 30},
			{posted(eventsPath, a(newEvent, fields{"eventTime": micro(1), "metadata.name": "NAME-2"})), 7, 30},
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			tokens := map[caller]string{writer: cluster.ServiceAccount(t, namespace, "writer").BearerToken}
			cluster.Grant(t, namespace, "writer", rbacv1.PolicyRule{
				APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"},
			})
			eventd := inFrontOf(t, cluster.Config())
			for i, step := range steps {
				a := eventd.send(t, step.input, tokens, strings.NewReplacer("NS", namespace, "NAME", "some"))
				if a.Code >= 300 {
					t.Fatalf("step %d is answered %d: %s", i, a.Code, a.Body)
				}
				stored := storedEvent(t, cluster, namespace)
				last := eventfields.LastTime(stored)
				if want := noon.Add(time.Duration(step.minute) * time.Minute); !last.Truncate(time.Second).Equal(want) {
					t.Errorf("step %d: last seen at %v, want %v", i, last, want)
				}
				if count := eventfields.Count(stored); count != step.count {
					t.Errorf("step %d: count %d, want %d", i, count, step.count)
				}
			}
		})
	}
}
