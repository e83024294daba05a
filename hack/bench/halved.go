package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
)

// The apiserver is behind a proxy that limits concurrent writes and refuses others, as
// priority and fairness does, and delays each. That is slow enough to be the limit on
// any machine.
const (
	wholeCapacity = 64
	halfCapacity  = wholeCapacity / 2
	serviceTime   = 150 * time.Millisecond
	saturating    = 12_000 // series: more than are written while it is measured
	fixedWarmUp   = time.Second
	fixedWindow   = 3 * time.Second
	untilHalved   = 3 * time.Second
	untilSettled  = 5 * time.Second
	settledWindow = 10 * time.Second
)

// fixedLimits are tried for the best one.
func fixedLimits() []int { return []int{halfCapacity - 4, halfCapacity, halfCapacity + 4} }

// halved halves the apiserver's capacity under saturation, and compares eventd's rate
// with that of the best fixed limit.
func halved() trial {
	const turns = 2
	works := []string{
		"capacity halved: written per second, from 5 s later",
		"capacity halved: refused with 429, from 5 s later",
		"capacity halved: refused with 429, from then on",
	}
	return trial{
		works: works,
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			var rates, best, refused, refusedInAll figures
			for turn := range turns {
				fixed, err := bestFixed(ctx, s, turn)
				if err != nil {
					return nil, err
				}
				settled, all, err := halve(ctx, s)
				if err != nil {
					return nil, err
				}
				rates, best = append(rates, settled.rate()), append(best, fixed)
				refused, refusedInAll = append(refused, settled.refusals()), append(refusedInAll, all.refusals())
			}
			beside := fmt.Sprintf("best fixed limit of %v", fixedLimits())
			return []outcome{
				{work: works[0], unit: perSecond, eventd: rates, beside: beside, other: best, aim: ofOther(0.9)},
				{work: works[1], unit: finePercent, eventd: refused, aim: below(0.01, percent)},
				{work: works[2], unit: finePercent, eventd: refusedInAll, aim: below(0.01, percent)},
			}, nil
		},
	}
}

// bestFixed is the rate of the best fixed limit at half of the capacity. Each turn
// begins with another limit.
func bestFixed(ctx context.Context, s *apiserver, turn int) (float64, error) {
	var rates []float64
	limits := fixedLimits()
	for i := range limits {
		o := unlimited()
		o.Sink.Concurrency = limits[(i+turn)%len(limits)]
		o.Sink.MinConcurrency = o.Sink.Concurrency
		err := saturate(ctx, s, halfCapacity, o, func(_ *faultproxy.Proxy, r *running) error {
			if err := await.Sleep(ctx, fixedWarmUp); err != nil {
				return err
			}
			w, err := r.traffic.during(ctx, fixedWindow)
			rates = append(rates, w.rate())
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return slices.Max(rates), nil
}

// halve lets eventd adapt its limit. It returns the traffic after the time for that, and
// all traffic since the capacity was halved.
func halve(ctx context.Context, s *apiserver) (settled, all window, err error) {
	err = saturate(ctx, s, wholeCapacity, unlimited(), func(p *faultproxy.Proxy, r *running) error {
		if err := await.Sleep(ctx, untilHalved); err != nil {
			return err
		}
		p.SetCapacity(halfCapacity)
		before, err := r.traffic.during(ctx, untilSettled)
		if err != nil {
			return err
		}
		settled, err = r.traffic.during(ctx, settledWindow)
		all = before.and(settled)
		return err
	})
	return settled, all, err
}

// saturate calls do while more is pending than the capacity allows.
func saturate(ctx context.Context, s *apiserver, capacity int, o pipeline.Options, do func(*faultproxy.Proxy, *running) error) error {
	return behindProxy(s.config(), func(p *faultproxy.Proxy) error {
		p.SetRules(faultproxy.Rule{Probability: 1, Fault: faultproxy.Slow(faultproxy.Fixed(serviceTime), nil)})
		p.SetCapacity(capacity)
		namespaces, err := s.namespaces(ctx, loadNamespaces)
		if err != nil {
			return err
		}
		r, err := startEventd(p.Config(), o)
		if err != nil {
			return err
		}
		defer r.stop()
		if err := spread(namespaces, saturating, fixedWarmUp/2).record(ctx, r.recorder); err != nil {
			return err
		}
		return do(p, r)
	})
}
