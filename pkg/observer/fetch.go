package observer

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/notify"
)

const (
	// A watch of a reader's own is closed when it has sent sizes.fetchBytes. So that what it has sent
	// is delivered, it is also closed when nothing more has come for fetchQuiet, or after fetchTime, and so that others
	// have their turn, when nothing has come for fetchFirst.
	fetchFirst = time.Second
	fetchQuiet = 200 * time.Millisecond
	fetchTime  = 2 * time.Second
	// maxFetches is how many readers may have a watch of their own at once, and a page counts as as many. After a
	// compaction all readers list, and hostile Events take ten times their size while they are decoded.
	maxFetches = 2
)

// fetchChanges reads the versions after position by a watch of the reader's own, until the shared
// log has what follows. It closes the watch when enough was read, so that the apiserver keeps
// nothing for a reader whose receiver is slow. If versions are gone, a list follows.
func (r *Reader) fetchChanges(ctx context.Context) error {
	if err := r.o.fetches.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer r.o.fetches.Release(1)
	if more, _ := r.wantsMore(); !more {
		return nil
	}
	l := r.o.log
	l.mu.Lock()
	position := r.position
	l.mu.Unlock()
	r.o.metrics.rereads.Inc()
	s, err := r.client.watch(ctx, position)
	if err == nil {
		defer s.stop()
		r.inList = false
		err = r.readChanges(s)
	}
	if isExpired(err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.list = &listing{floor: r.position, gap: true}
		return nil
	}
	return err
}

func (r *Reader) readChanges(s *stream) error {
	var enough <-chan time.Time
	quiet := time.NewTimer(fetchFirst)
	defer quiet.Stop()
	for bytes := int64(0); bytes < r.o.sizes.fetchBytes; {
		more, changed := r.wantsMore()
		if !more {
			return nil
		}
		select {
		case <-changed:
		case <-quiet.C:
			return nil
		case <-enough:
			return nil
		case <-s.ctx.Done():
			return nil
		case e, ok := <-s.watch.ResultChan():
			if !ok {
				return s.ended()
			}
			c, err := s.parse(e)
			switch {
			case err != nil && len(r.fetched) > 0:
				return nil // the next watch says so again
			case err != nil:
				return err
			case r.o.wentBack(s.ctx, c.rv, r.position):
				return nil
			case r.fetch(c):
				bytes += sizeOf(r.fetched[len(r.fetched)-1])
				quiet.Reset(fetchQuiet)
				if enough == nil {
					enough = time.After(fetchTime)
				}
			}
		}
	}
	return nil
}

// wantsMore reports whether the shared log does not have what follows yet. changed is closed when
// that may no longer be so.
func (r *Reader) wantsMore() (more bool, changed <-chan struct{}) {
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.epoch != l.epoch {
		return false, nil
	}
	before := l.beforeLocked(max(r.next, l.buffer.first))
	return newer(before, r.position), l.changes.Changed()
}

// fetch moves the position by a change, but not beyond what the shared log has. It returns true if a
// version was added to what is fetched.
func (r *Reader) fetch(c change) bool {
	l := r.o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.beforeLocked(max(r.next, l.buffer.first)); newer(c.rv, before) {
		r.position = newest(before, r.position)
		return false
	}
	if !newer(c.rv, r.position) {
		return false
	}
	r.position = c.rv
	if c.event != nil {
		r.fetchedLocked(Version{c.event, time.Now()})
	}
	return c.event != nil
}

// fetchedLocked adds a version to what is fetched.
func (r *Reader) fetchedLocked(v Version) {
	if r.own == 0 {
		r.oldest = v.Observed
	}
	r.fetched = append(r.fetched, v)
	r.own++
}

// fetchPage reads a page of the list. A page is read when the versions of the one before were
// returned, so the token may have expired by then.
func (r *Reader) fetchPage(ctx context.Context) error {
	if err := r.o.fetches.Acquire(ctx, maxFetches); err != nil {
		return context.Cause(ctx)
	}
	defer r.o.fetches.Release(maxFetches)
	before := r.o.log.point()
	token := r.list.token
	if token == "" {
		r.o.metrics.lists.Inc()
	}
	limit := max(r.o.sizes.page>>r.list.smaller, 1)
	page, err := r.client.list(ctx, limit, token)
	var versions []Version
	if err == nil {
		versions, err = r.pageOf(page) // without the lock, which the shared watch needs
	}
	l := r.o.log
	if err == nil && token == "" && !r.o.answered(ctx, page.ResourceVersion, before) {
		notify.Wake(l.recheck)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.list == nil || r.epoch != l.epoch:
		return nil
	case isExpired(err):
		return r.expiredLocked(err)
	case errors.Is(err, ErrPageTooLarge) && limit > 1:
		r.list.smaller++
		return nil
	case err != nil:
		return err
	}
	if token == "" {
		r.position = page.ResourceVersion
		r.joinLocked(l)
	}
	r.list.smaller = max(r.list.smaller-1, 0)
	r.list.expired = false
	r.inList = true
	for _, v := range versions {
		r.fetchedLocked(v)
	}
	r.pageLocked(page.Continue)
	return nil
}

// pageOf returns the versions of a page that are new to the reader. Its error is ErrPageTooLarge if
// they would take too much memory: in it, an Event with 100,000 labels has ten times its size.
func (r *Reader) pageOf(page *corev1.EventList) (versions []Version, err error) {
	position := r.position // the version of the list, unless this is its first page
	if r.list.token == "" {
		position = page.ResourceVersion
	}
	now, bytes := time.Now(), int64(0)
	for i := range page.Items {
		if rv := page.Items[i].ResourceVersion; !newer(rv, r.list.floor) || newer(rv, position) {
			continue
		}
		event := page.Items[i] // a copy: a pointer would keep the whole page
		slim(&event)
		versions = append(versions, Version{&event, now})
		bytes += sizeOf(versions[len(versions)-1])
	}
	if bytes > r.o.sizes.fetchBytes && len(versions) > 1 {
		return nil, ErrPageTooLarge
	}
	return versions, nil
}

// expiredLocked goes on with what is stored now. What is newer than the first page is left out, and
// comes by the watch from there. Without a token, the list begins anew. An apiserver that answers so
// again and again is not asked again at once.
func (r *Reader) expiredLocked(err error) error {
	again := r.list.expired
	r.list.token, r.list.expired = inconsistentToken(err), true
	if r.list.token == "" || again {
		return err
	}
	return nil
}

// pageLocked goes on to the next page, if there is one, and says what was missed.
func (r *Reader) pageLocked(token string) {
	if r.list.gap && (r.own > 0 || r.missed || r.notice.superseded > 0) {
		r.notice.gap, r.list.gap = true, false
		r.o.metrics.gaps.Inc()
	}
	if r.list.token = token; token != "" {
		return
	}
	r.list, r.missed = nil, false
	if r.own == 0 {
		r.notice.cursor = Cursor{r.epoch, r.position}
	}
}
