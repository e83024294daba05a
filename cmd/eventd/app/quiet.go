package app

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// quietOnce: the handlers belong to the process.
var quietOnce sync.Once

// quietErrors keeps what the apiserver's libraries report from filling the log:
// they have up to five lines to say of each client that goes away early. One in
// a second is enough to see that it happens, and metrics tell how often.
func quietErrors() {
	quietOnce.Do(func() {
		sometimes := &rate.Sometimes{First: 5, Interval: time.Second}
		utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{
			func(ctx context.Context, err error, message string, keysAndValues ...any) {
				logger := klog.FromContext(ctx).WithCallDepth(3)
				logged := false
				sometimes.Do(func() {
					logged = true
					logger.Error(err, message, keysAndValues...)
				})
				if !logged {
					logger.V(4).Info(message, append(keysAndValues, "err", err)...)
				}
			},
		}
	})
}
