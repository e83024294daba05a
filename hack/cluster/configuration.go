//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// configure writes the files of what runs on a node, into the node's root.
func (n node) configure() error {
	for path, content := range map[string]string{
		"/etc/resolv.conf":                       "", // that of the machine is out of reach, and would be waited for
		"/etc/cni/net.d/10-bridge.conflist":      n.cni(),
		"/etc/containerd/config.toml":            n.containerd(),
		"/etc/kubernetes/kubelet.yaml":           n.kubelet(),
		"/etc/kubernetes/proxy.yaml":             n.proxy(),
		"/etc/kubernetes/kubelet.kubeconfig":     n.kubeconfig(apiServer, n.name()),
		"/etc/kubernetes/proxy.kubeconfig":       n.kubeconfig(apiServer, "proxy"),
		"/etc/kubernetes/kube-router.kubeconfig": n.kubeconfig(apiServer, "admin"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// cni gives Pods addresses on a bridge. Nothing is masqueraded: other nodes have a route here.
func (n node) cni() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}
`, n.podRange())
}

// containerd cannot lower oom_score_adj, for which it would need CAP_SYS_RESOURCE on the machine.
func (n node) containerd() string {
	return fmt.Sprintf(`version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/busybox:pause"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "%[1]s/usr/lib/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    BinaryName = "%[1]s/usr/sbin/runc"
    SystemdCgroup = false
`, n.part("deb"))
}

// kubelet ends Pods only when its own disk is nearly full: that of images is the same, and images cannot be had again. It
// looks at ConfigMaps and at the size of volumes more often than by default, and forgets pressure sooner.
func (n node) kubelet() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: ""
failSwapOn: false
oomScoreAdj: 0
evictionHard: {memory.available: 100Mi, nodefs.available: 2%%, imagefs.available: 2%%, nodefs.inodesFree: 2%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionPressureTransitionPeriod: 10s
syncFrequency: 10s
volumeStatsAggPeriod: 10s
`, n.path("control-plane", "pki", "ca.crt"), clusterDNS)
}

// proxy leaves alone what of connection tracking belongs to the machine.
func (n node) proxy() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: /etc/kubernetes/proxy.kubeconfig}
clusterCIDR: 10.244.0.0/16
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.name())
}

// kubeconfig is for whom the control plane has a certificate of this name.
func (c cluster) kubeconfig(server, certificate string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://%[1]s", certificate-authority: %[2]s/ca.crt}}]
users: [{name: user, user: {client-certificate: %[2]s/%[3]s.crt, client-key: %[2]s/%[3]s.key}}]
contexts: [{name: cluster, context: {cluster: cluster, user: user}}]
current-context: cluster
`, server, c.path("control-plane", "pki"), certificate)
}
