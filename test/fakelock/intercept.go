package fakelock

import (
	"context"
	"errors"

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

// Before sends the request when do has returned, and ignores the context.
func Before(do func()) Interceptor {
	return func(_ context.Context, _ Operation, send func() error) error {
		do()
		return send()
	}
}

// After sends the request, and answers it when do has returned.
func After(do func()) Interceptor {
	return func(_ context.Context, _ Operation, send func() error) error {
		err := send()
		do()
		return err
	}
}

// Block sends the request when release is closed.
func Block(release <-chan struct{}) Interceptor { return Before(func() { <-release }) }

// Late returns when the context ends, while the request is sent when do has returned,
// as a server continues with an HTTP request that was cancelled.
func Late(do func()) Interceptor {
	return func(ctx context.Context, _ Operation, send func() error) error {
		answered := make(chan error, 1)
		go func() {
			do()
			answered <- send()
		}()
		select {
		case err := <-answered:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
