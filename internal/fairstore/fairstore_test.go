package fairstore

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

func TestGroupThatFloodsReplacesItsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		quiet string // names of groups
		each  int    // records of a quiet group
		kept  int    // of these
	}{
		"others have less than a share":   {"abc", 20, 20},
		"others have a share":             {"abc", 25, 25},
		"others have more than a share":   {"a", 90, 50},
		"there are nearly as many groups": {"abcdefghi", 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(100 + groupSlots*len(test.quiet))
			key := uint64(0)
			add := func(group rune) {
				key++
				s.Add(spread(key), string(group), nil)
			}
			for range test.each {
				for _, g := range test.quiet {
					add(g)
				}
			}
			for range 10_000 {
				add('~')
			}
			for _, g := range test.quiet {
				if kept := s.Group(string(g)); kept != test.kept {
					t.Errorf("%c has %d records left, want %d", g, kept, test.kept)
				}
			}
			if !s.Has(spread(key)) || s.Len() != 100 {
				t.Errorf("%d records; the flood has its last one: %v", s.Len(), s.Has(spread(key)))
			}
		})
	}
}

// The fields of a slot share no bit, whatever is in them, and each takes the highest number that there
// can be of it.
func TestFieldsOfASlotAreApart(t *testing.T) {
	const (
		longest   = 2 << 20 // bytes of a record
		highestID = MaxLimit + longest/linkAt + chunkSlots
		mostGroup = MaxLimit / (1 + groupSlots)
	)
	if highestID >= 1<<24 || mostGroup >= hasMore {
		t.Errorf("slots up to %d, groups up to %d", highestID, mostGroup)
	}
	fields := []struct {
		set func(s *slot, v uint64)
		get func(s *slot) uint64
		max uint64
	}{
		{func(s *slot, v uint64) { s.setKey(v | ^keyMask) }, (*slot).key, keyMask},
		{func(s *slot, v uint64) { s.setPrev(slotID(v)) }, func(s *slot) uint64 { return uint64(s.prev()) }, 1<<24 - 1},
		{func(s *slot, v uint64) { s.setNext(slotID(v)) }, func(s *slot) uint64 { return uint64(s.next()) }, 1<<24 - 1},
		{func(s *slot, v uint64) { s.setGroup(uint32(v)) }, func(s *slot) uint64 { return uint64(s.group()) }, hasMore - 1},
		{func(s *slot, v uint64) { s.setLink(slotID(v)) }, func(s *slot) uint64 { return uint64(s.link()) }, 1<<24 - 1},
	}
	for i := range fields {
		for _, more := range []slotID{0, 1<<24 - 1} {
			s := &slot{}
			if more != 0 {
				s.setMore(more)
			}
			s.setPrev(5)
			fields[i].set(s, fields[i].max)
			for j, f := range fields {
				want := map[int]uint64{1: 5, len(fields) - 1: uint64(more)}[j]
				if j == i {
					want = f.max
				}
				if got := f.get(s); got != want {
					t.Errorf("after field %d was set: field %d is %x, want %x", i, j, got, want)
				}
			}
			if got := s.more(); more == 0 && got != 0 || more != 0 && got != more {
				t.Errorf("after field %d was set: %x more, want %x", i, got, more)
			}
		}
	}
}

// Only the highest 40 bits of a key count, also next to the border of two places in the index.
func TestLowestBitsOfAKeyDoNotCount(t *testing.T) {
	for _, limit := range []int{1, 7, 100, 1000} {
		s := New(limit)
		for home := range uint64(len(s.index)) {
			key, _ := bits.Div64(home, 0, uint64(len(s.index))) // the highest one of the place before, or the first one
			for i := range uint64(3) {
				s.Add(key+i, "ns", []byte{1})
				for _, same := range []uint64{(key + i) & keyMask, (key + i) | ^keyMask} {
					if !s.Has(same) {
						t.Fatalf("limit %d: %x is there, and %x is not", limit, key+i, same)
					}
				}
				if _, ok := s.Take((key + i) | ^keyMask); !ok || s.Len() != 0 {
					t.Fatalf("limit %d: of %x, %d records are left", limit, key+i, s.Len())
				}
			}
		}
	}
}

