package main

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

// side is one way to get a load written: it returns when nothing of it is left to
// be written.
type side func(context.Context, *rest.Config, load) (effort, error)

// takeTurns lets the sides write a load each, one after the other, turn by turn.
// Each turn begins with another side.
func takeTurns(ctx context.Context, s *apiserver, turns, occurrences int, over time.Duration, sides ...side) ([][]effort, error) {
	efforts := make([][]effort, len(sides))
	for turn := range turns {
		for i := range sides {
			i = (i + turn) % len(sides)
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return nil, err
			}
			e, err := sides[i](ctx, s.config(), spread(names, occurrences, over))
			if err != nil {
				return nil, err
			}
			efforts[i] = append(efforts[i], e)
		}
	}
	return efforts, nil
}
