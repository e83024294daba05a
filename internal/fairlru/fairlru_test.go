package fairlru

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGroupThatFloodsReplacesItsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		quiet string // names of groups
		each  int    // entries of a quiet group
		kept  int    // of these
	}{
		"others have less than a share":   {"abc", 20, 20},
		"others have a share":             {"abc", 25, 25},
		"others have more than a share":   {"a", 90, 50},
		"there are nearly as many groups": {"abcdefghi", 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := New[string, rune, int](100, nil)
			for i := range test.each {
				for _, g := range test.quiet {
					c.Add(fmt.Sprint(g, i), g, i, 1)
				}
			}
			const flood = 10_000
			for i := range flood {
				c.Add(fmt.Sprint("flood", i), '~', i, 1)
			}
			for _, g := range test.quiet {
				kept := 0
				for i := range test.each {
					if _, ok := c.Peek(fmt.Sprint(g, i)); ok {
						kept++
					}
				}
				if kept != test.kept {
					t.Errorf("%c has %d entries left, want %d", g, kept, test.kept)
				}
			}
			if _, ok := c.Peek(fmt.Sprint("flood", flood-1)); !ok || c.Len() != 100 {
				t.Errorf("%d entries; the flood has its last one: %v", c.Len(), ok)
			}
		})
	}
}

// model is the same cache as a slice.
type model struct {
	limit   int64
	entries []modelled // least recently used first
}

type modelled struct {
	key, group, value int
	weight            int64
}

func (m *model) remove(k int) (e modelled, ok bool) {
	i := slices.IndexFunc(m.entries, func(e modelled) bool { return e.key == k })
	if i < 0 {
		return e, false
	}
	e = m.entries[i]
	m.entries = slices.Delete(m.entries, i, i+1)
	return e, true
}

func (m *model) get(k int) {
	if e, ok := m.remove(k); ok {
		m.entries = append(m.entries, e)
	}
}

func (m *model) valueOf(k int) int {
	i := slices.IndexFunc(m.entries, func(e modelled) bool { return e.key == k })
	return m.entries[i].value
}

func (m *model) add(added modelled) (evicted []int) {
	m.remove(added.key)
	m.entries = append(m.entries, added)
	return m.evict()
}

// evict evicts while the weights are above the limit.
func (m *model) evict() (evicted []int) {
	for {
		var all, most int64
		held := map[int]int64{}
		for _, e := range m.entries {
			all += e.weight
			held[e.group] += e.weight
			most = max(most, held[e.group])
		}
		if all <= m.limit || len(m.entries) == 1 {
			return evicted
		}
		i := slices.IndexFunc(m.entries, func(e modelled) bool { return held[e.group] == most })
		evicted = append(evicted, m.entries[i].key)
		m.entries = slices.Delete(m.entries, i, i+1)
	}
}

// FuzzCache compares the cache with the model. Each operation is three bytes.
func FuzzCache(f *testing.F) {
	for seed := range byte(8) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		operations := make([]byte, 900)
		for i := range operations {
			operations[i] = byte(rng.Uint32())
		}
		f.Add(5+10*seed, operations)
	}
	f.Fuzz(func(t *testing.T, limit byte, operations []byte) {
		var got []int
		c := New[int, int](int64(limit), func(k, _ int) { got = append(got, k) })
		m := &model{limit: int64(limit)}
		for n := 0; len(operations) >= 3; operations = operations[3:] {
			k, group, weight := int(operations[0]%64), int(operations[1]%8), int64(operations[2]%16)
			got = got[:0]
			var want []int
			switch n++; operations[2] / 16 {
			case 0:
				c.Remove(k)
				m.remove(k)
			case 1, 2, 3:
				c.Get(k)
				m.get(k)
			case 4, 5:
				if v := c.Use(k); v != nil && *v != m.valueOf(k) {
					t.Fatalf("the value of %d is %d, want %d", k, *v, m.valueOf(k))
				}
				m.get(k)
			case 6:
				c.Peek(k) // does not count as a use
			case 7, 8:
				if i := slices.IndexFunc(m.entries, func(e modelled) bool { return e.key == k }); i >= 0 {
					c.Weigh(k, weight)
					m.entries[i].weight = weight
					want = m.evict()
				}
			default:
				c.Add(k, group, n, weight)
				want = m.add(modelled{k, group, n, weight})
			}
			if !slices.Equal(got, want) || c.Len() != len(m.entries) {
				t.Fatalf("evicted %v of %d, want %v of %d", got, c.Len()+len(got), want, len(m.entries)+len(want))
			}
		}
		var weight int64
		for _, e := range m.entries {
			if v, ok := c.Peek(e.key); !ok || v != e.value {
				t.Fatalf("the value of %d is %d, want %d", e.key, v, e.value)
			}
			weight += e.weight
		}
		if c.weight != weight {
			t.Errorf("the weight is %d, want %d", c.weight, weight)
		}
		for _, e := range m.entries {
			c.Remove(e.key)
		}
		if c.Len() != 0 || c.weight != 0 || len(c.groups) != 0 || c.heaviest.Len() != 0 {
			t.Errorf("left %+v", c)
		}
	})
}

// What is changed through a pointer is in the cache, and a full cache adds without allocating: in the memory of what
// it has evicted, of which nothing is left.
func TestMemoryOfTheEvictedIsUsedAgain(t *testing.T) {
	const limit = 100
	c := New[int, int, [2]int](limit, func(k int, v [2]int) {
		if v != [2]int{k, -k} {
			t.Errorf("evicted %v of %d", v, k)
		}
	})
	next := 0
	add := func() {
		c.Add(next, 0, [2]int{next}, 1)
		c.Use(next)[1] = -next
		next++
	}
	for range limit {
		add()
	}
	if n := testing.AllocsPerRun(1000, add); n != 0 {
		t.Errorf("%v allocations for each", n)
	}
	if c.Use(0) != nil || c.spare.value != [2]int{} || c.spare.group != nil {
		t.Errorf("left %v, and %+v", c.Use(0), c.spare)
	}
}

func BenchmarkAddToFull(b *testing.B) {
	for _, groups := range []int{1, 4096, 8192} {
		b.Run(fmt.Sprint(groups, " groups"), func(b *testing.B) {
			c := New[int, int, int](4096, nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Add(i, i%groups, i, 1)
			}
		})
	}
}