// A limit above the highest one is that, and each slot of a chunk is used, but the first of all.
func TestSlotsAreUsedUpToTheLimit(t *testing.T) {
	if s := New(2 * MaxLimit); s.limit != MaxLimit {
		t.Errorf("the limit is %d, want %d", s.limit, MaxLimit)
	}
	const chunks = 3
	s := New(chunks*chunkSlots - 1)
	for i := range uint64(chunks*chunkSlots - 1) {
		s.Add(spread(i), "ns", nil)
	}
	if s.Len() != chunks*chunkSlots-1 || len(s.chunks) != chunks || s.unused != 0 {
		t.Errorf("%d records in %d chunks, and slot %d is free", s.Len(), len(s.chunks), s.unused)
	}
	if n := s.Group("another"); n != 0 {
		t.Errorf("a group that is not there has %d records", n)
	}
}

// Each record is taken as it was added, whatever its length: of those that just fit into their slots,
// and those that just do not.
func TestRecordsAreTakenAsTheyWereAdded(t *testing.T) {
	const one, more = slotBytes - dataAt, linkAt
	if one != 34 || more != 45 {
		t.Fatalf("a slot has %d bytes, and further ones %d", one, more)
	}
	s := New(100)
	for length, slots := range map[int]int{
		0: 1, 1: 1, one - 1: 1, one: 1, one + 1: 2, more: 2, one + more - 4: 2, one + more - 3: 2, one + more - 2: 3, one + more: 3,
		one - 3 + 2*more: 3, one - 2 + 2*more: 4, one - 3 + 10*more: 11, one - 2 + 10*more: 12,
	} {
		record := bytes.Repeat([]byte{0xff}, length)
		s.Add(spread(1), "ns", []byte("beside it"))
		s.Add(spread(2), "ns", record)
		if s.used != 1+slots {
			t.Errorf("%d bytes take %d slots, want %d", length, s.used-1, slots)
		}
		got, ok := s.Take(spread(2))
		if !ok || !bytes.HasPrefix(got, record) || len(bytes.TrimRight(got, "\x00")) != length {
			t.Errorf("%d bytes are taken as %x", length, got)
		}
		if got, _ := s.Take(spread(1)); !bytes.HasPrefix(got, []byte("beside it\x00")) || s.used != 0 {
			t.Errorf("beside %d bytes: %q, and %d slots are left", length, got, s.used)
		}
	}
}

// spread makes keys of numbers, as a hash does.
func spread(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 }

// model is the same store as a slice.
type model struct {
	limit   int
	records []modelled // oldest first
	added   map[string]int
	now     int
}

type modelled struct {
	key    uint64
	group  string
	record []byte
}

func (r modelled) slots() int {
	if len(r.record) <= slotBytes-dataAt {
		return 1
	}
	rest := len(r.record) - (linkAt - dataAt)
	return 1 + (rest+linkAt-1)/linkAt
}

func (m *model) take(key uint64) (record []byte, ok bool) {
	i := slices.IndexFunc(m.records, func(r modelled) bool { return r.key == key })
	if i < 0 {
		return nil, false
	}
	record = m.records[i].record
	m.records = slices.Delete(m.records, i, i+1)
	return record, true
}

func (m *model) add(added modelled) {
	m.take(added.key)
	m.records = append(m.records, added)
	m.now++
	m.added[added.group] = m.now
	for {
		slots, all := map[string]int{}, -groupSlots
		for _, r := range m.records {
			if slots[r.group] == 0 {
				all += groupSlots
			}
			slots[r.group] += r.slots()
			all += r.slots()
		}
		if all <= m.limit || len(m.records) == 1 {
			return
		}
		heaviest := added.group
		for g, n := range slots {
			if n > slots[heaviest] || n == slots[heaviest] && m.added[g] < m.added[heaviest] {
				heaviest = g
			}
		}
		i := slices.IndexFunc(m.records, func(r modelled) bool { return r.group == heaviest })
		m.records = slices.Delete(m.records, i, i+1)
	}
}

