package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func all(string) bool { return true }

func TestRequestIsDecodedAsItWasEncoded(t *testing.T) {
	f := &Forwarded{
		Timeout: time.Second, Method: "POST", URI: "/a?b=c", Host: "h",
		User:   &user.DefaultInfo{Name: "Jörg\n", UID: "1", Groups: []string{"a", ""}, Extra: map[string][]string{"k": {"v", ""}}},
		Header: http.Header{"A": {"1", "2"}, "B": {""}}, Body: []byte("body"),
	}
	for _, body := range []string{"", "body"} {
		f.Body = []byte(body)
		buf, ok := AppendRequest([]byte("before"), 7, f, all)
		if !ok {
			t.Fatal("too long")
		}
		kind, id, payload, err := NewReader(bytes.NewReader(buf[len("before"):])).Next()
		if kind != Request || id != 7 || err != nil {
			t.Fatalf("kind %d, id %d, %v", kind, id, err)
		}
		got, err := DecodeRequest(payload)
		if err != nil {
			t.Fatal(err)
		}
		clear(payload) // it is not kept
		if diff := cmp.Diff(f, got); diff != "" {
			t.Errorf("-sent +got:\n%s", diff)
		}
	}
}

// Reports are kept for long, with the name of their user, and not with the rest of their request.
func TestNameOfAUserDoesNotKeepItsRequest(t *testing.T) {
	const requests, padding = 200, 16 << 10
	inUse := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	buf, _ := AppendRequest(nil, 1, &Forwarded{
		User: &user.DefaultInfo{Name: "caller"}, Header: http.Header{"User-Agent": {strings.Repeat("a", padding)}},
	}, all)
	before, names := inUse(), make([]string, requests)
	for i := range names {
		r, err := DecodeRequest(buf[headBytes:])
		if err != nil {
			t.Fatal(err)
		}
		names[i] = r.User.GetName()
	}
	if kept := (inUse() - before) / requests; kept > padding/2 {
		t.Errorf("%d bytes are kept with a name", kept)
	}
	runtime.KeepAlive(names)
}

// It would end the session.
func TestRequestThatIsTooLateHasNoTime(t *testing.T) {
	buf, _ := AppendRequest(nil, 1, &Forwarded{Timeout: -1, User: &user.DefaultInfo{Name: "a"}}, all)
	if got, err := DecodeRequest(buf[headBytes:]); err != nil || got.Timeout != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFrameThatIsTooLongIsNotSent(t *testing.T) {
	f := &Forwarded{User: &user.DefaultInfo{Name: "a"}}
	overhead, _ := AppendRequest(nil, 1, f, all)
	for more, want := range map[int]bool{0: true, 1: false} {
		f.Body = make([]byte, MaxBytes-len(overhead)+more)
		buf, ok := AppendRequest(nil, 1, f, all)
		if ok != want {
			t.Errorf("%d bytes: %v", len(buf), ok)
		}
		if _, _, _, err := NewReader(bytes.NewReader(buf)).Next(); (err == nil) != want {
			t.Errorf("%d bytes are read: %v", len(buf), err)
		}
	}
}

func TestFramesThatWaitAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := net.Pipe()
		w := NewWriter(own)
		ended, flushed := make(chan error, 1), make(chan struct{})
		go func() { ended <- w.Run() }()
		if _, ok := w.TryAdd([]byte("first")); !ok {
			t.Error("not added")
		}
		began := time.Now()
		go func() {
			w.Flush(false)
			close(flushed)
		}()
		synctest.Wait() // it is being written
		var last int64
		for range 3 {
			last, _ = w.TryAdd([]byte("more"))
			w.Flush(false) // waits for nothing
		}
		if w.Taken(last) || w.Taken(int64(len("first"))) || !w.Taken(0) {
			t.Error("what is written is not what was taken")
		}
		buf := make([]byte, 100)
		for i, want := range []string{"first", "moremoremore"} {
			n, err := other.Read(buf)
			if after := time.Since(began); string(buf[:n]) != want || after != time.Duration(i)*linger || err != nil {
				t.Errorf("read %q after %s, want %q: %v", buf[:n], after, want, err)
			}
			<-flushed // others write the rest
			synctest.Wait()
		}
		if !w.Taken(last) {
			t.Error("it is not taken")
		}
		if n, _ := other.Read(buf); n != headBytes || Kind(buf[4]) != Ping || time.Since(began) != Period {
			t.Errorf("%d bytes after %s", n, time.Since(began))
		}
		w.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, ok := w.TryAdd(nil); ok {
			t.Error("added after the end")
		}
	})
}

// running returns a writer that runs, the other end of its connection, and a buffer for any frame.
func running(t *testing.T) (w *Writer, other net.Conn, buf []byte) {
	own, other := net.Pipe()
	w = NewWriter(own)
	go func() { _ = w.Run() }()
	t.Cleanup(func() {
		w.Close()
		_ = other.Close()
	})
	return w, other, make([]byte, 2*MaxBytes)
}

