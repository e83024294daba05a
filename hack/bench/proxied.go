package main

import (
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/faultproxy"
)

// behindProxy calls do with a proxy in front of an apiserver.
func behindProxy(config *rest.Config, do func(*faultproxy.Proxy) error) error {
	const seed = 1
	p, err := faultproxy.Start(config, seed)
	if err != nil {
		return err
	}
	defer p.Close()
	return do(p)
}
