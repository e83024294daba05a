package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/stored"
)

// copies are those of each version of an Event that somebody has, by uid/resourceVersion, as JSON of their fields.
type copies map[string][]string

func (c copies) add(id string, fields any) { c[id] = append(c[id], inJSON(fields)) }

func inJSON(fields any) string {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// lineOf has all fields of an Event, but for who has set which.
func lineOf(e corev1.Event) any {
	e.TypeMeta, e.ManagedFields = metav1.TypeMeta{}, nil
	return e
}

// itemOf is what queries show of an Event, but for when it was observed.
func itemOf(e corev1.Event) any {
	object := e.InvolvedObject
	group, _, found := strings.Cut(object.APIVersion, "/")
	if !found {
		group = v1alpha1.GroupCore
	}
	return v1alpha1.TimelineItem{
		ID: string(e.UID) + "/" + e.ResourceVersion, ResourceVersion: e.ResourceVersion, Namespace: e.Namespace, Name: e.Name,
		Regarding: v1alpha1.ObjectReference{Group: group, Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, UID: object.UID, FieldPath: object.FieldPath},
		Type:      e.Type, Reason: e.Reason, Message: e.Message, Reporter: reporterOf(e), Instance: cmp.Or(e.ReportingInstance, e.Source.Host),
		Count: stored.Count(&e),
		First: metav1.NewMicroTime(cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time)), Last: metav1.NewMicroTime(lastOf(e)),
	}
}

// recordOf is the record of OpenTelemetry for an Event, but for when it was observed.
func recordOf(e corev1.Event) any {
	record := map[string]string{
		"severity": e.Type, "time": lastOf(e).UTC().Format(time.RFC3339Nano),
		"log.record.uid": string(e.UID) + "/" + e.ResourceVersion, "k8s.cluster.name": "cluster", "k8s.node.name": e.Source.Host, "k8s.namespace.name": e.InvolvedObject.Namespace,
		"k8s.object.kind": e.InvolvedObject.Kind, "k8s.object.name": e.InvolvedObject.Name, "k8s.object.uid": string(e.InvolvedObject.UID),
		"k8s.object.fieldpath": e.InvolvedObject.FieldPath, "k8s.object.api_version": e.InvolvedObject.APIVersion, "k8s.object.resource_version": e.InvolvedObject.ResourceVersion,
		"k8s.event.name": e.Name, "k8s.event.uid": string(e.UID), "k8s.event.reason": e.Reason, "k8s.event.action": e.Action,
		"k8s.event.count": fmt.Sprint(stored.Count(&e)), "k8s.event.start_time": e.CreationTimestamp.UTC().Format(time.RFC3339),
		"k8s.event.reporting_controller": reporterOf(e), "k8s.event.reporting_instance": e.ReportingInstance,
	}
	maps.DeleteFunc(record, func(_, value string) bool { return value == "" })
	record["body"] = e.Message
	return record
}

func reporterOf(e corev1.Event) string { return cmp.Or(e.ReportingController, e.Source.Component) }

func lastOf(e corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time)
}

// comparison is, by who reports what, how many versions of Events are stored, and how many are equal to that elsewhere.
type comparison map[[2]string]*compared

type compared struct {
	events   map[types.UID]bool
	versions int
	// equal are those in the history, which has the last versions only, lines, the collector and the tail.
	equal [4]int
}

func newComparison(stored map[string]corev1.Event, kept []v1alpha1.TimelineItem) comparison {
	c, last := comparison{}, map[types.UID]int{}
	for _, event := range stored {
		row := c.of(event)
		row.events[event.UID] = true
		row.versions++
		last[event.UID] = max(last[event.UID], versionOf(event.ResourceVersion))
	}
	for _, item := range kept {
		item.Observed = metav1.MicroTime{}
		event, ok := stored[item.ID]
		if ok && versionOf(item.ResourceVersion) == last[event.UID] && inJSON(item) == inJSON(itemOf(event)) {
			c.of(event).equal[0]++
		}
	}
	return c
}

// versionOf is how the kube-apiserver orders versions.
func versionOf(resourceVersion string) int {
	number, err := strconv.Atoi(resourceVersion)
	if err != nil {
		panic(err)
	}
	return number
}

// wantKept returns an error unless the last version of each Event is in the history, once.
func (c comparison) wantKept() (err error) {
	for of, row := range c {
		if row.equal[0] != len(row.events) {
			err = errors.Join(err, fmt.Errorf("of %d Events of %q, %d are in the history as they are stored", len(row.events), of, row.equal[0]))
		}
	}
	return err
}

// of returns the row of an Event.
func (c comparison) of(e corev1.Event) *compared {
	key := [2]string{reporterOf(e), e.Reason}
	if c[key] == nil {
		c[key] = &compared{events: map[types.UID]bool{}}
	}
	return c[key]
}

func (c comparison) report(t *testing.T) {
	t.Helper()
	rows := []string{
		"| reported by | reason | Events | their versions | equal in the history (last versions) | as JSON lines | in the collector | in a tail |",
		"|---|---|---|---|---|---|---|---|",
	}
	for _, of := range slices.SortedFunc(maps.Keys(c), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		row := c[of]
		rows = append(rows, fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %d |", of[0], of[1], len(row.events), row.versions, row.equal[0], row.equal[1], row.equal[2], row.equal[3]))
	}
	writeTable(t, "comparison", rows)
}
