package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
)

// Fault is injected into a write that a rule strikes: BeforeWrite, AfterWrite,
// LateWrite or Slow. The zero Fault lets the write pass.
type Fault struct {
	name   string
	inject func(*exchange, *rand.Rand)
}

// String is the kind of the fault in the Record, "" for the zero Fault.
func (f Fault) String() string { return f.name }

func (f Fault) strike(x *exchange, rng *rand.Rand) {
	if f.inject == nil {
		x.forward(x.r.Context()).end(x)
		return
	}
	f.inject(x, rng)
}

// BeforeWrite strikes before the write, which never reaches the backend.
func BeforeWrite(e Ending) Fault {
	return Fault{e.String() + " before the write", func(x *exchange, _ *rand.Rand) { e.end(x) }}
}

// AfterWrite strikes after the write: it is forwarded, the backend's answer goes into
// the Record, and the client gets another ending.
func AfterWrite(e Ending) Fault {
	return Fault{e.String() + " after the write", func(x *exchange, _ *rand.Rand) {
		x.forward(x.proxy.ctx) // the client cannot cancel it
		e.end(x)
	}}
}

// LateWrite ends the request at once, usually as a timeout does (Status(504)), and
// forwards the write later. It is lost if the proxy is paused or closed before.
func LateWrite(by Delay, e Ending) Fault {
	return Fault{e.String() + ", and the write late", func(x *exchange, rng *rand.Rand) {
		x.forwardLate(by.draw(rng))
		e.end(x)
	}}
}

// Slow delays the write before it is forwarded, and its answer. There is no other
// fault.
func Slow(before, after Delay) Fault {
	return Fault{"slow", func(x *exchange, rng *rand.Rand) {
		wait, hold := before.draw(rng), after.draw(rng)
		x.wait(wait)
		answer := x.forward(x.r.Context())
		x.wait(hold)
		answer.end(x)
	}}
}

// overCapacity is the fault of a write above the capacity. The answer is that of the
// apiserver's priority and fairness.
var overCapacity = Fault{"over capacity", func(x *exchange, _ *rand.Rand) {
	Status(http.StatusTooManyRequests).RetryAfter(1).PlainText().end(x)
}}

// Delay is a distribution of durations: it draws one from the generator that it
// is given, and from nothing else. nil is no delay.
type Delay func(*rand.Rand) time.Duration

// Fixed is always d.
func Fixed(d time.Duration) Delay { return Uniform(d, d) }

// Uniform is anything from least up to most, all as likely.
func Uniform(least, most time.Duration) Delay {
	return func(rng *rand.Rand) time.Duration {
		return least + time.Duration(rng.Float64()*float64(most-least))
	}
}

// Exponential is short mostly and long at times: mean on average, but for what
// is cut off at most.
func Exponential(mean, most time.Duration) Delay {
	return func(rng *rand.Rand) time.Duration {
		return min(time.Duration(rng.ExpFloat64()*float64(mean)), most)
	}
}

func (d Delay) draw(rng *rand.Rand) time.Duration {
	if d == nil {
		return 0
	}
	return d(rng)
}

// Ending is how a struck request ends for its client: an Answer, ResetStream,
// ResetConnection or Hang.
type Ending interface {
	fmt.Stringer
	end(*exchange)
}

// Endings without an answer.
var (
	// ResetStream aborts the request. Other requests on the same connection do not
	// notice.
	ResetStream Ending = abort{"stream reset", func(*exchange) {}}
	// ResetConnection resets the client's connection (TCP RST), and with it all
	// requests that are under way on it. A client that reads and writes at once
	// may see an unexpected end instead: the kernel reports a reset only once.
	ResetConnection Ending = abort{"connection reset", func(x *exchange) { connOf(x.r).Close() }}
	// Hang lasts until the client cancels, or the proxy is paused or closed.
	Hang Ending = abort{"hang", func(x *exchange) { <-x.r.Context().Done() }}
)

type abort struct {
	name  string
	first func(*exchange)
}

func (a abort) String() string { return a.name }

func (a abort) end(x *exchange) {
	a.first(x)
	panic(http.ErrAbortHandler) // net/http's way to reset a stream
}

// Answer is an Ending: an error instead of the backend's answer. Its body is a
// metav1.Status in the encoding that the client accepts, as an apiserver's is,
// or plain text, as that of a load balancer or of the apiserver's outer filters.
type Answer struct {
	code       int
	retryAfter int
	plain      bool
}

// Status is an answer with a code of 400 to 599 and the usual Status for it.
func Status(code int) Answer { return Answer{code: code} }

// RetryAfter adds the header Retry-After, and the same to the Status.
func (a Answer) RetryAfter(seconds int) Answer {
	a.retryAfter = seconds
	return a
}

// PlainText replaces the Status by a line of text.
func (a Answer) PlainText() Answer {
	a.plain = true
	return a
}

// String is the code and what is unusual about it, such as "503 with Retry-After 1".
func (a Answer) String() string {
	s := strconv.Itoa(a.code)
	if a.plain {
		s += " in plain text"
	}
	if a.retryAfter != 0 {
		s += fmt.Sprintf(" with Retry-After %d", a.retryAfter)
	}
	return s
}

func (a Answer) end(x *exchange) {
	x.finish(a.code)
	if a.plain {
		if a.retryAfter != 0 {
			x.w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
		}
		http.Error(x.w, http.StatusText(a.code), a.code)
		return
	}
	events := schema.GroupResource{Group: x.request.Group, Resource: "events"}
	const message = "a fault of faultproxy"
	err := apierrors.NewGenericServerResponse(a.code, x.r.Method, events, x.request.Name, message, a.retryAfter, false)
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, x.w, x.r)
}
