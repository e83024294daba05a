package process

import "sync"

// tailSize holds a panic of a server with a few hundred goroutines.
const tailSize = 64 << 10

// tail keeps at least the last tailSize bytes that are written to it, and at most
// twice as many.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (w *tail) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, data...)
	if len(w.buf) > 2*tailSize {
		w.buf = append([]byte(nil), w.buf[len(w.buf)-tailSize:]...)
	}
	return len(data), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}
