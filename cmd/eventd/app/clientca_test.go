package app

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// A client that connects before the CA of its certificate is known is anonymous, for as
// long as its connection lives.
func TestNothingIsServedBeforeClientCertificatesCanBeVerified(t *testing.T) {
	a := startAPIServer(t)
	a.clientCA = a.config().CAData
	r := beginRunning(t, a)

	listing, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	select {
	case err := <-r.result:
		t.Fatal(err)
	case <-listing.Done(): // long enough to have served otherwise
	}
	if _, err := os.Stat(r.endpoint); !errors.Is(err, os.ErrNotExist) {
		t.Error("serves without knowing the CA of client certificates")
	}
	close(a.listable)
	r.awaitServing(t)
	r.terminate(t)
}

func TestSignalEndsAStartThatTheClusterDoesNotAnswer(t *testing.T) {
	a := startAPIServer(t)
	a.clientCA = []byte("requested")
	beginRunning(t, a).terminate(t)
}
