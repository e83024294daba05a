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
	// linger is between the beginnings of two writes, so that those of many frames are few: to wake
	// the other process costs more than to handle a frame. Urgent frames do not wait for that,
	// nor do more than maxLingerBytes.
	linger         = 4 * time.Millisecond
	maxLingerBytes = MaxBytes
)

// ErrClosed is the error of a writer that is closed.
var ErrClosed = errors.New("the session has ended")

// Writer writes frames. Whoever flushes, or adds an answer, writes all that wait, unless another
// goroutine does so, or they linger: then Run writes them, together with what is added until then. So
// a single frame costs no switch of goroutines, many cost few writes, and nobody writes the frames of
// others without end. All methods but Run are safe for use by many goroutines.
type Writer struct {
	to    io.Writer
	timer *time.Timer // wakes Run

	mu      sync.Mutex
	space   sync.Cond
	waiting []byte
	spare   []byte // nil while it is written
	added   int64  // bytes, ever
	taken   int64  // of them, to be written
	writing bool
	urgent  bool      // something that waits is
	began   time.Time // the last write
	timerAt time.Time // what timer is set to, zero if it has fired
	err     error     // why it is closed, nil if it is not
}

// NewWriter returns a writer without frames. A write to the connection must have a limit.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, timer: time.NewTimer(0)}
	w.timer.Stop()
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

// AddAnswer adds a part of an answer when there is space, and writes it unless it lingers. The part
// must be shorter than MaxBytes by 14 bytes. ending is called before the last part is written, and
// reports whether it is urgent; it is nil for the parts before, which are of no use without the last.
// It is called with the writer's mutex held, so that the answer for which it is called last is added
// last. So it must take no lock that is held during a call of the writer.
func (w *Writer) AddAnswer(id uint64, part []byte, ending func() (urgent bool)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.waiting) >= maxWaiting {
		w.space.Wait()
	}
	last := byte(0)
	if ending != nil {
		last = 1
		w.urgent = ending() || w.urgent
	}
	if w.err != nil {
		return w.err
	}
	w.add(Answer, id, []byte{last}, part)
	w.write()
	return nil
}

// AddControl adds a frame without a payload even if there is no space. Run writes it, if nobody does
// before.
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
		w.timer.Reset(0)
	}
}

// Flush writes what waits, unless it lingers.
func (w *Writer) Flush(urgent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.urgent = w.urgent || urgent && len(w.waiting) > 0
	w.write()
}

// write writes what waits, unless it lingers. The mutex must be held; others have it during the write.
func (w *Writer) write() {
	if w.writing || w.err != nil || len(w.waiting) == 0 {
		return
	}
	now := time.Now()
	if w.lingersUntil().After(now) {
		w.schedule()
		return
	}
	batch := w.waiting
	w.waiting, w.spare, w.taken = w.spare[:0], nil, w.added
	w.writing, w.urgent, w.began = true, false, now
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

func (w *Writer) lingersUntil() time.Time {
	if w.urgent || len(w.waiting) >= maxLingerBytes {
		return w.began
	}
	return w.began.Add(linger)
}

// schedule has Run write what waits.
func (w *Writer) schedule() {
	at := w.lingersUntil()
	if w.err == nil && (w.timerAt.IsZero() || at.Before(w.timerAt)) {
		w.timerAt = at
		w.timer.Reset(time.Until(at))
	}
}

// Run writes what others have left, and a Ping every Period, until the writer is closed or a
// write fails. It is called once.
func (w *Writer) Run() error {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-w.timer.C:
			if err := w.onTimer(); err != nil {
				return err
			}
		case <-ticker.C:
			w.AddControl(Ping, 0)
		}
	}
}

func (w *Writer) onTimer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timerAt = time.Time{}
	w.write()
	return w.err
}
