package delivery

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
)

// checkAccounts checks the accounts of all processes while nothing is in motion.
func (m *model) checkAccounts() {
	m.t.Helper()
	for i, p := range m.all {
		var observed, want int64
		for _, s := range p.Snapshot() {
			if s.Observed != s.Settled()+s.Pending || s.Pending < 0 {
				m.t.Errorf("process %d: %+v", i, s)
			}
			if acked := p.acked[s.Name].Load(); s.Delivered > acked || !m.hanging && s.Delivered != acked {
				m.t.Errorf("process %d, %s: %d are delivered, %d were acknowledged", i, s.Name, s.Delivered, acked)
			}
			if acked := p.summaries[s.Name].Load(); s.Summaries.Delivered > acked || !m.hanging && s.Summaries.Delivered != acked || s.Summaries.Pending < 0 {
				m.t.Errorf("process %d, %s: %d summaries were acknowledged, %+v", i, s.Name, acked, s)
			}
			if n := p.summarized[s.Name].Load(); n > s.Filtered["throttled"] {
				m.t.Errorf("process %d, %s: summaries stand for %d versions, %+v", i, s.Name, n, s)
			}
			observed += s.Observed
		}
		p.mu.Lock()
		for _, r := range p.readers {
			want += r.Observed()
		}
		p.mu.Unlock()
		if observed != want {
			m.t.Errorf("process %d: %d are observed, want %d", i, observed, want)
		}
	}
}

// settle ends all faults, and waits until nothing is pending.
func (m *model) settle() {
	m.healed.Store(true)
	m.config.Receivers = slices.Clone(m.config.Receivers)
	for i := range m.config.Receivers {
		m.config.Receivers[i].Paused = false
	}
	for _, g := range m.targets {
		g.mu.Lock()
		g.odds = 0
		g.mu.Unlock()
	}
	m.replace(func(*modelProcess) {}, errHandover, false)
	m.apply(m.leader)
	time.Sleep(10 * time.Minute)
	m.settled = len(m.written)
	m.write()
	time.Sleep(time.Hour)
	synctest.Wait()
	m.checkAccounts()
	for _, s := range m.leader.Snapshot() {
		if s.Pending != 0 || s.Summaries.Pending != 0 || s.State != StateWaiting || s.Cursor.ResourceVersion != fmt.Sprint(m.history.head) {
			m.t.Errorf("an hour later: %+v", s)
		}
	}
	m.leader.cancel(context.Canceled)
	for _, p := range m.all {
		<-p.done
	}
}

// check checks what was delivered.
func (m *model) check() {
	final := make(map[string]*corev1.Event)
	for i, e := range m.written {
		if i >= m.settled || !isThrottled(e.UID) {
			final[string(e.UID)] = e
		}
	}
	for name, g := range m.targets {
		stored, ok := m.store.get(name)
		if e, err := decodeEntry(stored); !ok || err != nil || e.ResourceVersion != fmt.Sprint(m.history.head) {
			m.t.Errorf("the cursor of %s is %q (%v), the history ends at %d", name, stored, err, m.history.head)
		}
		begun := m.store.begun[name].ResourceVersion
		for _, r := range m.config.Receivers {
			if r.Name == name && r.From == v1alpha1.FromOldest {
				begun = ""
			}
		}
		for _, e := range final {
			since := observer.Cursor{ResourceVersion: begun}
			if !after(observer.Cursor{ResourceVersion: e.ResourceVersion}, since) {
				continue
			}
			if id := idOf(e); !g.seen[id] && !g.poison[id] && !m.routes.hasFiltered(name, id) {
				m.t.Errorf("%s did not get the final state %s (begun at %q)", name, id, begun)
			}
		}
		if most := m.allowed[name] + g.unanswered; m.plain && g.repeated > most {
			m.t.Errorf("%d repetitions at %s, at most %d are allowed", g.repeated, name, most)
		}
	}
}
