// Package fairlru is a cache of bounded weight whose entries belong to groups,
// such as the users that caused them. When the cache is full, a group makes room
// for others only while it holds more than any of them: one that adds without end
// replaces its own entries once it holds an equal share. With a single group the
// cache is a plain LRU.
package fairlru

import "container/heap"

// Cache is a bounded map of keys to values. Make it with New. It is not safe for
// use by several goroutines.
//
// Each method takes O(1), except that adding and removing take O(log g) with g
// groups, amortized over all calls.
type Cache[K, G comparable, V any] struct {
	limit, weight int64
	onEvict       func(K, V)
	entries       map[K]*entry[K, G, V]
	groups        map[G]*group[K, G, V]
	heaviest      groupHeap[K, G, V]
	now           uint64 // counts uses
}

// entry is a link in the ring of its group, from the one used last to the one
// used first.
type entry[K, G comparable, V any] struct {
	prev, next *entry[K, G, V]
	group      *group[K, G, V]
	key        K
	value      V
	weight     int64
	used       uint64
}

// New returns a cache that evicts entries while they weigh more than the limit
// together, except for the last one. The function, if not nil, is told of each
// entry that is evicted; it must not use the cache.
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
	e := c.entries[k]
	if e == nil {
		return value, false
	}
	c.now++
	e.used = c.now
	e.group.moveToFront(e)
	return e.value, true
}

// Peek returns the value of a key without counting as a use.
func (c *Cache[K, G, V]) Peek(k K) (value V, ok bool) {
	if e := c.entries[k]; e != nil {
		return e.value, true
	}
	return value, false
}

// Add sets the value, group and weight of a key, which counts as a use, and
// evicts what is too much: the entry that was used least recently of the group
// that weighs most, or of those that weigh the same. This may be the entry itself,
// if it is heavier than any group.
func (c *Cache[K, G, V]) Add(k K, g G, v V, weight int64) {
	c.Remove(k)
	c.now++
	e := &entry[K, G, V]{key: k, value: v, weight: weight, used: c.now}
	c.entries[k] = e
	c.weight += weight
	of := c.groups[g]
	if of == nil {
		of = &group[K, G, V]{key: g}
		of.pushFront(e)
		c.groups[g] = of
		heap.Push(&c.heaviest, of)
	} else {
		of.pushFront(e)
		heap.Fix(&c.heaviest, of.index)
	}
	for c.weight > c.limit && len(c.entries) > 1 {
		c.evict()
	}
}

// Remove removes a key, if it is there, and tells nobody.
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

func (c *Cache[K, G, V]) evict() {
	e := c.heaviest.top().oldest()
	c.remove(e)
	if c.onEvict != nil {
		c.onEvict(e.key, e.value)
	}
}

func (c *Cache[K, G, V]) remove(e *entry[K, G, V]) {
	g := e.group
	g.unlink(e)
	g.weight -= e.weight
	c.weight -= e.weight
	delete(c.entries, e.key)
	if g.newest == nil {
		heap.Remove(&c.heaviest, g.index)
		delete(c.groups, g.key)
		return
	}
	heap.Fix(&c.heaviest, g.index)
}
