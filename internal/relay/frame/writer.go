package frame

import (
	"errors"
	"io"
	"sync"
	"time"
)

// maxWaiting is how many bytes may wait to be written: MaxBytes more, and no frame is added.
const maxWaiting = 256 << 10

// ErrClosed is the error of a writer that is closed.
var ErrClosed = errors.New("the session has ended")

// Writer writes frames. Whoever flushes writes all that wait, unless another goroutine does so:
// then Run writes what was added meanwhile, together. So a single frame costs no switch of
// goroutines, and nobody writes the frames of others without end. All methods but Run are safe
// for use by many goroutines.
type Writer struct {
	to   io.Writer
	wake chan struct{} // has a value if Run has to write, or the writer is closed

	mu      sync.Mutex
	space   sync.Cond
	waiting []byte
	spare   []byte // nil while it is written
	added   int64  // bytes, ever
	taken   int64  // of them, to be written
	writing bool
	err     error // why it is closed, nil if it is not
}

// NewWriter returns a writer without frames. A write to the connection must have a limit.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, wake: make(chan struct{}, 1)}
	w.space.L = &w.mu
	return w
}

// TryAdd adds a frame, or returns false if the writer is closed, or too many bytes wait. It
// returns the position of the frame, for Taken. Flush writes it.
func (w *Writer) TryAdd(frame []byte) (position int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(w.waiting) >= maxWaiting {
		return 0, false
	}
	position = w.added
	w.waiting = append(w.waiting, frame...)
	w.added += int64(len(frame))
	return position, true
}

// AddAnswer adds a part of an answer when there is space, and writes it. The part must be
// shorter than MaxBytes by 14 bytes.
func (w *Writer) AddAnswer(id uint64, last byte, part []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.waiting) >= maxWaiting {
		w.space.Wait()
	}
	if w.err != nil {
		return w.err
	}
	w.add(Answer, id, []byte{last}, part)
	if w.write() {
		w.notify()
	}
	return nil
}

// AddControl adds a frame without a payload even if there is no space. Run writes it.
func (w *Writer) AddControl(kind Kind, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.add(kind, id)
		w.notify()
	}
}

func (w *Writer) add(kind Kind, id uint64, payload ...[]byte) {
	begin := len(w.waiting)
	w.waiting = Begin(w.waiting, kind, id)
	for _, part := range payload {
		w.waiting = append(w.waiting, part...)
	}
	End(w.waiting, begin)
	w.added += int64(len(w.waiting) - begin)
}

func (w *Writer) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Taken reports whether a part of the frame at a position may have been written.
func (w *Writer) Taken(position int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return position < w.taken
}

// Close ends Run. What waits is not written.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.close(ErrClosed)
}

func (w *Writer) close(err error) {
	if w.err == nil {
		w.err = err
		w.space.Broadcast()
		w.notify()
	}
}

// Flush writes what waits. It returns at once if another goroutine writes.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.write() {
		w.notify()
	}
}

// write writes what waits, unless another goroutine writes. It reports whether more waits by
// then. The mutex must be held; others have it during the write.
func (w *Writer) write() (more bool) {
	if w.writing || w.err != nil || len(w.waiting) == 0 {
		return false
	}
	batch := w.waiting
	w.waiting, w.spare, w.taken, w.writing = w.spare[:0], nil, w.added, true
	w.space.Broadcast()
	w.mu.Unlock()
	_, err := w.to.Write(batch)
	w.mu.Lock()
	w.writing, w.spare = false, batch
	if err != nil {
		w.close(err)
	}
	return len(w.waiting) > 0
}

// Run writes what others have left, and a Ping every Period, until the writer is closed or a
// write fails. It is called once.
func (w *Writer) Run() error {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-w.wake:
		case <-ticker.C:
			w.AddControl(Ping, 0)
			continue
		}
		if err := w.writeAll(); err != nil {
			return err
		}
	}
}

func (w *Writer) writeAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.write() {
	}
	return w.err
}
