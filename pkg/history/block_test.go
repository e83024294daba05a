package history

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
)

// odd are strings that an encoding may get wrong.
var odd = []string{
	"", "a", "web-1", "web-1.0123456789abcdef", "web-1.0123456789ABCDEF", "web-2.18a1b2c3d4e5f607", "\x00", "\x01web-1", "\x02\x00", "no\xffUTF-8",
	"in web-1 with 5e0c1a52-7d0a-4c58-8b43-000000000001", "5e0c1a52-7d0a-4c58-8b43-000000000001", "5E0C1A52-7D0A-4C58-8B43-000000000001",
	"00000000-0000-0000-0000-000000000000", "5e0c1a52-7d0a-4c58-8b43-00000000000g", "default", "Pod", "ünï.codé",
}

// generator makes Events out of bytes.
type generator struct{ data []byte }

func (g *generator) byte() byte {
	if len(g.data) == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return b
}

func (g *generator) text() string {
	switch n := int(g.byte()); {
	case n < len(odd):
		return odd[n]
	case n > 250:
		return strings.Repeat(odd[n%len(odd)], 700)
	default:
		n = min(n%16, len(g.data))
		s := string(g.data[:n])
		g.data = g.data[n:]
		return s
	}
}

func (g *generator) time() time.Time {
	switch n := g.byte(); n % 5 {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(int64(g.byte()), 0)
	case 2:
		return time.Date(int(g.byte())*100-100, 1, 1, 0, 0, 0, 0, time.UTC)
	case 3:
		return time.Unix(math.MaxInt64>>n, int64(n))
	default:
		return time.Unix(1_790_000_000+int64(g.byte()), int64(g.byte())<<22)
	}
}

func (g *generator) texts() map[string]string {
	m := make(map[string]string)
	for range g.byte() % 4 {
		m[g.text()] = g.text()
	}
	return m
}

func (g *generator) reference() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: g.text(), Namespace: g.text(), Name: g.text(), UID: types.UID(g.text()), APIVersion: g.text(), ResourceVersion: g.text(), FieldPath: g.text()}
}

func (g *generator) event() *corev1.Event {
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: g.text(), Name: g.text(), UID: types.UID(g.text()), CreationTimestamp: metav1.Time{Time: g.time()}, Labels: g.texts(), Annotations: g.texts()},
		InvolvedObject: g.reference(), Reason: g.text(), Message: g.text(), Type: g.text(), Action: g.text(),
		Source:              corev1.EventSource{Component: g.text(), Host: g.text()},
		ReportingController: g.text(), ReportingInstance: g.text(),
		Count: int32(g.byte())<<25 - 5, FirstTimestamp: metav1.Time{Time: g.time()}, LastTimestamp: metav1.Time{Time: g.time()}, EventTime: metav1.MicroTime{Time: g.time()},
	}
	switch n := g.byte(); n % 3 {
	case 0:
		related := g.reference()
		e.Related = &related
	case 1:
		e.Series = &corev1.EventSeries{Count: int32(n) - 9, LastObservedTime: metav1.MicroTime{Time: g.time()}}
	}
	return e
}

// run returns rows with the Events that are in the data, many of which are alike.
func (g *generator) run() (rows []row) {
	rv, observed := uint64(1_000_000), time.UnixMicro(1_790_000_000_000_000)
	for i := range 40 {
		e := &corev1.Event{}
		if n := len(rows); n > 0 && g.byte()%2 == 0 {
			e = rows[int(g.byte())%n].Event.DeepCopy()
			e.Count++
			if g.byte()%2 == 0 {
				e.Message = g.text()
			}
		} else {
			e = g.event()
		}
		rv += uint64(g.byte()) - uint64(g.byte()%2)*1000
		observed = observed.Add(time.Duration(g.byte()) * time.Microsecond)
		e.ResourceVersion = strconv.FormatUint(rv, 10)
		r, _ := newRow(observer.Version{Event: e, Observed: observed}, g.byte()%2 == 0)
		r.seq = int64(1000 + i)
		rows = append(rows, r)
	}
	return rows
}

// decodeAll returns the rows of blocks, in the order in which they were added.
func decodeAll(t testing.TB, c *codec, blocks []*block) []row {
	t.Helper()
	rows, err := c.rows(blocks, 0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func wantRows(t testing.TB, got, want []row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g.seq != w.seq || g.rv != w.rv || g.listed != w.listed || !g.Observed.Equal(w.Observed) || !reflect.DeepEqual(g.Event, w.Event) {
			t.Fatalf("row %d is\n%+v, want\n%+v", i, g, w)
		}
	}
}

// FuzzEncode: what is sealed comes back, whatever it is.
func FuzzEncode(f *testing.F) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 200*seed)
		for i := range data {
			data[i] = byte(rng.Uint32()) >> (seed % 4)
		}
		f.Add(data)
	}
	c, err := newCodec(smallSizes, prometheus.NewCounter(prometheus.CounterOpts{}))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &generator{data}
		rows := g.run()
		wantRows(t, decodeAll(t, c, c.encode(rows)), rows)
	})
}

