//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// serveControl serves what "cluster node" asks of a running cluster, on a socket in its folder. It calls ready when it does.
func (w *network) serveControl(ready func()) error {
	listener, err := net.Listen("unix", w.path(controlSocket))
	if err != nil {
		return err
	}
	handle := func(act func(ctx context.Context, n node, args []string) (string, error)) http.HandlerFunc {
		return func(out http.ResponseWriter, req *http.Request) {
			var args []string
			err := json.NewDecoder(req.Body).Decode(&args)
			var answer string
			if err == nil {
				name := req.PathValue("node")
				number, _ := strconv.Atoi(strings.TrimPrefix(name, "node-"))
				if n := (node{w.cluster, number}); name != "" && (n.name() != name || number < 1 || number > w.Nodes) {
					err = fmt.Errorf("there is no node %q", name)
				} else {
					answer, err = act(req.Context(), n, args)
				}
			}
			if err != nil {
				http.Error(out, answer+err.Error(), http.StatusConflict)
				return
			}
			_, _ = io.WriteString(out, answer)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{node}/on", handle(func(_ context.Context, n node, _ []string) (string, error) { return "", w.switchOn(n) }))
	mux.HandleFunc("POST /{node}/off", handle(func(_ context.Context, n node, _ []string) (string, error) { return "", w.switchOff(n.name()) }))
	mux.HandleFunc("POST /{node}/connect", handle(func(_ context.Context, n node, _ []string) (string, error) {
		return "", ip("link set " + n.name() + " up")
	}))
	mux.HandleFunc("POST /{node}/disconnect", handle(func(_ context.Context, n node, _ []string) (string, error) {
		return "", ip("link set " + n.name() + " down")
	}))
	mux.HandleFunc("POST /{node}/exec", handle(w.exec))
	mux.HandleFunc("POST /control-plane/kill", handle(func(context.Context, node, []string) (string, error) { return "", w.killControlPlane() }))
	ready()
	return http.Serve(listener, mux) // the socket is root's, and so is all of this
}

// exec runs a command in the namespaces of a node.
func (w *network) exec(ctx context.Context, n node, args []string) (string, error) {
	w.mu.Lock()
	running := w.nodes[n.name()]
	w.mu.Unlock()
	if running == nil || len(args) == 0 {
		return "", fmt.Errorf("%s is off, or there is no command", n.name())
	}
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(running.Process.Pid), "--all", "--"}, args...)...)
	command.Env = n.environment()
	out, err := command.CombinedOutput()
	return string(out), err
}

// killControlPlane kills the kube-apiserver and etcd, which start again with what they have stored.
func (w *network) killControlPlane() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.controlPlane.Process.Kill()
}

const nodeUsage = "the arguments are a node, such as node-2, and off, on, disconnect, connect, or exec with a command; or control-plane kill"

// commandNode is the client of serveControl.
func commandNode(args []string) error {
	if len(args) == 1 && strings.HasSuffix(args[0], "-help") {
		fmt.Println(nodeUsage)
		return nil
	}
	dir := ".cache/cluster"
	if len(args) > 1 && args[0] == "-dir" {
		dir, args = args[1], args[2:]
	}
	if len(args) < 2 {
		return errors.New(nodeUsage)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, controlSocket))
	}}}
	body, err := json.Marshal(args[2:])
	if err != nil {
		return err
	}
	resp, err := client.Post("http://cluster/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1]), "application/json", strings.NewReader(string(body)))
	if err != nil {
		return fmt.Errorf("no cluster runs in %s, see -dir: %w", dir, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return errors.New(nodeUsage)
	case resp.StatusCode != http.StatusOK:
		return errors.New(strings.TrimSpace(string(answer)))
	}
	_, err = os.Stdout.Write(answer)
	return err
}
