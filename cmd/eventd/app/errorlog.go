package app

import (
	"context"
	"errors"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/eventfields"
)

// verbosity returns that of a message that clients can cause at any rate: 0 within a limit, and more above it.
func verbosity(limit *rate.Sometimes, above int) int {
	limit.Do(func() { above = 0 })
	return above
}

var limitErrorsOnce sync.Once // the handlers are global

// limitLibraryErrors limits the errors that the apiserver's libraries report. They
// log up to five lines for each client that disconnects early. Metrics count them.
// It also limits the log of the standard library, in which net/http quotes what a
// destination sends unasked.
func limitLibraryErrors() {
	limitErrorsOnce.Do(func() {
		limit := &rate.Sometimes{First: 5, Interval: time.Second}
		utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
			func(ctx context.Context, err error, message string, keysAndValues ...any) {
				logger := klog.FromContext(ctx).WithCallDepth(3)
				if err != nil { // it may quote all that a client has sent
					err = errors.New(eventfields.ValidUTF8(err.Error(), maxLogLine))
				}
				if level := verbosity(limit, 4); level > 0 {
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
	limit   *rate.Sometimes
}

func newLibraryLog(logger logr.Logger, message string) *log.Logger {
	return log.New(libraryLog{logger, message, &rate.Sometimes{First: 1, Interval: time.Minute}}, "", 0)
}

// Write implements io.Writer.
func (l libraryLog) Write(line []byte) (int, error) {
	said := strings.TrimSpace(string(line[:min(len(line), maxLogLine)]))
	level := 5
	if !strings.Contains(said, "TLS handshake error") {
		level = verbosity(l.limit, level)
	}
	l.logger.V(level).Info(l.message, "message", said)
	return len(line), nil
}
