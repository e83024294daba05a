package recorder

import (
	"testing"

	"github.com/eventd/eventd/pkg/occurrence"
)

// nowhere drops what is published.
type nowhere struct{}

func (nowhere) Publish(*occurrence.Occurrence) {}
func (nowhere) Refuse(occurrence.Reason)       {}

func BenchmarkEventf(b *testing.B) {
	classic, newStyle := recorders(nowhere{})
	c := call{reason: "BackOff", action: "Restarting", note: "back-off restarting container %s", args: []any{"app"}}
	for name, isClassic := range map[string]bool{"classic": true, "new style": false} {
		c.classic = isClassic
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.of(classic, newStyle)
			}
		})
	}
}
