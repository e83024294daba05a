package main

import (
	"context"
	"fmt"
	"io"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// tokenOptions are the flags of "controlplane token".
type tokenOptions struct {
	kubeconfig, namespace, serviceAccount, out string
	audiences                                  []string
	duration                                   time.Duration
}

func parseTokenOptions(args []string, usage io.Writer) (tokenOptions, error) {
	var o tokenOptions
	fs := newFlagSet("controlplane token")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the administrator's kubeconfig")
	fs.StringVar(&o.namespace, "namespace", "", "`namespace` of the ServiceAccount")
	fs.StringVar(&o.serviceAccount, "serviceaccount", "", "`name` of the ServiceAccount, which must exist")
	fs.StringVar(&o.out, "out", "", "`file` to write the ServiceAccount's kubeconfig to")
	fs.DurationVar(&o.duration, "duration", 24*time.Hour, "how long the token is valid")
	fs.Func("audience", "`audience` of the token instead of the kube-apiserver's; may be repeated", func(audience string) error {
		o.audiences = append(o.audiences, audience)
		return nil
	})
	if err := parseFlags(fs, args, usage); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o tokenOptions) validate() error {
	for _, flag := range []struct{ name, value string }{
		{"--kubeconfig", o.kubeconfig},
		{"--namespace", o.namespace},
		{"--serviceaccount", o.serviceAccount},
		{"--out", o.out},
	} {
		if flag.value == "" {
			return fmt.Errorf("token: %s is required", flag.name)
		}
	}
	// The limit is the kube-apiserver's (pkg/apis/authentication/validation).
	if o.duration < 10*time.Minute {
		return fmt.Errorf("token: --duration must be at least 10m, got %s", o.duration)
	}
	return nil
}

// runToken writes a kubeconfig with a token of a ServiceAccount: what a Pod
// gets, so that what its holder may do is decided by RBAC.
func runToken(ctx context.Context, args []string, usage io.Writer) error {
	o, err := parseTokenOptions(args, usage)
	if err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	seconds := int64(o.duration.Seconds())
	token, err := client.CoreV1().ServiceAccounts(o.namespace).CreateToken(ctx, o.serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: o.audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token for %s/%s: %w", o.namespace, o.serviceAccount, err)
	}
	if err := rest.LoadTLSFiles(admin); err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	return writeKubeconfig(o.out, config, o.namespace)
}
