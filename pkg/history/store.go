package history

import (
	"slices"
	"time"
)

const (
	// maxRemoved is the number of namespaces of which it is known until when they were removed.
	maxRemoved = 1024
	// removedBytes is the size of an entry of one of them, of a namespace of at most maxText bytes.
	removedBytes = maxText + 128
)

// store has the sealed blocks. It is not safe for concurrent use.
type store struct {
	blocks []*block // in order of runs
	owners map[string]owned
	// bytes is the size of the blocks, and versions the number of versions in them.
	bytes, versions int64
	// lost is the end of the newest run of which something was removed, as a sequence number, and lostAt
	// the newest version that was.
	lost   int64
	lostAt position
	// removed is when the last version that was removed was observed, by owner of the block.
	removed map[string]int64
	// floor is that of all namespaces.
	floor int64
}

// owned is what a namespace has in blocks of its own.
type owned struct {
	bytes  int64
	blocks int
}

func newStore() store {
	return store{owners: make(map[string]owned), removed: make(map[string]int64)}
}

func (s *store) add(blocks []*block) {
	s.blocks = append(s.blocks, blocks...)
	for _, b := range blocks {
		s.count(b, 1)
	}
}

func (s *store) count(b *block, sign int) {
	s.bytes += int64(sign) * b.bytes()
	s.versions += int64(sign) * int64(b.rows)
	if b.owner == "" {
		return
	}
	o := s.owners[b.owner]
	o.bytes += int64(sign) * b.bytes()
	o.blocks += sign
	if s.owners[b.owner] = o; o.blocks == 0 {
		delete(s.owners, b.owner)
	}
}

// size is all that the store takes.
func (s *store) size() int64 { return s.bytes + int64(len(s.removed))*removedBytes }

// evict removes one block, and returns the number of its versions, or 0 if there is none.
func (s *store) evict(maxBytes int64) int {
	i := s.evictable(maxBytes)
	if i < 0 {
		return 0
	}
	b := s.blocks[i]
	if i == 0 { // as nearly always
		s.blocks[0] = nil
		s.blocks = s.blocks[1:]
	} else {
		s.blocks = slices.Delete(s.blocks, i, i+1)
	}
	s.count(b, -1)
	s.setLost(b.end, position{b.epoch, b.lastRV})
	s.setRemoved(b.owner, b.until)
	return b.rows
}

func (s *store) setLost(end int64, at position) {
	s.lost = max(s.lost, end)
	if s.lostAt.before(at) {
		s.lostAt = at
	}
}

// evictable returns the index of the block to remove: the oldest one of the namespace that has most, if
// that is more than an equal share. Blocks of several namespaces are one of those who share.
func (s *store) evictable(maxBytes int64) int {
	if len(s.blocks) == 0 {
		return -1
	}
	share := maxBytes / int64(1+len(s.owners))
	most, of := share, ""
	for namespace, o := range s.owners {
		if o.bytes > most || o.bytes == most && of != "" && namespace < of {
			most, of = o.bytes, namespace
		}
	}
	if of == "" {
		return 0
	}
	return slices.IndexFunc(s.blocks, func(b *block) bool { return b.owner == of })
}

func (s *store) setRemoved(owner string, until int64) {
	s.removed[owner] = max(s.removed[owner], until)
	if len(s.removed) <= maxRemoved {
		return
	}
	oldest := owner
	for namespace, at := range s.removed {
		if at < s.removed[oldest] {
			oldest = namespace
		}
	}
	s.floor = max(s.floor, s.removed[oldest])
	delete(s.removed, oldest)
}

// knownSince returns when the last version was observed that is no longer known of any of some
// namespaces, or of all if there are none. It is 0 if none was removed.
func (s *store) knownSince(namespaces []string) int64 {
	at := max(s.floor, s.removed[""])
	if namespaces == nil {
		for _, removed := range s.removed {
			at = max(at, removed)
		}
	}
	for _, namespace := range namespaces {
		at = max(at, s.removed[namespace])
	}
	return at
}

// oldest returns when the oldest version was observed. There must be a block.
func (s *store) oldest() time.Time {
	at := s.blocks[0].from
	for _, b := range s.blocks {
		if b.first != s.blocks[0].first {
			break
		}
		at = min(at, b.from)
	}
	return time.UnixMicro(at)
}

// runOf returns the blocks of the run that has a sequence number, which must be neither lost nor in
// the head.
func (s *store) runOf(seq int64) []*block {
	begin, _ := slices.BinarySearchFunc(s.blocks, seq, func(b *block, seq int64) int {
		if b.end <= seq {
			return -1
		}
		return 1
	})
	end := begin
	for end < len(s.blocks) && s.blocks[end].first == s.blocks[begin].first {
		end++
	}
	return slices.Clone(s.blocks[begin:end])
}
