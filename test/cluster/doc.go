// Package cluster tests eventd as Pods in a cluster of two real nodes, which hack/cluster runs on this
// machine: real kubelets, controllers, a scheduler, a CNI, NetworkPolicies. It needs Linux and root, and
// changes nothing outside of the namespaces of that cluster: make cluster-test.
package cluster
