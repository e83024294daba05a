package faultproxy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// dice is where chance comes from. A generator is made for each request, from
// the seed, the request's key and its number under that key, so that no request
// depends on what happens to those of other keys.
type dice struct {
	seed uint64

	mu     sync.Mutex
	key    func(Request) string
	thrown map[string]uint64
}

func newDice(seed uint64) *dice {
	return &dice{seed: seed, key: verbAndName, thrown: map[string]uint64{}}
}

func verbAndName(r Request) string { return string(r.Verb) + " " + r.Name }

// SetKey replaces the verb and the name as that by which requests are numbered
// and decided on. It is to be called before the first request.
func (p *Proxy) SetKey(key func(Request) string) {
	p.dice.mu.Lock()
	defer p.dice.mu.Unlock()
	p.dice.key = key
}

// throw returns the number of this request, from 1, and its generator.
func (d *dice) throw(r Request) (uint64, *rand.Rand) {
	key := d.keyOf(r)
	d.mu.Lock()
	d.thrown[key]++
	number := d.thrown[key]
	d.mu.Unlock()
	return number, generator(d.seed, key, number)
}

func (d *dice) keyOf(r Request) string {
	d.mu.Lock()
	key := d.key
	d.mu.Unlock()
	return key(r)
}

// generator hashes, so that neighbouring seeds and numbers have nothing in common.
func generator(seed uint64, key string, number uint64) *rand.Rand {
	input := binary.BigEndian.AppendUint64(nil, seed)
	input = binary.BigEndian.AppendUint64(input, number)
	return rand.New(rand.NewChaCha8(sha256.Sum256(append(input, key...))))
}
