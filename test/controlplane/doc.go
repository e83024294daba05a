// Command controlplane is a Kubernetes control plane small enough to be
// started by a test: one etcd member and one kube-apiserver in one process, on
// 127.0.0.1 only, with RBAC, real admission and real tokens.
//
// What it promises:
//
//   - It prints one line on stdout, "ready <server URL> <kubeconfig path>", once
//     /readyz is ok and the objects that a fresh cluster is expected to have are
//     there. Nothing else is written to stdout; the logs go to stderr.
//   - Everything it keeps is below its data directory, the kubeconfig included. A
//     later start with the same directory and port is the same cluster to every
//     client.
//   - It has no child processes. It ends on SIGINT and SIGTERM, and with
//     --exit-on-stdin-eof when stdin is closed, which is what happens to a pipe
//     whose other end was held by a parent that died, however it died. Then it
//     also removes its data directory.
//   - Its end is bounded: what has not stopped after stopTimeout is abandoned.
//
// There are no controllers, no scheduler and no nodes. README.md says what
// follows from that.
package main
