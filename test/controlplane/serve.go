package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/klog/v2"
)

const (
	// startTimeout bounds the time from start to ready. Five seconds are
	// usual; a loaded CI machine may take a minute.
	startTimeout = 3 * time.Minute
	// stopTimeout bounds each of the two stops, kube-apiserver and etcd. Data
	// is safe without it: etcd has written what it has acknowledged.
	stopTimeout = 5 * time.Second
)

// errStdinClosed is the reason for ending when the parent has gone.
var errStdinClosed = errors.New("stdin was closed")

// serve runs the control plane until ctx is cancelled, stdin is closed (if that
// was asked for) or one of the two servers fails. Only a failure is an error.
func serve(ctx context.Context, opts options) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if opts.exitOnStdinEOF {
		// Not waited for at the end: a read of a terminal or a pipe that stays
		// open cannot be interrupted, and the process is about to exit.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errStdinClosed)
		}()
	}
	if err := lockDataDir(opts.dataDir); err != nil {
		return err
	}
	closeDir := func() error {
		if !errors.Is(context.Cause(ctx), errStdinClosed) {
			return nil
		}
		return removeDataDir(opts.dataDir)
	}
	defer func() { err = errors.Join(err, closeDir()) }()
	// klog.Fatal in the kube-apiserver ends the process where it stands.
	klog.OsExit = func(code int) {
		_ = closeDir()
		os.Exit(code)
	}

	err = serveIn(ctx, opts)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // asked to end during the start
	}
	return err
}

// serveIn runs the two servers. It stops them only if they were ready: a
// kube-apiserver that is stopped while it starts takes that for a fatal error,
// with some hundred lines of log, and there is nothing to stop that the end of
// the process would not stop as well.
func serveIn(ctx context.Context, opts options) error {
	id, err := ensureIdentity(filepath.Join(opts.dataDir, "pki"), opts.names, opts.nodes)
	if err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	// The port is bound here and handed over, so that port 0 has no moment in
	// which somebody else can take the port that was found free.
	listener, err := net.Listen("tcp", net.JoinHostPort(opts.address, strconv.Itoa(opts.port)))
	if err != nil {
		return err
	}
	defer listener.Close()

	etcd, err := startEtcd(ctx, filepath.Join(opts.dataDir, "etcd"), id)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	server, err := startAPIServer(ctx, listener, etcd.clientURL, id, append(clusterArgs(id, opts.nodes), opts.apiServerArgs...))
	if err != nil {
		return fmt.Errorf("starting kube-apiserver: %w", err)
	}

	readyCtx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	go func() {
		select {
		case <-server.done:
			cancel()
		case <-readyCtx.Done():
		}
	}()
	admin, err := id.adminConfig(server.url)
	if err != nil {
		return err
	}
	if err := waitReady(readyCtx, admin); err != nil {
		if server.ended() {
			return fmt.Errorf("kube-apiserver ended: %w", server.err)
		}
		return err
	}
	defer etcd.stop()
	defer server.stop()
	if err := announce(opts.dataDir, admin); err != nil {
		return err
	}

	select {
	case <-ctx.Done():
		return nil
	case <-server.done:
		return fmt.Errorf("kube-apiserver ended: %w", server.err)
	case err := <-etcd.err():
		return fmt.Errorf("etcd ended: %w", err)
	}
}

// waitStopped waits for done, at most stopTimeout.
func waitStopped(done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-time.After(stopTimeout):
		klog.Errorf("%s has not stopped after %s; leaving it to the end of the process", what, stopTimeout)
	}
}
