package observer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// usual returns a version such as kubelets write.
func usual(i int) Version {
	at := metav1.NewTime(time.Unix(1_700_000_000+int64(i), 0))
	pod := fmt.Sprintf("web-%d-7d4b9c6f5-%05d", i%40, i%1000)
	return Version{Observed: time.Unix(1_700_000_000, int64(i)), Event: &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%20), Name: fmt.Sprintf("%s.17c%013x", pod, i*7919), CreationTimestamp: at,
			UID: types.UID(fmt.Sprintf("%08x-8f53-4f0b-9b0e-%012x", rand.Uint32(), rand.Uint32())), ResourceVersion: fmt.Sprint(1_000_000 + i),
		},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: fmt.Sprint("team-", i%20), Name: pod,
			UID: types.UID(fmt.Sprintf("%08x-1f53-4f0b-9b0e-%012x", rand.Uint32(), i%1000)), ResourceVersion: fmt.Sprint(900_000 + i), FieldPath: "spec.containers{app}"},
		Reason: "BackOff", Message: fmt.Sprintf("Back-off restarting failed container app in pod %s_team-%d(%08x-1f53)", pod, i%20, rand.Uint32()),
		Source: corev1.EventSource{Component: "kubelet", Host: fmt.Sprint("node-", i%100)}, ReportingController: "kubelet", ReportingInstance: fmt.Sprint("node-", i%100),
		FirstTimestamp: at, LastTimestamp: at, Count: int32(i % 50), Type: corev1.EventTypeWarning,
	}}
}

func newCodecForTest(t testing.TB) *codec {
	t.Helper()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzABlockHasWhatWasSealed(f *testing.F) {
	c := newCodecForTest(f)
	f.Add("name", "message", int32(3), int64(5))
	f.Add("", "\xff\xfe", int32(-1), int64(0))
	f.Fuzz(func(t *testing.T, name, message string, count int32, at int64) {
		versions := []Version{usual(1), {Event: &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "5"}, Message: message, Count: count}, Observed: time.Unix(0, at)}, usual(2)}
		b, err := c.encode(7, versions)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := c.decode(b)
		if err != nil || len(decoded) != len(versions) {
			t.Fatalf("%d of %d versions: %v", len(decoded), len(versions), err)
		}
		for i, v := range decoded {
			if !equality.Semantic.DeepEqual(v.Event, versions[i].Event) || !v.Observed.Equal(versions[i].Observed) {
				t.Errorf("%v is now %v", versions[i], v)
			}
		}
	})
}

func FuzzADamagedBlockIsAnError(f *testing.F) {
	c := newCodecForTest(f)
	whole, err := c.encode(0, []Version{usual(1), usual(2)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole.data)
	f.Add(whole.data[:len(whole.data)-3])
	f.Add(c.encoder.EncodeAll([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		versions, err := c.decode(&block{times: make([]int64, 2), data: data})
		if err == nil && len(versions) != 2 {
			t.Errorf("%d versions and no error", len(versions))
		}
	})
}

// The limit counts what the buffer really takes, also of Events that are large and compress well.
func TestTheBufferTakesNoMoreMemoryThanItSays(t *testing.T) {
	for name, version := range map[string]func(int) Version{
		"usual": usual,
		"large": func(i int) Version {
			v := usual(i)
			v.Event.Message = strings.Repeat("large", 4_000)
			return v
		},
		"with many labels": func(i int) Version {
			v := usual(i)
			v.Event.Labels = make(map[string]string)
			for j := range 100 {
				v.Event.Labels[fmt.Sprint(i, j)] = "x"
			}
			return v
		},
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 1 << 19
			c := newCodecForTest(t)
			if _, err := c.encode(0, slices.Repeat([]Version{version(0)}, 256)); err != nil { // it keeps buffers
				t.Fatal(err)
			}
			before := heap()
			l := newSharedLog(Cursor{}, limit, sizes{blockVersions: 256, blockBytes: 1 << 16}, c)
			l.connected("1")
			r := &Reader{o: &Observer{log: l}}
			r.joined = true
			l.readers[r] = struct{}{}
			i := 0
			for ; l.buffer.first == 0 && i < 200_000; i++ {
				v := version(i)
				l.add(change{v.Event.ResourceVersion, v.Event}, v, 0)
				if err := l.compact(); err != nil {
					t.Fatal(err)
				}
				if l.buffer.bytes() > limit {
					t.Fatalf("%d bytes after %d versions", l.buffer.bytes(), i)
				}
			}
			took, says := heap()-before, l.buffer.bytes()
			t.Logf("%d versions: says %d bytes, takes %d", i, says, took)
			if took > says+says/8+64<<10 { // what the allocator rounds up to, and what the codec keeps
				t.Errorf("it takes %d bytes, and says %d", took, says)
			}
			runtime.KeepAlive(l)
			runtime.KeepAlive(c)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The number that docs/delivery.md and DefaultMaxBytes state, of versions such as kubelets write.
func TestTheBufferHasPlaceForAsManyVersionsAsItSays(t *testing.T) {
	const stated = 200_000
	var versions []Version
	for i := range defaultSizes.blockVersions {
		versions = append(versions, usual(i))
	}
	b, err := newCodecForTest(t).encode(0, versions)
	if err != nil {
		t.Fatal(err)
	}
	fits := DefaultMaxBytes / b.bytes() * int64(len(versions))
	t.Logf("%d bytes per version: %d", b.bytes()/int64(len(versions)), fits)
	if fits < stated {
		t.Errorf("%d versions fit into the buffer, not %d", fits, stated)
	}
}

// BenchmarkBuffering is what a version costs that waits for a slow reader, with the memory that
// 150,000 of them take.
func BenchmarkBuffering(b *testing.B) {
	const many = 150_000
	l := newSharedLog(Cursor{}, DefaultMaxBytes, defaultSizes, newCodecForTest(b))
	l.connected("1")
	r := &Reader{o: &Observer{log: l}}
	r.joined = true
	l.readers[r] = struct{}{}
	before, i := heap(), 0
	add := func() {
		v := usual(i)
		i++
		l.add(change{v.Event.ResourceVersion, v.Event}, v, 0)
		if err := l.compact(); err != nil {
			b.Fatal(err)
		}
	}
	for i < many {
		add()
	}
	took := float64(heap() - before)
	for b.Loop() {
		add()
	}
	b.ReportMetric(took/many, "B/version") // a loop resets what was reported before
	b.ReportMetric(took/(1<<20), "MiB/150000")
}
