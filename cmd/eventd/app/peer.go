package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// checkPeerToken says what is missing for being one of several replicas.
func (o *Options) checkPeerToken() error {
	if !o.LeaderElect {
		return nil
	}
	token, err := os.ReadFile(o.LeaderElection.PeerTokenFile)
	if err == nil && len(bytes.TrimSpace(token)) == 0 {
		err = errors.New(o.LeaderElection.PeerTokenFile + " is empty")
	}
	if err != nil {
		return fmt.Errorf("--peer-token-file: %w: it is to hold a token of eventd's ServiceAccount for the audience %q, to show to other replicas; --leader-elect=false runs alone and needs none",
			err, o.LeaderElection.PeerAudience)
	}
	return nil
}

// The rate at which TokenReviews of other replicas' tokens are asked for, as that
// of delegated authentication.
const (
	reviewQPS   = 200
	reviewBurst = 400
)

// newReviewer returns who is asked whose token another replica presents: the
// apiserver that is asked of any caller.
func (o *Options) newReviewer() (authenticationv1client.AuthenticationV1Interface, error) {
	config, err := loadConfig(cmp.Or(o.Authentication.RemoteKubeConfigFile, o.Kubeconfig))
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent()
	config.QPS, config.Burst = reviewQPS, reviewBurst
	return authenticationv1client.NewForConfig(config)
}
