package deploy

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// permanent is an error that waiting does not help against.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// within tries until it works, and returns the last error if that takes longer
// than patience. What it asks has nothing to wait on.
func within(t *testing.T, patience time.Duration, try func() error) error {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		err := try()
		var final permanent
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-tick.C:
		case <-end:
			return fmt.Errorf("in vain for %s: %w", patience, err)
		case <-t.Context().Done():
			return t.Context().Err()
		}
	}
}

func administrator(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}
