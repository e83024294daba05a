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
		log.SetOutput(newLibraryLog(klog.Background()))
	})
}

// maxLibraryLine bounds a line of the standard library's log in bytes.
const maxLibraryLine = 512

// libraryLog is the output of the standard library's log.
type libraryLog struct {
	logger  logr.Logger
	limited *limitedLog
}

func newLibraryLog(logger logr.Logger) libraryLog {
	return libraryLog{logger, &limitedLog{sometimes: rate.Sometimes{First: 1, Interval: time.Minute}, verbosity: 5}}
}

// Write implements io.Writer.
func (l libraryLog) Write(line []byte) (int, error) {
	message := strings.TrimSpace(string(line[:min(len(line), maxLibraryLine)]))
	l.logger.V(l.limited.level()).Info("A library has logged", "message", message)
	return len(line), nil
}

// serverLog is the error log of the HTTP server.
type serverLog struct {
	logger  logr.Logger
	limited *limitedLog
}

func newServerLog(logger logr.Logger) *log.Logger {
	limited := &limitedLog{sometimes: rate.Sometimes{First: 1, Interval: time.Minute}, verbosity: 5}
	return log.New(serverLog{logger, limited}, "", 0)
}

// Write implements io.Writer. Failed handshakes are never logged by default: port
// scanners and health checks of load balancers cause them.
func (l serverLog) Write(line []byte) (int, error) {
	message := strings.TrimSpace(string(line))
	level := l.limited.verbosity
	if !strings.Contains(message, "TLS handshake error") {
		level = l.limited.level()
	}
	l.logger.V(level).Info("HTTP server error", "message", message)
	return len(line), nil
}
