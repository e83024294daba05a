package main

import (
	"context"
	"errors"

	"github.com/eventd/eventd/test/faultproxy"
)

// hanging compares what becomes of some namespaces while in one more, which has
// much to be written, every write hangs, with a run without that one: until the
// first of what hangs has timed out, and after that.
func hanging() trial {
	const (
		turns  = 6
		rate   = "written per second in the others"
		p99    = "p99 from recorded to written in the others"
		begins = "a namespace begins to hang: "
		hangs  = "a namespace hangs: "
	)
	return trial{
		works: []string{begins + rate, begins + p99, hangs + rate, hangs + p99},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			var flows [3][]*flow
			for turn := range turns {
				for i := range flows {
					h := (turn + i) % len(flows)
					f, err := othersFlow(ctx, s, hang(h))
					if err != nil {
						return nil, err
					}
					flows[h] = append(flows[h], f)
				}
			}
			beside := "a run without it"
			without := flows[hangsNot]
			both := func(what string, with []*flow) []outcome {
				return []outcome{
					{work: what + rate, unit: perSecond, eventd: of(with, (*flow).rate), beside: beside, other: of(without, (*flow).rate), aim: ofOther(0.95)},
					{work: what + p99, unit: milliseconds, eventd: of(with, (*flow).p99), beside: beside, other: of(without, (*flow).p99), aim: atMostOfOther(1.1)},
				}
			}
			return append(both(begins, flows[hangsFirst]), both(hangs, flows[hangsOn])...), nil
		},
	}
}

// hang is what a namespace does while the flow of others is measured.
type hang int

const (
	hangsNot hang = iota
	hangsFirst
	hangsOn // after its first requests have timed out
)

// hangingSeries are many times what may be written at once.
const hangingSeries = 2000

// othersFlow is that of some namespaces, beside one more in which every write
// hangs, or none.
func othersFlow(ctx context.Context, s *apiserver, h hang) (f *flow, err error) {
	o, warmUp := unlimited(), flowWarmUp
	switch h {
	case hangsFirst:
		if o.Sink.RequestTimeout < flowWarmUp+flowWindow {
			return nil, errors.New("what hangs is to hold its places all the time")
		}
	case hangsOn:
		warmUp += o.Sink.RequestTimeout
	}
	err = behindProxy(s.config(), func(p *faultproxy.Proxy) error {
		namespaces, err := s.namespaces(ctx, loadNamespaces+1)
		if err != nil {
			return err
		}
		hangs, others := namespaces[0], namespaces[1:]
		p.SetRules(faultproxy.Rule{
			Match: faultproxy.Match{Namespace: hangs}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang),
		})
		r, err := startEventd(p.Config(), o)
		if err != nil {
			return err
		}
		defer r.stop()
		if h != hangsNot {
			spread([]string{hangs}, hangingSeries, 0).record(r.recorder)
		}
		f, err = flowThrough(ctx, r.Pipeline, others, warmUp)
		return err
	})
	return f, err
}
