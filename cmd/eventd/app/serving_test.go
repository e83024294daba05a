package app

import (
	"testing"
	"testing/synctest"
	"time"
)

// A server that clients keep open, or that never ends its work, is stopped nevertheless.
func TestEndOfTheServerIsBoundedWhileItWorks(t *testing.T) {
	for name, test := range map[string]struct {
		idle   bool
		works  time.Duration
		wanted time.Duration
	}{
		"idle":                     {idle: true},
		"clients that do not read": {works: time.Second, wanted: time.Second + lingerTime},
		"a request that hangs":     {works: time.Hour, wanted: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				idle, began := make(chan struct{}), time.Now()
				if test.idle {
					close(idle)
				}
				waitIdle(idle, time.Minute, func() int {
					if time.Since(began) < test.works {
						return 1
					}
					return 0
				})
				if took := time.Since(began); took < test.wanted || took > test.wanted+lingerTime/10 {
					t.Errorf("it took %s, want %s", took, test.wanted)
				}
			})
		})
	}
}
