package app

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const docs = "https://github.com/eventd/eventd/blob/main/docs/"

// advised is an error with what its reader can do about it.
type advised struct {
	error
	advice string
}

func (a *advised) Unwrap() error { return a.error }

// explain adds to an error of eventd what is missing for a resource that it does not serve, and what to do. The query
// says which namespace was asked: not that of the kubeconfig, if the object is in no namespace.
func (p *plugin) explain(err error, resource string, query url.Values) error {
	advice := ""
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		text := fmt.Sprintf("this eventd does not serve %s: it is older", resource)
		if p.options.Connect == client.ConnectAPIServer {
			text = fmt.Sprintf("the cluster does not serve %s: the aggregated API of eventd is not installed, or eventd is older", resource)
		}
		if flag := describe.Flag(resource); flag != "" {
			text += ", or runs with " + flag + "=0"
		}
		return errors.New(text)
	case !apierrors.IsForbidden(err) || isOfConnection(err):
		advice = p.advice(err)
	case resource == "status":
		advice = "It needs the right to list Events in all namespaces. With that right in one, the other commands work there: -n NAMESPACE."
	case p.all:
		advice = "You need the right to list Events in all namespaces. With that right in one, name it: -n NAMESPACE."
	default:
		advice = fmt.Sprintf("You need the rights to list and watch Events in %s, as the ClusterRole view has them. Another namespace: -n NAMESPACE.", query.Get(v1alpha1.ParamNamespace))
	}
	if advice == "" {
		return err
	}
	return &advised{err, advice}
}

// isOfConnection reports whether an error is not an answer of eventd.
func isOfConnection(err error) bool {
	return errors.Is(err, client.ErrReadingLease) || errors.Is(err, client.ErrConnecting)
}

// advice says what to do about a connection that fails, or "".
func (p *plugin) advice(err error) string {
	namespace := p.options.LeaseNamespace
	proxy := p.proxy()
	switch {
	case p.options.Connect == client.ConnectAPIServer:
		if apierrors.IsServiceUnavailable(err) {
			return "Is it available? kubectl get apiservice v1alpha1.query.eventd.io v1alpha1.observe.eventd.io"
		}
		return ""
	case errors.Is(err, describe.ErrNothingObserves):
		return "Install deploy/observe: " + docs + "deployment.md. A process with --role=all needs --history-bytes."
	case errors.Is(err, client.ErrNoLease):
		return "Install eventd: " + docs + "deployment.md. Where is its Lease? kubectl get leases -A"
	case apierrors.IsForbidden(err) && isOfConnection(err):
		return fmt.Sprintf("To connect, you need rights in %s: %skubectl-eventd.md#rights. Where the aggregated API is installed, --connect=apiserver needs none.", namespace, docs)
	case proxy != "" && (errors.Is(err, client.ErrConnecting) || apierrors.IsUnauthorized(err) && !isOfConnection(err)):
		return fmt.Sprintf("The server of your kubeconfig is a proxy such as Rancher's: its address has the path %s. The cluster does not know the proxy's credentials, so only a direct connection can work: "+
			"a kubeconfig with the cluster's own address, or, where the aggregated API is installed, --connect=apiserver.", proxy)
	case errors.Is(err, client.ErrConnecting), errors.Is(err, client.ErrNoLeader):
		return fmt.Sprintf("Is a replica ready? kubectl -n %s get pods -l app.kubernetes.io/name=eventd", namespace)
	}
	return ""
}

// proxy returns the path of the kubeconfig's server: a kube-apiserver has none.
func (p *plugin) proxy() string {
	config, err := p.kubeconfig.ToRESTConfig()
	if err != nil {
		return ""
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(server.Path, "/")
}
