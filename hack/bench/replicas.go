package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

var binary = flag.String("eventd", "bin/eventd", "the `file` that replicas run")

// replicas are two processes of eventd with the account and the rights of deploy/.
type replicas struct {
	leader, standby *replica.Replica
	admin, account  *rest.Config
}

// withReplicas calls do when the standby holds what the leader has pending. Both have a
// flag, and no limit of requests per second.
func withReplicas(ctx context.Context, s *apiserver, flag string, do func(*replicas) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	account, accountErr := s.plane.TokenConfig(ctx, metav1.NamespaceSystem, "eventd")
	peer, peerErr := s.plane.TokenConfig(ctx, metav1.NamespaceSystem, "eventd", "eventd")
	if err := errors.Join(replica.Grant(ctx, s.plane, "deploy"), accountErr, peerErr); err != nil {
		return err
	}
	r := &replicas{admin: s.config(), account: account}
	for name, role := range []struct {
		replica **replica.Replica
		metric  []string // of the leader, 1 when the replica has this role
	}{
		{&r.leader, []string{"eventd_election_leading"}},
		{&r.standby, []string{"eventd_sink_followers", "state=complete"}},
	} {
		started, startErr := replica.Start(ctx, replica.Options{
			Binary: *binary, Credentials: account, PeerToken: peer.BearerToken, Dir: filepath.Join(dir, fmt.Sprint(name)),
			Flags: []string{"--role=intake", "--kube-api-qps=unlimited", flag},
		})
		if startErr != nil {
			return startErr
		}
		*role.replica = started
		defer func() { // the standby first: it does not take over
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, started.Stop(ctx))
		}()
		if err := r.waitMetric(ctx, 1, role.metric...); err != nil {
			return err
		}
	}
	return do(r)
}

// waitMetric waits for a value of a metric of the leader, which has a name and labels.
func (r *replicas) waitMetric(ctx context.Context, want float64, series ...string) error {
	return await.Success(ctx, time.Minute, func() error {
		m, err := r.leader.Metrics(ctx, r.admin)
		if got := m.Sum(series[0], series[1:]...); err == nil && got != want {
			return fmt.Errorf("%s is %v, not %v", series, got, want)
		}
		return err
	})
}
