package app

import (
	"testing"
	"testing/synctest"
	"time"
)

// A request of a forwarding session may hang. net/http does not wait for it.
func TestEndOfTheServerIsBoundedWhileItWorks(t *testing.T) {
	for name, test := range map[string]struct {
		idle   bool
		works  time.Duration
		wanted time.Duration
	}{
		"idle":                     {idle: true},
		"idle but for a session":   {idle: true, works: time.Second, wanted: time.Second + lingerTime},
		"a session that hangs":     {idle: true, works: time.Hour, wanted: time.Minute},
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
