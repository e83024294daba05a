package app

import (
	"context"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// limitedLog limits messages that clients can cause at any rate. Messages above the
// limit are logged at a higher verbosity.
type limitedLog struct {
	sometimes rate.Sometimes
	verbosity int
}

// level returns the verbosity of the next message: 0 within the limit.
func (l *limitedLog) level() int {
	level := l.verbosity
	l.sometimes.Do(func() { level = 0 })
	return level
}

var limitErrorsOnce sync.Once // the handlers are global

// limitLibraryErrors limits the errors that the apiserver's libraries report. They
// log up to five lines for each client that disconnects early. Metrics count them.
// It also limits the log of the standard library, in which net/http quotes what a
// destination sends unasked.
func limitLibraryErrors() {
	limitErrorsOnce.Do(func() {
		limited := &limitedLog{sometimes: rate.Sometimes{First: 5, Interval: time.Second}, verbosity: 4}
		utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
			func(ctx context.Context, err error, message string, keysAndValues ...any) {
				logger := klog.FromContext(ctx).WithCallDepth(3)
				if level := limited.level(); level > 0 {
					logger.V(level).Info(message, append(keysAndValues, "err", err)...)
				} else {
					logger.Error(err, message, keysAndValues...)
				}
			},
		}
		log.SetFlags(0)
		log.SetOutput(newLibraryLog(klog.Background(), "A library has logged").Writer())
	})
}

// maxLogLine bounds a line of a library's log in bytes.
const maxLogLine = 512

// libraryLog is the output of the log of a library, of which a line a minute is logged by default. Failed handshakes
// never are: port scanners and health checks of load balancers cause them.
type libraryLog struct {
	logger  logr.Logger
	message string
	limited *limitedLog
}

func newLibraryLog(logger logr.Logger, message string) *log.Logger {
	limited := &limitedLog{sometimes: rate.Sometimes{First: 1, Interval: time.Minute}, verbosity: 5}
	return log.New(libraryLog{logger, message, limited}, "", 0)
}

// Write implements io.Writer.
func (l libraryLog) Write(line []byte) (int, error) {
	said := strings.TrimSpace(string(line[:min(len(line), maxLogLine)]))
	level := l.limited.verbosity
	if !strings.Contains(said, "TLS handshake error") {
		level = l.limited.level()
	}
	l.logger.V(level).Info(l.message, "message", said)
	return len(line), nil
}
