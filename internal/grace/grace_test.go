package grace

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestRunWaitsForACallForAtMostAPeriod(t *testing.T) {
	never := make(chan struct{})
	for name, test := range map[string]struct {
		call func()
		want time.Duration
	}{
		"returns":            {func() { time.Sleep(Period / 2) }, Period / 2},
		"ends its goroutine": {runtime.Goexit, 0},
		"never returns":      {func() { <-never }, Period},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never = make(chan struct{})
				began := time.Now()
				Run(test.call)
				if took := time.Since(began); took != test.want {
					t.Errorf("it took %v, want %v", took, test.want)
				}
				close(never)
			})
		})
	}
}
