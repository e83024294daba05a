package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// checkPeerToken returns an error if the token for other replicas cannot be read.
func (o *Options) checkPeerToken() error {
	if !o.LeaderElect {
		return nil
	}
	token, err := os.ReadFile(o.LeaderElection.PeerTokenFile)
	if err == nil && len(bytes.TrimSpace(token)) == 0 {
		err = errors.New(o.LeaderElection.PeerTokenFile + " is empty")
	}
	if err != nil {
		return fmt.Errorf("--peer-token-file: %w: replicas authenticate each other by a token of eventd's ServiceAccount for the audience %q; --leader-elect=false needs none",
			err, o.LeaderElection.PeerAudience)
	}
	return nil
}

// Rate limit of TokenReviews for other replicas, as in delegated authentication.
const (
	reviewQPS   = 200
	reviewBurst = 400
)

// newReviewer returns the client for TokenReviews of other replicas' tokens: that of
// delegated authentication.
func (o *Options) newReviewer() (authenticationv1client.AuthenticationV1Interface, error) {
	config, err := loadConfig(cmp.Or(o.Authentication.RemoteKubeConfigFile, o.Kubeconfig))
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent()
	config.QPS, config.Burst = reviewQPS, reviewBurst
	return authenticationv1client.NewForConfig(config)
}