// A frame lingers after a write only, and only while frames are few and not urgent.
func TestWhatLingers(t *testing.T) {
	const muchAfterHead = maxLingerBytes - headBytes
	for name, c := range map[string]struct {
		pause  time.Duration // after a write
		bytes  int           // of the frame after its head
		urgent bool
		want   time.Duration // from the write
	}{
		"at once":                  {bytes: 1, want: linger},
		"a little later":           {bytes: 1, pause: linger / 4, want: linger},
		"after linger":             {bytes: 1, pause: linger, want: linger},
		"at once, urgent":          {bytes: 1, urgent: true},
		"a little later, urgent":   {bytes: 1, urgent: true, pause: linger / 4, want: linger / 4},
		"at once, almost too much": {bytes: muchAfterHead - 1, want: linger},
		"at once, too much":        {bytes: muchAfterHead},
	} {
		for _, by := range []string{"its own goroutine", "Run"} {
			synctest.Test(t, func(t *testing.T) {
				w, other, buf := running(t)
				w.AddControl(Ping, 0)
				synctest.Wait() // it is being written
				began := time.Now()
				if by != "Run" {
					_, _ = other.Read(buf)
				}
				time.Sleep(c.pause)
				go func() { _ = w.AddAnswer(1, make([]byte, c.bytes-1), func() bool { return c.urgent }) }()
				synctest.Wait()
				if by == "Run" {
					_, _ = other.Read(buf)
				}
				n, err := other.Read(buf)
				if after := time.Since(began); n != headBytes+c.bytes || after != c.want || err != nil {
					t.Errorf("%s, by %s: %d bytes after %s, want %d after %s: %v", name, by, n, after, headBytes+c.bytes, c.want, err)
				}
			})
		}
	}
}

// What lingers is written with it.
func TestNothingLingersWithAnUrgentFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other, buf := running(t)
		began := time.Now()
		w.AddControl(Ping, 0)
		_, _ = other.Read(buf)
		w.AddControl(Cancel, 1) // lingers
		_, _ = w.TryAdd(make([]byte, headBytes))
		go w.Flush(true)
		if n, err := other.Read(buf); n != 2*headBytes || time.Since(began) > 0 || err != nil {
			t.Errorf("%d bytes after %s: %v", n, time.Since(began), err)
		}
		w.Flush(true) // nothing
		w.AddControl(Cancel, 2)
		if n, err := other.Read(buf); n != headBytes || time.Since(began) != linger || err != nil {
			t.Errorf("%d bytes after %s: %v", n, time.Since(began), err)
		}
	})
}

// Others are added to it during a write.
func TestUrgentFrameRemainsUrgent(t *testing.T) {
	for name, add := range map[string]func(*Writer){
		"an answer": func(w *Writer) { _ = w.AddAnswer(2, nil, func() bool { return false }) },
		"a request": func(w *Writer) {
			_, _ = w.TryAdd(make([]byte, headBytes+1))
			w.Flush(false)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, other, buf := running(t)
			began := time.Now()
			w.AddControl(Ping, 0)
			synctest.Wait() // it is being written
			_ = w.AddAnswer(1, nil, func() bool { return true })
			add(w)
			_, _ = other.Read(buf)
			if n, err := other.Read(buf); n != 2*(headBytes+1) || time.Since(began) > 0 || err != nil {
				t.Errorf("%s: %d bytes after %s: %v", name, n, time.Since(began), err)
			}
		})
	}
}

func TestFrameThatLingersNoMoreDuringAWriteIsWrittenAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other, buf := running(t)
		began := time.Now()
		_, _ = w.TryAdd([]byte("first"))
		go w.Flush(true)
		synctest.Wait() // it is being written
		w.AddControl(Cancel, 1)
		time.Sleep(2 * linger)
		synctest.Wait() // Run has found it
		_, _ = other.Read(buf)
		if n, err := other.Read(buf); n != headBytes || time.Since(began) != 2*linger || err != nil {
			t.Errorf("%d bytes after %s: %v", n, time.Since(began), err)
		}
	})
}

