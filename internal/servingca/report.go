package servingca

import (
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// errMissing: somebody has deleted the Secret, or what it had.
var errMissing = errors.New("the Secret has no CA to sign with, and one was published")

// report logs and counts what somebody else has changed, before it is repaired.
func (m *Manager) report(ctx context.Context, do action) {
	v := &m.last
	logger := klog.FromContext(ctx).WithValues("namespace", m.options.Namespace, "name", m.options.Name)
	switch {
	case v.problem != nil, do == createNext && !v.canSign(m.clock.now()), do == repair:
		m.metrics.failed(foundSecret)
		if m.lines.Allow(foundSecret) {
			logger.Error(cmp.Or(v.problem, errMissing), "The Secret of the serving CA was edited, deleted, or has expired. It is repaired; CAs that clients trust stay published")
		}
	case do == publish && m.agreed != "" && m.agreed == string(encodeBundle(v.bundle())):
		m.metrics.failed(foundConfigMap)
		if m.lines.Allow(foundConfigMap) {
			logger.Error(nil, "The ConfigMap of the serving CA was edited or deleted. It is repaired")
		}
	}
}

// wrote logs an action. It returns nil after a conflict: both objects are read again.
func (m *Manager) wrote(ctx context.Context, do action, err error) error {
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Updated the serving CA", "action", string(do), "namespace", m.options.Namespace, "name", m.options.Name)
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		m.metrics.failed(failedConflict)
		return nil
	default:
		return m.fail(ctx, failedWrite, err)
	}
}

// fail counts and logs a failure, and returns it. The end of ctx is none.
func (m *Manager) fail(ctx context.Context, reason string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	m.metrics.failed(reason)
	if m.lines.Allow(reason) {
		klog.FromContext(ctx).Error(err, "Could not read or update the serving CA. The present certificate stays in use",
			"reason", reason, "namespace", m.options.Namespace, "name", m.options.Name)
	}
	return err
}
