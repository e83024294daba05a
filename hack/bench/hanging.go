package main

import (
	"context"
	"errors"

	"github.com/eventd/eventd/test/faultproxy"
)

// hanging compares some namespaces, while every write hangs in one more with many
// pending series, with a run without that one: until the first timeout, and after
// that.
func hanging() trial {
	const (
		turns = 6
		rate  = "written per second in the others"
		p99   = "p99 from recorded to written in the others"
	)
	halves := []string{"a namespace begins to hang: ", "a namespace hangs: "}
	var works []string
	for _, half := range halves {
		works = append(works, half+rate, half+p99)
	}
	return trial{
		works: works,
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			with, without := make([][]*flow, len(halves)), make([][]*flow, len(halves)) // by half
			for turn := range turns {
				for i := range 2 {
					hangs, into := false, without
					if (turn+i)%2 == 0 {
						hangs, into = true, with
					}
					flows, err := othersFlow(ctx, s, hangs)
					if err != nil {
						return nil, err
					}
					for half, f := range flows {
						into[half] = append(into[half], f)
					}
				}
			}
			const beside = "a run without it"
			var out []outcome
			for half, what := range halves {
				out = append(out,
					outcome{work: what + rate, unit: perSecond, eventd: of(with[half], (*flow).rate), beside: beside, other: of(without[half], (*flow).rate), aim: ofOther(0.95)},
					outcome{work: what + p99, unit: milliseconds, eventd: of(with[half], (*flow).p99), beside: beside, other: of(without[half], (*flow).p99), aim: atMostOfOther(1.1)})
			}
			return out, nil
		},
	}
}

// hangingSeries is many times the concurrency limit.
const hangingSeries = 2000

// othersFlow is that of some namespaces, with or without one more in which every write
// hangs: from its beginning, and after its first requests have timed out.
func othersFlow(ctx context.Context, s *apiserver, hangs bool) (flows []*flow, err error) {
	o := unlimited()
	if o.Sink.RequestTimeout < flowWarmUp+flowWindow {
		return nil, errors.New("the hanging requests must last for all of the first window")
	}
	err = behindProxy(s.config(), func(p *faultproxy.Proxy) error {
		namespaces, err := s.namespaces(ctx, loadNamespaces+1)
		if err != nil {
			return err
		}
		stuck, others := namespaces[0], namespaces[1:]
		p.SetRules(faultproxy.Rule{
			Match: faultproxy.Match{Namespace: stuck}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang),
		})
		r, err := startEventd(p.Config(), o)
		if err != nil {
			return err
		}
		defer r.stop()
		if hangs {
			if err := spread([]string{stuck}, hangingSeries, 0).record(ctx, r.recorder); err != nil {
				return err
			}
		}
		flows, err = flowThrough(ctx, r.Pipeline, others, flowWarmUp, flowWarmUp+o.Sink.RequestTimeout)
		return err
	})
	return flows, err
}
