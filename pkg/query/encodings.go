package query

import (
	"encoding/json"
	"sync"
)

const (
	// maxEncodedBytes limits what is kept of the items that tails have encoded: those of a second of a storm.
	maxEncodedBytes = 4 << 20
	// encodingBytes is about what an encoding takes beside the bytes of the item, and of what it is made from.
	encodingBytes = 1 << 10
)

// encodings are the newest items that tails have encoded, so that 50 tails that are up to date encode each item once.
// It is safe for concurrent use.
type encodings struct {
	mu    sync.Mutex
	of    map[any]*encoding
	order []any // of what is encoded, oldest first
	bytes int
}

// encoding is an item in JSON.
type encoding struct {
	once sync.Once
	data []byte
	err  error
}

func newEncodings() *encodings { return &encodings{of: make(map[any]*encoding)} }

// encode returns what item returns, in JSON. Its caller must not change it. key is, or has, a pointer to what
// item is made from, which nobody changes: the same key is the same item.
func (e *encodings) encode(key any, item func() any) ([]byte, error) {
	e.mu.Lock()
	one := e.of[key]
	if one == nil {
		one = &encoding{}
		e.of[key] = one
	}
	e.mu.Unlock()
	one.once.Do(func() {
		one.data, one.err = json.Marshal(item())
		e.charge(key, len(one.data))
	})
	return one.data, one.err
}

// charge counts an item that is encoded, and forgets the oldest ones above the limit.
func (e *encodings) charge(key any, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.order = append(e.order, key)
	for e.bytes += bytes + encodingBytes; e.bytes > maxEncodedBytes; e.order = e.order[1:] {
		e.bytes -= len(e.of[e.order[0]].data) + encodingBytes
		delete(e.of, e.order[0])
	}
}
