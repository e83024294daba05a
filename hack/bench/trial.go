package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// trial measures whole pipelines against an apiserver, and gives one or several
// rows of the second table.
type trial struct {
	works []string // the names of its rows
	run   func(context.Context, *apiserver) ([]outcome, error)
}

// trialTimeout is several times what any of them takes.
const trialTimeout = 10 * time.Minute

// has tells whether a row has that in its name.
func (t trial) has(only string) bool {
	return slices.ContainsFunc(t.works, func(work string) bool { return strings.Contains(work, only) })
}

// try runs the trials that have rows with only in their names, and returns those
// rows. Without any, no apiserver is started.
func try(ctx context.Context, trials []trial, only string) (_ []outcome, err error) {
	trials = slices.DeleteFunc(trials, func(t trial) bool { return !t.has(only) })
	if len(trials) == 0 {
		return nil, nil
	}
	fmt.Fprintln(os.Stderr, "• starting a control plane")
	s, err := startAPIServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var all []outcome
	for _, t := range trials {
		fmt.Fprintf(os.Stderr, "• %s\n", strings.Join(t.works, "; "))
		outcomes, err := t.attempt(ctx, s)
		if err != nil {
			return matching(all, only), fmt.Errorf("%q: %w", t.works[0], err)
		}
		all = append(all, outcomes...)
	}
	return matching(all, only), nil
}

func matching(all []outcome, only string) []outcome {
	return slices.DeleteFunc(all, func(o outcome) bool { return !strings.Contains(o.work, only) })
}

func (t trial) attempt(ctx context.Context, s *apiserver) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	return t.run(ctx, s)
}

// againstAnAPIServer are all trials.
func againstAnAPIServer() []trial {
	trials := []trial{besideBareClient(), besideClientGo(), burstOf20000(), repeated(), halved(), hanging(), acknowledged(), throughStandby(), batched(), besideStoredWrite(), inController(), remembered()}
	for _, r := range reportings() {
		trials = append(trials, reportedBy(r))
	}
	return trials
}
