package await

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSuccessReturnsTheLastErrorOrTheFirstPermanentOne(t *testing.T) {
	errLast := errors.New("last")
	for name, test := range map[string]struct {
		errs []error // of the attempts; the last one repeats
		took time.Duration
		want error
	}{
		"success at once":    {[]error{nil}, 0, nil},
		"success in time":    {[]error{errLast, errLast, nil}, 2 * Interval, nil},
		"timeout":            {[]error{errors.New("first"), errLast}, time.Second, errLast},
		"permanent at once":  {[]error{Permanent(errLast)}, 0, errLast},
		"permanent, in time": {[]error{errors.New("first"), Permanent(errLast)}, Interval, errLast},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, n := time.Now(), -1
				err := Success(t.Context(), time.Second, func() error {
					n = min(n+1, len(test.errs)-1)
					return test.errs[n]
				})
				if !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Errorf("got %v after %s, want %v after %s", err, time.Since(began), test.want, test.took)
				}
			})
		})
	}
}

// failure records the message of Fatalf.
type failure struct {
	testing.TB
	message string
}

func (f *failure) Fatalf(format string, _ ...any) { f.message = format }

func TestUntilFailsTheTestAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := &failure{TB: t}
		began := time.Now()
		Until(failed, "nothing", func() bool { return false })
		if !strings.Contains(failed.message, "not in time") || time.Since(began) != Timeout {
			t.Errorf("failed with %q after %s", failed.message, time.Since(began))
		}
		Until(t, "a true condition", func() bool { return true })
	})
}