func TestVersionsOfAClusterComeBack(t *testing.T) {
	c, err := newCodec(defaultSizes(capacity), prometheus.NewCounter(prometheus.CounterOpts{}))
	if err != nil {
		t.Fatal(err)
	}
	of := newCluster(3)
	rows := make([]row, 2048)
	for i := range rows {
		version := of.next()
		if i == 0 {
			version.Event.EventTime = metav1.MicroTime{Time: time.UnixMicro(0)} // is a time, too
		}
		rows[i], _ = newRow(version, false)
		rows[i].seq = int64(i)
	}
	blocks := c.encode(rows)
	wantRows(t, decodeAll(t, c, blocks), rows)
	bytes := int64(0)
	for _, b := range blocks {
		bytes += b.bytes()
		if b.rows > c.sizes.blockVersions {
			t.Errorf("a block has %d rows", b.rows)
		}
		said := block{from: math.MaxInt64}
		for _, r := range decodeAll(t, c, []*block{b}) {
			said.from, said.until = min(said.from, r.Observed.UnixMicro()), max(said.until, r.Observed.UnixMicro())
			said.size += r.bytes
		}
		if b.from != said.from || b.until != said.until || b.size != said.size {
			t.Errorf("a block is from %d until %d, and has %d bytes; its rows are from %d until %d, and have %d", b.from, b.until, b.size, said.from, said.until, said.size)
		}
	}
	if each := bytes / int64(len(rows)); each > 140 {
		t.Errorf("%d bytes a version", each)
	}
}

// FuzzDecode: a block that is not what was encoded is an error, and no panic.
func FuzzDecode(f *testing.F) {
	c, sealed, plain := sealedForTest(f)
	f.Add(plain)
	f.Add(plain[:len(plain)/2])
	f.Add(binary.AppendUvarint(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, plain []byte) {
		b := *sealed
		b.data = c.encoder.EncodeAll(plain, nil)
		if rows, err := c.rows([]*block{&b}, 0, math.MaxInt64); err == nil && len(rows) != b.rows {
			t.Errorf("%d rows of %d", len(rows), b.rows)
		}
	})
}

// sealedForTest returns a block, and what it has before it is compressed.
func sealedForTest(t testing.TB) (*codec, *block, []byte) {
	t.Helper()
	c, err := newCodec(smallSizes, prometheus.NewCounter(prometheus.CounterOpts{}))
	if err != nil {
		t.Fatal(err)
	}
	g := generator{[]byte(strings.Repeat("\x04web-1\x02\x03abc", 200))}
	sealed := c.encode(g.run())[0]
	plain, err := c.decoder.DecodeAll(sealed.data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, sealed, plain
}

// Whatever byte of a block is wrong, all rows come, or an error.
func TestABlockWithAWrongByte(t *testing.T) {
	c, sealed, plain := sealedForTest(t)
	refused := 0
	for i := range plain {
		for _, wrong := range []byte{0, 1, 2, 0x7f, 0xff} {
			changed := slices.Clone(plain)
			changed[i] = wrong
			b := *sealed
			b.data = c.encoder.EncodeAll(changed, nil)
			if rows, err := c.rows([]*block{&b}, 0, math.MaxInt64); err != nil {
				refused++
			} else if len(rows) != b.rows {
				t.Fatalf("byte %d: %d rows of %d", i, len(rows), b.rows)
			}
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
}

// A version takes little, whatever its Event is: 1.5 MiB can be stored.
func TestALargeEventIsCut(t *testing.T) {
	large := strings.Repeat("ü", 700_000)
	reference := corev1.ObjectReference{Kind: large, Namespace: large, Name: large, UID: types.UID(large), APIVersion: large, ResourceVersion: large, FieldPath: large}
	many := make(map[string]string)
	for i := range 10_000 {
		many[fmt.Sprint(i)] = large[:100]
	}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: large, Name: large, UID: types.UID(large), Labels: many, Annotations: map[string]string{"a": large}, ResourceVersion: "7"},
		InvolvedObject: reference, Related: &reference, Reason: large, Message: large, Type: large, Action: large,
		Source: corev1.EventSource{Component: large, Host: large}, ReportingController: large, ReportingInstance: large,
	}
	r, ok := newRow(observer.Version{Event: e, Observed: time.Now()}, false)
	if !ok || r.bytes > 64<<10 {
		t.Errorf("%d bytes, %v", r.bytes, ok)
	}
	if got := r.Event.Message; len(got) != maxMessage || !strings.HasSuffix(got, "ü") || r.Event.Reason != large[:maxText] {
		t.Errorf("a message of %d bytes, a reason of %d", len(got), len(r.Event.Reason))
	}
	if got := text("x" + large); got != "x"+large[:maxText-2] {
		t.Errorf("cut within a character: %d bytes", len(got))
	}
}

func TestWhatIsKeptOfAnEvent(t *testing.T) {
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}}, Finalizers: []string{"a/b"},
		Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"eventd.io/counts": "{}", "team": "b"},
	}}
	r, _ := newRow(observer.Version{Event: e}, false)
	want := &corev1.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"team": "b"}}}
	if !reflect.DeepEqual(r.Event, want) {
		t.Errorf("%+v", r.Event)
	}
	if len(e.Annotations) != 2 {
		t.Error("the observed Event was changed")
	}
	for _, rv := range []string{"", "a", "-1", "18446744073709551616"} {
		if _, ok := newRow(observer.Version{Event: &corev1.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}}, false); ok {
			t.Errorf("the resourceVersion %q is kept", rv)
		}
	}
}
