package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// apiserver is a real one, which belongs to this process.
type apiserver struct {
	plane *testenv.ControlPlane
	admin kubernetes.Interface
}

// startAPIServer returns when it is ready. The caller stops it.
func startAPIServer(ctx context.Context) (*apiserver, error) {
	plane, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return nil, err
	}
	return &apiserver{plane: plane, admin: kubernetes.NewForConfigOrDie(plane.Config())}, nil
}

func (s *apiserver) stop() error { return s.plane.Stop() }

// config is that of a client without a rate limit of its own.
func (s *apiserver) config() *rest.Config { return s.plane.Config() }

// namespaces makes new ones, so that no turn sees what another has stored. They stay
// until the end of the apiserver: removing their Events would load the next turn.
func (s *apiserver) namespaces(ctx context.Context, n int) ([]string, error) {
	var names []string
	for range n {
		made, err := s.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		names = append(names, made.Name)
	}
	return names, nil
}
