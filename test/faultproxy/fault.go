package faultproxy

import "fmt"

// Fault is injected into a write that a rule strikes: BeforeWrite, AfterWrite,
// LateWrite or Slow. The zero Fault lets the write pass.
type Fault struct {
	effect effect
	ending Ending // nil: the backend's answer
	before Delay  // until the write is handed on, or would have been
	after  Delay  // from then, or from the backend's answer, to the ending
	lateBy Delay
}

// effect is what becomes of the write itself.
type effect int

const (
	effectNow effect = iota
	effectNever
	effectLate
)

// Ending is how a struck request ends for its client: an Answer, ResetStream,
// ResetConnection or Hang.
type Ending interface {
	fmt.Stringer
	end(*exchange)
}

// BeforeWrite strikes before the write, which never reaches the backend.
func BeforeWrite(e Ending) Fault { return Fault{effect: effectNever, ending: e} }

// AfterWrite strikes after the write: it is forwarded, the backend's answer goes into
// the Record, and the client gets another ending.
func AfterWrite(e Ending) Fault { return Fault{effect: effectNow, ending: e} }

// LateWrite ends the request at once, usually as a timeout does (Status(504)), and
// forwards the write later. It is lost if the proxy is paused or closed before.
func LateWrite(by Delay, e Ending) Fault { return Fault{effect: effectLate, ending: e, lateBy: by} }

// Slow delays the write before it is forwarded, and its answer. There is no other
// fault.
func Slow(before, after Delay) Fault { return Fault{before: before, after: after} }

// String is the kind of the fault in the Record, "" for the zero Fault.
func (f Fault) String() string {
	switch {
	case f.ending == nil && f.before == nil && f.after == nil:
		return ""
	case f.ending == nil:
		return "slow"
	case f.effect == effectNever:
		return f.ending.String() + " before the write"
	case f.effect == effectLate:
		return f.ending.String() + ", and the write late"
	default:
		return f.ending.String() + " after the write"
	}
}

// check returns an error if the fault is invalid.
func (f Fault) check() error {
	if f.effect != effectNow && f.ending == nil {
		return fmt.Errorf("a fault without an ending")
	}
	if a, ok := f.ending.(Answer); ok {
		return a.check()
	}
	return nil
}
