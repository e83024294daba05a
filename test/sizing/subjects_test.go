package sizing

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/test/versions"
)

// Subjects take no more than is said, and a good part of it: those with a single series, and those with as many series and
// groups as they may have, of which there are fewer. Each is of a tenant of its own.
func TestSubjectsTakeNoMoreThanIsSaid(t *testing.T) {
	const subjects = 1024
	o := deployed(1)
	o.Pipeline.Correlator.CacheSize = subjects
	said, now := part(o, "subjects, and their series and groups"), time.Now()
	for _, test := range []struct {
		groups, messages int
	}{{1, 1}, {o.Pipeline.Correlator.MaxSeries, o.Pipeline.Correlator.MaxMessages - 1}} {
		before := liveBytes()
		c, err := correlator.New(o.Pipeline.Correlator)
		if err != nil {
			t.Fatal(err)
		}
		for message := range test.messages {
			for group := range test.groups {
				for i := range subjects {
					reported := versions.PodEvent(i, 1, now)
					reported.Event.Reason = fmt.Sprint("Reason", group)
					reported.Event.Message = fmt.Sprint("Back-off restarting failed container ", message)
					reported.User = fmt.Sprint("system:node:node-", i)
					c.Correlate(reported, now)
				}
			}
		}
		took := liveBytes() - before
		t.Logf("%d bytes for each of %d groups with %d messages", took/subjects, test.groups, test.messages)
		if took > said.Most || took < said.Most/3 {
			t.Errorf("%d groups with %d messages of %d subjects take %d KiB, said are %d", test.groups, test.messages, subjects, took>>10, said.Most>>10)
		}
		runtime.KeepAlive(c)
	}
}