// The other end reads nothing.
func TestLittleWaitsToBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := net.Pipe()
		w := NewWriter(own)
		part := make([]byte, 16<<10)
		answered := make(chan error)
		answer := func() {
			go func() { answered <- w.AddAnswer(1, part, nil) }()
			synctest.Wait()
		}
		answer() // is being written
		size := 0
		for ; size < maxWaiting+MaxBytes; size += len(part) {
			if _, ok := w.TryAdd(part); !ok {
				break
			}
		}
		if size != maxWaiting {
			t.Errorf("%d bytes wait", size)
		}
		answer()
		w.AddControl(Cancel, 1) // always, since it is little
		if len(w.waiting) != size+headBytes {
			t.Errorf("%d bytes wait", len(w.waiting))
		}
		buf := make([]byte, 1<<20)
		_, _ = other.Read(buf)
		if err := <-answered; err != nil { // the first
			t.Error(err)
		}
		go w.Flush(true)
		synctest.Wait() // it is being written: there is space
		if err := <-answered; err != nil {
			t.Error(err)
		}
		_, _ = other.Read(buf)
		synctest.Wait() // it is written
		answer()
		for len(w.waiting) < maxWaiting {
			_, _ = w.TryAdd(part)
		}
		answer()
		w.Close()
		_ = own.Close()
		for range 2 {
			<-answered
		}
		if err := w.AddAnswer(1, part, nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestSilentConnectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := net.Pipe()
		defer other.Close()
		for name, call := range map[string]func([]byte) (int, error){"read": Limited{own}.Read, "write": Limited{own}.Write} {
			began := time.Now()
			if _, err := call(make([]byte, 1)); err == nil || time.Since(began) != Silence {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
	})
}

func TestWriterEndsWhenItsConnectionFails(t *testing.T) {
	own, other := net.Pipe()
	_ = other.Close()
	w := NewWriter(own)
	if _, ok := w.TryAdd([]byte("a")); !ok {
		t.Error("not added")
	}
	w.Flush(true)
	if err := w.Run(); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := w.AddAnswer(1, nil, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// The other end may send anything: it costs neither the process nor its memory.
func TestMalformedMessagesAreRefused(t *testing.T) {
	f := &Forwarded{
		Method: "POST", URI: "/", User: &user.DefaultInfo{Name: "a", Groups: []string{"b"}, Extra: map[string][]string{"k": {"v"}}},
		Header: http.Header{"A": {"1"}},
	}
	request, _ := AppendRequest(nil, 1, f, all)
	answer := AppendAnswerHead(nil, 201, f.Header)
	decodes := map[string]func([]byte) error{
		"request": func(data []byte) error { _, err := DecodeRequest(data); return err },
		"answer":  func(data []byte) error { _, _, _, err := DecodeAnswer(data); return err },
	}
	for name, message := range map[string][]byte{"request": request[headBytes:], "answer": answer} {
		for i := range message {
			if decodes[name](message[:i]) == nil {
				t.Errorf("%s: %d of %d bytes are accepted", name, i, len(message))
			}
			for b := range 256 {
				changed := bytes.Clone(message)
				changed[i] = byte(b)
				_ = decodes[name](changed) // may be another message
			}
		}
		// The head is longer by a byte, which is no part of it.
		longer := append(bytes.Clone(message), 0)
		binary.BigEndian.PutUint32(longer, uint32(len(message)-lengthBytes+1))
		if decodes[name](longer) == nil {
			t.Errorf("%s: the head has a rest", name)
		}
	}
	for name, data := range map[string][]byte{
		"informational": AppendAnswerHead(nil, 103, nil), "no code": AppendAnswerHead(nil, 1000, nil),
		"many headers": binary.AppendUvarint([]byte{0, 0, 0, 7, 200, 1}, 1<<30),
	} {
		if decodes["answer"](data) == nil {
			t.Errorf("answer: %s", name)
		}
	}
	many := binary.AppendUvarint([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 'a', 0}, 1<<50) // groups
	binary.BigEndian.PutUint32(many, uint32(len(many)-lengthBytes))
	if decodes["request"](many) == nil {
		t.Error("request: many groups")
	}
}

func FuzzFrames(f *testing.F) {
	request, _ := AppendRequest(nil, 1, &Forwarded{
		Method: "POST", URI: "/", User: &user.DefaultInfo{Name: "a", Groups: []string{"b"}}, Header: http.Header{"A": {"b"}}, Body: []byte("{}"),
	}, all)
	answer := AppendAnswerHead(Begin(nil, Answer, 1), 201, http.Header{"A": {"b"}})
	End(answer, 0)
	f.Add(request)
	f.Add(append(answer, request...))
	f.Add([]byte(strings.Repeat("\xff", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		frames := NewReader(bytes.NewReader(data))
		for {
			_, id, payload, err := frames.Next()
			if err != nil {
				return
			}
			if len(payload) > MaxBytes {
				t.Fatalf("%d bytes", len(payload))
			}
			if code, header, body, err := DecodeAnswer(payload); err == nil && fmt.Sprint(code, header, body) == "" {
				t.Fatal("nothing")
			}
			r, err := DecodeRequest(payload)
			if err != nil {
				continue
			}
			again, ok := AppendRequest(nil, id, r, all)
			if !ok {
				continue
			}
			got, err := DecodeRequest(again[headBytes:])
			if diff := cmp.Diff(r, got); diff != "" || err != nil {
				t.Fatalf("%v: %s", err, diff)
			}
		}
	})
}
