package fakelock

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Interceptor decides what happens to a call. It calls send any number of times, or
// not at all.
type Interceptor = func(ctx context.Context, op Operation, send func() error) error

// ErrBroken is the error of a server that fails. It leaves open whether the request
// took effect.
var ErrBroken = apierrors.NewInternalError(errors.New("broken"))

// Fail returns ErrBroken and sends nothing.
func Fail(context.Context, Operation, func() error) error { return ErrBroken }

// Only intercepts one operation.
func Only(affected Operation, i Interceptor) Interceptor {
	return func(ctx context.Context, op Operation, send func() error) error {
		if op != affected {
			return send()
		}
		return i(ctx, op, send)
	}
}

// Once intercepts one call, the first.
func Once(i Interceptor) Interceptor {
	done := false
	return func(ctx context.Context, op Operation, send func() error) error {
		if done {
			return send()
		}
		done = true
		return i(ctx, op, send)
	}
}

// LoseAnswer sends the request and returns ErrBroken.
func LoseAnswer(_ context.Context, _ Operation, send func() error) error {
	_ = send()
	return ErrBroken
}

// Hang sends nothing and returns when the context ends.
func Hang(ctx context.Context, _ Operation, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Delay delays the request and its answer.
func Delay(d time.Duration) Interceptor {
	return func(_ context.Context, _ Operation, send func() error) error {
		time.Sleep(d)
		err := send()
		time.Sleep(d)
		return err
	}
}

// Block ignores the context and sends the request when release is closed.
func Block(release <-chan struct{}) Interceptor {
	return func(_ context.Context, _ Operation, send func() error) error {
		<-release
		return send()
	}
}

// Detach returns when the context ends, while send continues, as a server continues
// with an HTTP request that was cancelled.
func Detach(ctx context.Context, send func() error) error {
	answered := make(chan error, 1)
	go func() { answered <- send() }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
