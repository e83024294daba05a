package main

import (
	"context"

	"github.com/eventd/eventd/test/faultproxy"
)

// hanging compares what becomes of some namespaces while in one more, which has
// much to be written, every write hangs, with a run without that one.
func hanging() trial {
	const (
		turns = 6 // shorter than a request's time-out: what hangs holds its places all the time
		rate  = "a namespace hangs: written per second in the others"
		p99   = "a namespace hangs: p99 from recorded to written in the others"
	)
	return trial{
		works: []string{rate, p99},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			var with, without []*flow
			for turn := range turns {
				for i := range 2 {
					stuck := (turn+i)%2 == 0
					f, err := othersFlow(ctx, s, stuck)
					if err != nil {
						return nil, err
					}
					if stuck {
						with = append(with, f)
					} else {
						without = append(without, f)
					}
				}
			}
			beside := "a run without it"
			return []outcome{
				{work: rate, unit: perSecond, eventd: of(with, (*flow).rate), beside: beside, other: of(without, (*flow).rate), aim: ofOther(0.95)},
				{work: p99, unit: milliseconds, eventd: of(with, (*flow).p99), beside: beside, other: of(without, (*flow).p99), aim: atMostOfOther(1.1)},
			}, nil
		},
	}
}

// hangingSeries are many times what may be written at once.
const hangingSeries = 2000

// othersFlow is that of some namespaces, beside one more in which every write
// hangs, or none.
func othersFlow(ctx context.Context, s *apiserver, stuck bool) (f *flow, err error) {
	err = behindProxy(s.config(), func(p *faultproxy.Proxy) error {
		namespaces, err := s.namespaces(ctx, loadNamespaces+1)
		if err != nil {
			return err
		}
		hangs, others := namespaces[0], namespaces[1:]
		p.SetRules(faultproxy.Rule{
			Match: faultproxy.Match{Namespace: hangs}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang),
		})
		r, err := startEventd(p.Config(), unlimited())
		if err != nil {
			return err
		}
		defer r.stop()
		if stuck {
			spread([]string{hangs}, hangingSeries, 0).record(r.recorder)
		}
		f, err = flowThrough(ctx, r.Pipeline, others)
		return err
	})
	return f, err
}
