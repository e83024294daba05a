package frame

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// maxWaiting is how many bytes may wait to be written: MaxBytes more, and no frame is added.
	maxWaiting = 256 << 10
	// linger is between two writes, so that those of many frames are few: for a process, to be
	// woken costs more than to handle a frame. Frames that are urgent do not wait for that, nor
	// do maxLingering bytes.
	linger       = 4 * time.Millisecond
	maxLingering = MaxBytes
)

// ErrClosed is the error of a writer that is closed.
var ErrClosed = errors.New("the session has ended")

// Writer writes frames. Whoever adds one writes all that wait, unless another goroutine does so, or
// the last write was less than linger ago: then Run writes them, together with what is added until
// then. So a single frame costs no switch of goroutines, many cost few writes, and nobody writes the
// frames of others without end. All methods but Run are safe for use by many goroutines.
type Writer struct {
	to  io.Writer
	due *time.Timer // of Run

	mu      sync.Mutex
	space   sync.Cond
	waiting []byte
	spare   []byte // nil while it is written
	added   int64  // bytes, ever
	taken   int64  // of them, to be written
	writing bool
	urgent  bool      // of what waits
	dueAt   time.Time // when due fires, zero if it has
	last    time.Time // of the last write
	err     error     // why it is closed, nil if it is not
}

// NewWriter returns a writer without frames. A write to the connection must have a limit.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, due: time.NewTimer(0)}
	w.due.Stop()
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

// AddAnswer adds a part of an answer when there is space. The part must be shorter than MaxBytes by
// 14 bytes. It is urgent unless another one follows soon.
func (w *Writer) AddAnswer(id uint64, last byte, part []byte, urgent bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.waiting) >= maxWaiting {
		w.space.Wait()
	}
	if w.err != nil {
		return w.err
	}
	w.add(Answer, id, []byte{last}, part)
	w.urgent = w.urgent || urgent
	w.write()
	return nil
}

// AddControl adds a frame without a payload even if there is no space. Run writes it.
func (w *Writer) AddControl(kind Kind, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.add(kind, id)
		w.schedule()
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
		w.due.Reset(0)
	}
}

// Flush writes what waits when it is due, at once if it is urgent.
func (w *Writer) Flush(urgent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.urgent = w.urgent || urgent
	w.write()
}

// write writes what waits if it is due, and leaves what is not to Run. The mutex must be held; others
// have it during the write.
func (w *Writer) write() {
	if w.writing || w.err != nil || len(w.waiting) == 0 {
		return
	}
	now := time.Now()
	if w.whenDue().After(now) {
		w.schedule()
		return
	}
	batch := w.waiting
	w.waiting, w.spare, w.taken = w.spare[:0], nil, w.added
	w.writing, w.urgent, w.last = true, false, now
	w.space.Broadcast()
	w.mu.Unlock()
	_, err := w.to.Write(batch)
	w.mu.Lock()
	w.writing, w.spare = false, batch
	if err != nil {
		w.close(err)
	}
	if len(w.waiting) > 0 {
		w.schedule()
	}
}

// whenDue returns when what waits is to be written.
func (w *Writer) whenDue() time.Time {
	if w.urgent || len(w.waiting) >= maxLingering {
		return w.last
	}
	return w.last.Add(linger)
}

// schedule has Run write what waits when it is due.
func (w *Writer) schedule() {
	at := w.whenDue()
	if w.err == nil && (w.dueAt.IsZero() || at.Before(w.dueAt)) {
		w.dueAt = at
		w.due.Reset(time.Until(at))
	}
}

// Run writes what others have left, and a Ping every Period, until the writer is closed or a
// write fails. It is called once.
func (w *Writer) Run() error {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-w.due.C:
			if err := w.writeDue(); err != nil {
				return err
			}
		case <-ticker.C:
			w.AddControl(Ping, 0)
		}
	}
}

func (w *Writer) writeDue() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dueAt = time.Time{}
	w.write()
	return w.err
}
