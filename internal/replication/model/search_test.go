package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// result is what a search has found.
type result struct {
	states, steps, depth int
	histories            float64 // from the first state to one in which nothing can happen
	wrong                string  // the property that is broken, "" if none
	history              []action
}

func (r result) String() string {
	return fmt.Sprintf("%d states, %d steps, %.3g histories of up to %d steps", r.states, r.steps, r.histories, r.depth)
}

func (r result) trace() string {
	var b strings.Builder
	for i, a := range r.history {
		fmt.Fprintf(&b, "%3d %s\n", i+1, a)
	}
	return b.String() + "  → " + r.wrong
}

// node is a state that was found: by an action from another one.
type node struct {
	from   uint32
	by     action
	edges  uint32 // index of its first one
	parent uint32 // number of edges that lead to it
}

// searcher finds all states, breadth first. A state is known by a hash of 64 bits: with ten million
// states, the chance that two have the same is about 1 in 400,000.
type searcher struct {
	*world
	seed  maphash.Seed
	known map[uint64]uint32
	nodes []node
	edges []uint32
}

// search searches all states of a world, or up to a limit, and stops at the first that breaks a
// property. So the history that leads there is one of the shortest.
//
// Only properties that contain a text are looked at.
func search(w *world, only string, limit int) result {
	f := &searcher{world: w, seed: maphash.MakeSeed(), known: map[uint64]uint32{}}
	level := []state{w.first()}
	f.known[maphash.Comparable(f.seed, level[0])] = 0
	f.nodes = []node{{}}
	at, depth := uint32(0), 0
	var actions []action
	for ; len(level) > 0; depth++ {
		var next []state
		for i := range level {
			f.nodes[at].edges = uint32(len(f.edges))
			var needed bool
			actions, needed = w.next(&level[i], actions[:0])
			if !needed {
				w.wrong = ""
				if w.checkEnd(&level[i]); w.wrong != "" && strings.Contains(w.wrong, only) {
					return f.found(at, w.wrong)
				}
			}
			for _, a := range actions {
				s, wrong := w.apply(&level[i], a)
				to, isNew := f.add(&s, at, a)
				if wrong != "" && strings.Contains(wrong, only) {
					return f.found(to, wrong)
				}
				if isNew {
					next = append(next, s)
				}
			}
			at++
		}
		level = next
		if len(f.nodes) > limit {
			return result{states: len(f.nodes), steps: len(f.edges), depth: depth, wrong: fmt.Sprintf("more than %d states", limit)}
		}
	}
	return f.count()
}

// add adds a state, and the edge that leads to it.
func (f *searcher) add(s *state, from uint32, by action) (to uint32, isNew bool) {
	h := maphash.Comparable(f.seed, *s)
	to, ok := f.known[h]
	if !ok {
		to = uint32(len(f.nodes))
		f.known[h] = to
		f.nodes = append(f.nodes, node{from: from, by: by})
	}
	f.nodes[to].parent++
	f.edges = append(f.edges, to)
	return to, !ok
}

// found returns the history of a state that breaks a property.
func (f *searcher) found(at uint32, wrong string) result {
	r := result{states: len(f.nodes), steps: len(f.edges), wrong: wrong}
	for ; at != 0; at = f.nodes[at].from {
		r.history = append([]action{f.nodes[at].by}, r.history...)
	}
	r.depth = len(r.history)
	return r
}

// count counts the histories in topological order. If there is a cycle, not all states have a
// place in this order, and the protocol may go on for ever.
func (f *searcher) count() result {
	r := result{states: len(f.nodes), steps: len(f.edges)}
	paths, longest := make([]float64, len(f.nodes)), make([]int, len(f.nodes))
	order := []uint32{0}
	paths[0] = 1
	for i := 0; i < len(order); i++ {
		at := order[i]
		r.depth = max(r.depth, longest[at])
		edges := f.edges[f.nodes[at].edges:]
		if int(at)+1 < len(f.nodes) {
			edges = f.edges[f.nodes[at].edges:f.nodes[at+1].edges]
		}
		for _, to := range edges {
			paths[to] += paths[at]
			longest[to] = max(longest[to], longest[at]+1)
			if f.nodes[to].parent--; f.nodes[to].parent == 0 {
				order = append(order, to)
			}
		}
		if len(edges) == 0 {
			r.histories += paths[at]
		}
	}
	if len(order) < len(f.nodes) {
		r.wrong = fmt.Sprintf("%d states are part of a cycle or come after one", len(f.nodes)-len(order))
	}
	return r
}
