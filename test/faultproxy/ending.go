package faultproxy

import (
	"net/http"
)

// Endings without an answer.
var (
	// ResetStream aborts the request. With HTTP/2 other requests on the same
	// connection do not notice; with HTTP/1.1 it is ResetConnection.
	ResetStream Ending = resetStream{}
	// ResetConnection resets the client's connection (TCP RST), and with it all
	// requests that are under way on it. A client that reads and writes at once
	// may see an unexpected end instead: the kernel reports a reset only once.
	ResetConnection Ending = resetConnection{}
	// Hang lasts until the client cancels, or the proxy is paused or closed.
	Hang Ending = hang{}
)

type resetStream struct{}

func (resetStream) String() string { return "stream reset" }

func (resetStream) end(x *exchange) {
	if x.r.ProtoMajor < 2 {
		ResetConnection.end(x)
	}
	x.finish(0)
	panic(http.ErrAbortHandler) // net/http's way to reset a stream
}

type resetConnection struct{}

func (resetConnection) String() string { return "connection reset" }

func (resetConnection) end(x *exchange) {
	x.finish(0)
	connOf(x.r).reset()
	panic(http.ErrAbortHandler)
}

type hang struct{}

func (hang) String() string { return "hang" }

func (hang) end(x *exchange) {
	<-x.r.Context().Done()
	x.finish(0)
	panic(http.ErrAbortHandler)
}
