// Package fairlru implements a cache of bounded weight, whose entries belong to groups, such
// as users. A full cache evicts the least recently used entry of the group with the most
// weight. So a group that adds without end, and has its share, replaces its own entries.
// With a single group the cache is an LRU.
package fairlru

import "github.com/eventd/eventd/internal/minheap"

// Cache is a bounded map of keys to values. Make it with New. It is not safe for
// use by several goroutines.
//
// Methods take O(1), Add and Remove O(log g) with g groups, amortized over all calls.
type Cache[K, G comparable, V any] struct {
	limit, weight int64
	onEvict       func(K, V)
	entries       map[K]*entry[K, G, V]
	groups        map[G]*group[K, G, V]
	heaviest      minheap.Heap[*group[K, G, V]]
	now           uint64 // counts uses
	// spare is the last entry that was removed, to be used again, or nil.
	spare *entry[K, G, V]
}

// entry is a link in the ring of its group, in the order of use, most recent first.
type entry[K, G comparable, V any] struct {
	prev, next *entry[K, G, V]
	group      *group[K, G, V]
	key        K
	value      V
	weight     int64
	used       uint64
}

// New returns a cache that evicts entries while their sum of weights exceeds the limit and
// there is more than one. onEvict, if not nil, is called for each evicted entry; it must not
// use the cache.
func New[K, G comparable, V any](limit int64, onEvict func(K, V)) *Cache[K, G, V] {
	return &Cache[K, G, V]{
		limit: limit, onEvict: onEvict,
		entries: make(map[K]*entry[K, G, V]), groups: make(map[G]*group[K, G, V]),
	}
}

// Len returns the number of entries.
func (c *Cache[K, G, V]) Len() int { return len(c.entries) }

// Get returns the value of a key, which counts as a use.
func (c *Cache[K, G, V]) Get(k K) (value V, ok bool) {
	if v := c.Use(k); v != nil {
		return *v, true
	}
	return value, false
}

// Use is Get of the value itself, nil if there is none. It is valid until the next Add or Remove.
func (c *Cache[K, G, V]) Use(k K) *V {
	e := c.entries[k]
	if e == nil {
		return nil
	}
	c.now++
	e.used = c.now
	e.group.moveToFront(e)
	return &e.value
}

// Peek returns the value of a key without counting as a use.
func (c *Cache[K, G, V]) Peek(k K) (value V, ok bool) {
	if e := c.entries[k]; e != nil {
		return e.value, true
	}
	return value, false
}

// Add sets the value, group and weight of a key, which counts as a use. While the limit is
// exceeded, it evicts the least recently used entry of the heaviest group; among groups of
// equal weight, the least recently used one. This may be the new entry, if it is heavier
// than any group.
func (c *Cache[K, G, V]) Add(k K, g G, v V, weight int64) {
	c.Remove(k)
	c.Insert(k, g, v, weight)
}

// Insert is Add of a key that does not exist. It returns the value itself, as Use does.
func (c *Cache[K, G, V]) Insert(k K, g G, v V, weight int64) *V {
	c.now++
	e := c.spare
	if c.spare = nil; e == nil {
		e = new(entry[K, G, V])
	}
	e.key, e.value, e.weight, e.used = k, v, weight, c.now
	c.entries[k] = e
	c.weight += weight
	of := c.groups[g]
	if of == nil {
		of = &group[K, G, V]{key: g}
		of.pushFront(e)
		c.groups[g] = of
	} else {
		of.pushFront(e)
	}
	c.heaviest.Fix(of)
	c.evictAboveLimit()
	return &e.value
}

// Weigh sets the weight of a key that exists, and evicts as Add does.
func (c *Cache[K, G, V]) Weigh(k K, weight int64) {
	e := c.entries[k]
	more := weight - e.weight
	e.weight = weight
	c.weight += more
	e.group.weight += more
	c.heaviest.Fix(e.group)
	c.evictAboveLimit()
}

// Remove removes a key, if it exists, without calling onEvict.
func (c *Cache[K, G, V]) Remove(k K) {
	if e := c.entries[k]; e != nil {
		c.remove(e)
	}
}

// Values returns a copy of all values, in no particular order.
func (c *Cache[K, G, V]) Values() []V {
	values := make([]V, 0, len(c.entries))
	for _, e := range c.entries {
		values = append(values, e.value)
	}
	return values
}

func (c *Cache[K, G, V]) evictAboveLimit() {
	for c.weight > c.limit && len(c.entries) > 1 {
		e := c.top().oldest()
		k, v := e.key, e.value
		c.remove(e)
		if c.onEvict != nil {
			c.onEvict(k, v)
		}
	}
}

// top returns the heaviest group. The heap may be outdated, but ranked is never later than the
// last use of the oldest entry. So the first group is correct once its ranked is current.
func (c *Cache[K, G, V]) top() *group[K, G, V] {
	for {
		g := c.heaviest.First()
		if g.ranked == g.oldest().used {
			return g
		}
		g.ranked = g.oldest().used
		c.heaviest.Fix(g)
	}
}

func (c *Cache[K, G, V]) remove(e *entry[K, G, V]) {
	g := e.group
	g.unlink(e)
	g.weight -= e.weight
	c.weight -= e.weight
	delete(c.entries, e.key)
	*e = entry[K, G, V]{}
	c.spare = e
	if g.newest == nil {
		c.heaviest.Remove(g)
		delete(c.groups, g.key)
		return
	}
	c.heaviest.Fix(g)
}
