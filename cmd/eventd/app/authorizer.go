package app

import (
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
)

// newAuthorizer returns the authorizer of DelegatingAuthorizationOptions.ApplyTo, without its limit of 200 requests per
// second: the intake limits the reviews, fairly (--access-review-qps).
func newAuthorizer(o *options.DelegatingAuthorizationOptions) (authorizer.Authorizer, error) {
	config, err := loadConfig(o.RemoteKubeConfigFile)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout, config.UserAgent = -1, o.ClientTimeout, userAgent()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	paths, err := path.NewAuthorizer(o.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	delegating := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             o.AllowCacheTTL,
		DenyCacheTTL:              o.DenyCacheTTL,
		WebhookRetryBackoff:       o.WebhookRetryBackoff,
	}
	delegated, err := delegating.New()
	if err != nil {
		return nil, err
	}
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(o.AlwaysAllowGroups...)},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: delegated},
	)
}
