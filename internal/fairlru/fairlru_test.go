package fairlru

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// filled returns a cache with the keys 0 to n-1 of each group, added in turn.
func filled(limit int64, n int, groups ...string) *Cache[string, string, int] {
	c := New[string, string, int](limit, nil)
	for i := range n {
		for _, g := range groups {
			c.Add(fmt.Sprint(g, i), g, i, 1)
		}
	}
	return c
}

// held returns the indices of a group's entries.
func held(c *Cache[string, string, int], group string, n int) (indices []int) {
	for i := range n {
		if _, ok := c.Peek(fmt.Sprint(group, i)); ok {
			indices = append(indices, i)
		}
	}
	return indices
}

func TestGroupThatFloodsReplacesItsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		quiet []string
		each  int // entries of a quiet group
		kept  int // of these
	}{
		"others have less than a share":   {[]string{"a", "b", "c"}, 20, 20},
		"others have a share":             {[]string{"a", "b", "c"}, 25, 25},
		"others have more than a share":   {[]string{"a"}, 90, 50},
		"there are nearly as many groups": {[]string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := filled(100, test.each, test.quiet...)
			const flood = 10_000
			for i := range flood {
				c.Add(fmt.Sprint("flood", i), "flood", i, 1)
			}
			for _, g := range test.quiet {
				if got := held(c, g, test.each); len(got) != test.kept {
					t.Errorf("%s has %d entries left, want %d", g, len(got), test.kept)
				}
			}
			if c.Len() != 100 {
				t.Errorf("%d entries", c.Len())
			}
			if _, ok := c.Peek(fmt.Sprint("flood", flood-1)); !ok {
				t.Error("the flood does not have its last entry")
			}
		})
	}
}

// There are more groups than entries.
func TestGroupsThatHoldTheSameLoseTheLeastRecentlyUsed(t *testing.T) {
	c := New[int, int, string](4, nil)
	for k := range 4 {
		c.Add(k, k, "", 1)
	}
	c.Get(0)
	c.Peek(1) // does not count as a use
	c.Add(4, 4, "", 1)
	c.Add(5, 5, "", 1)
	for k, want := range []bool{true, false, false, true, true, true} {
		if _, ok := c.Peek(k); ok != want {
			t.Errorf("%d is there: %v, want %v", k, ok, want)
		}
	}
}

func TestWeightIsBoundedNotTheNumberOfEntries(t *testing.T) {
	c := New[string, string, int](100, nil)
	c.Add("heavy", "a", 0, 60)
	for i := range 40 {
		c.Add(fmt.Sprint("b", i), "b", i, 1)
	}
	c.Add("b40", "b", 40, 1)
	if _, ok := c.Peek("heavy"); ok || c.weight != 41 || c.Len() != 41 {
		t.Errorf("%d entries that weigh %d, the heavy one among them: %v", c.Len(), c.weight, ok)
	}
	c.Add("heavier than the limit", "c", 0, 101)
	if _, ok := c.Peek("heavier than the limit"); ok || c.Len() != 41 {
		t.Errorf("the heaviest is there: %v, beside %d", ok, c.Len())
	}
}

func TestOneEntryIsAlwaysKept(t *testing.T) {
	c := New[int, string, string](10, nil)
	c.Add(1, "a", "one", 100)
	if v, ok := c.Get(1); !ok || v != "one" {
		t.Error("the only entry is not there")
	}
	c.Add(2, "a", "two", 100)
	if _, ok := c.Peek(1); ok || c.Len() != 1 {
		t.Errorf("%d entries", c.Len())
	}
}

func TestAddReplacesValueGroupAndWeight(t *testing.T) {
	c := New[int, int](10, func(k, _ int) { t.Errorf("evicted %d", k) })
	c.Add(1, 1, 1, 7)
	c.Add(1, 2, 2, 8)
	if v, _ := c.Peek(1); v != 2 || c.Len() != 1 || c.weight != 8 || len(c.groups) != 1 || c.groups[2].weight != 8 {
		t.Errorf("value %d, %d entries that weigh %d, groups %v", v, c.Len(), c.weight, c.groups)
	}
	c.Remove(1)
	c.Remove(1)
	if c.Len() != 0 || c.weight != 0 || len(c.groups) != 0 || len(c.heaviest) != 0 {
		t.Errorf("left %+v", c)
	}
}

func TestWithOneGroupItIsAnLRU(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		size := 1 + rng.IntN(20)
		var got, want []int
		ours := New[int, int](int64(size), func(k, _ int) { got = append(got, k) })
		theirs, err := simplelru.NewLRU(size, func(k, _ int) { want = append(want, k) })
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			switch k := rng.IntN(40); rng.IntN(3) {
			case 0:
				if _, ok := ours.Get(k); ok != theirs.Contains(k) {
					t.Fatalf("seed %d: %d is there: %v", seed, k, ok)
				}
				theirs.Get(k)
			default:
				ours.Add(k, 0, i, 1)
				theirs.Add(k, i)
			}
		}
		if !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("seed %d: evicted %v, want %v", seed, got, want)
		}
	}
}

// model is the same cache as a slice.
type model struct {
	limit   int64
	entries []modelled // least recently used first
}

type modelled struct {
	key, group int
	weight     int64
}

func (m *model) index(k int) int {
	return slices.IndexFunc(m.entries, func(e modelled) bool { return e.key == k })
}

func (m *model) remove(k int) (e modelled, ok bool) {
	i := m.index(k)
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

func (m *model) add(added modelled) (evicted []int) {
	m.remove(added.key)
	m.entries = append(m.entries, added)
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
		for ; len(operations) >= 3; operations = operations[3:] {
			k, group, weight := int(operations[0]%64), int(operations[1]%8), int64(operations[2]%16)
			got = got[:0]
			var want []int
			switch operations[2] / 16 {
			case 0:
				c.Remove(k)
				m.remove(k)
			case 1, 2, 3, 4, 5, 6:
				c.Get(k)
				m.get(k)
			default:
				c.Add(k, group, k, weight)
				want = m.add(modelled{k, group, weight})
			}
			if !slices.Equal(got, want) || c.Len() != len(m.entries) {
				t.Fatalf("evicted %v of %d, want %v of %d", got, c.Len()+len(got), want, len(m.entries)+len(want))
			}
		}
		for _, e := range m.entries {
			if _, ok := c.Peek(e.key); !ok {
				t.Fatalf("%d is missing", e.key)
			}
		}
	})
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