// check fails unless the store has the records of the model, and nothing else.
func (m *model) check(t *testing.T, s *Store) {
	t.Helper()
	groups := map[string]int{}
	for _, r := range m.records {
		if groups[r.group]++; !s.Has(r.key) {
			t.Fatalf("%x is not there", r.key)
		}
	}
	for g, n := range groups {
		if got := s.Group(g); got != n {
			t.Fatalf("group %q has %d records, want %d", g, got, n)
		}
	}
	if s.Len() != len(m.records) || len(s.groups) != len(groups) || len(s.heaviest) != len(groups) {
		t.Fatalf("%d records of %d groups, want %d of %d", s.Len(), len(s.groups), len(m.records), len(groups))
	}
}

// FuzzStore compares the store with the model. Each operation is four bytes.
func FuzzStore(f *testing.F) {
	for seed := range byte(8) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		operations := make([]byte, 1200)
		for i := range operations {
			operations[i] = byte(rng.Uint32())
		}
		f.Add(1+10*seed, operations)
	}
	f.Fuzz(func(t *testing.T, limit byte, operations []byte) {
		s := New(max(1, int(limit)))
		m := &model{limit: max(1, int(limit)), added: map[string]int{}}
		for ; len(operations) >= 4; operations = operations[4:] {
			// Many keys have the same place in the index. The lowest 24 bits do not count.
			known := uint64(operations[0]%64)<<62 | uint64(operations[0]%64)<<24
			key := known | uint64(operations[2])
			if operations[3]%3 == 0 {
				got, ok := s.Take(key)
				want, wanted := m.take(known)
				if ok != wanted || !bytes.HasPrefix(got, want) || len(bytes.TrimRight(got[min(len(got), len(want)):], "\x00")) > 0 {
					t.Fatalf("record %x (%v), want %x (%v)", got, ok, want, wanted)
				}
			} else {
				record := bytes.Repeat([]byte{1 + operations[2]}, int(operations[2]))
				g := string('a' + rune(operations[1]%8))
				s.Add(key, g, record)
				m.add(modelled{known, g, record})
			}
			m.check(t, s)
		}
		used := 0
		for _, r := range m.records {
			used += r.slots()
			s.Take(r.key)
		}
		if s.Len() != 0 || s.used != 0 || len(s.groups) != 0 || slices.ContainsFunc(s.index, func(id number) bool { return id != number{} }) {
			t.Errorf("left %+v", s)
		}
		if len(s.byID) > 8 || slices.ContainsFunc(s.byID, func(g *group) bool { return g != nil }) {
			t.Errorf("8 groups have used %d IDs, and leave %v", len(s.byID), s.byID)
		}
		free := 0
		for id := s.unused; id != 0; id = s.slot(id).next() {
			free++
		}
		if want := len(s.chunks) * chunkSlots; want > 0 && free != want-1 {
			t.Errorf("%d of %d slots are free", free, want-1)
		}
	})
}

// The memory is that of the limit, whatever is added: short records, long ones, or one of each
// group.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 20_000
	for name, test := range map[string]struct {
		group  func(i int) string
		length int
		kept   int // at least
	}{
		"short records":          {func(int) string { return "ns" }, 34, limit},
		"long records":           {func(int) string { return "ns" }, 1000, limit / 23},
		"a group of each record": {func(i int) string { return fmt.Sprintf("%063d", i) }, 34, limit / (1 + groupSlots)},
	} {
		t.Run(name, func(t *testing.T) {
			before := heapBytes()
			s := New(limit)
			record := make([]byte, test.length)
			for i := range 3 * limit {
				s.Add(spread(uint64(i)), test.group(i), record)
			}
			took := heapBytes() - before
			t.Logf("%d records, %d KiB", s.Len(), took>>10)
			if most := int64(limit*BytesPerSlot + 64<<10); took > most || s.Len() < test.kept {
				t.Errorf("%d records take %d KiB, want at least %d in at most %d", s.Len(), took>>10, test.kept, most>>10)
			}
			runtime.KeepAlive(s)
		})
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkTakeAndAdd(b *testing.B) {
	const records = 100_000
	s := New(2 * records)
	record := make([]byte, 31)
	for i := range uint64(records) {
		s.Add(spread(i), fmt.Sprint("ns-", i%100), record)
	}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		s.Take(spread(i % records))
		s.Add(spread(i%records), "ns-1", record)
	}
}
