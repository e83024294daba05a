package ha

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
)

// The only follower is full: clients wait for their writes, except those of deferred ones. When
// another follower holds everything, the leader is killed, and nothing is lost.
func TestFollowerThatIsFullConfirmsNothing(t *testing.T) {
	l := startLoadAt(t, many(), clusterOf(t), deferring...)
	leader := l.waitFollowed(replicas - 1)
	small, other := l.standby(leader, 0), l.standby(leader, 1)
	small.options.Flags = append(slices.Clone(small.options.Flags), "--max-held-bytes=256Ki")
	atOnce([]*member{small, other}, func(m *member) {
		m.signal(syscall.SIGTERM)
		m.waitEnd()
	})
	small.start()
	o := l.newDeferred(longrun.Either(5000, 500))
	o.postAll(o.all)
	await.Until(t, small.name+" is full", func() bool {
		return leader.read("eventd_sink_followers", "state=complete") == 0 && leader.read("eventd_sink_unreplicated_occurrences") > 0
	})
	full := time.Now()
	l.waitPosted(full.Add(longrun.Either(10*time.Second, 2*time.Second)))
	alone := time.Now()
	other.start()
	l.waitFollowed(1)
	await.Until(t, other.name+" holds everything", func() bool { return leader.read("eventd_sink_unreplicated_occurrences") == 0 })

	small.api.Cut() // it cannot adopt what it has no memory for
	_, end := kill(l, leader, 0)
	await.Until(t, other.name+" leads", func() bool {
		now, held := l.lease.holder()
		return held && now.address == other.peers.Address()
	})
	small.api.Mend()
	end()
	l.waitWrite()
	l.wantAdopted()
	outcome := l.end(t, true)
	l.wantAllStored(t, outcome, o)
	posts, _ := l.plain.ledger()
	maps.DeleteFunc(posts, func(_ string, made post) bool {
		return !made.of.isSingle() || made.began.Before(full) || made.acked.After(alone)
	})
	if len(posts) == 0 {
		t.Errorf("nothing was answered while %s was the only follower", small.name)
	}
	maps.DeleteFunc(posts, func(_ string, made post) bool { return made.code != http.StatusAccepted })
	if len(posts) > 0 {
		t.Errorf("%d were answered 202 though nobody else held them", len(posts))
	}
}

// A follower holds what the leader has pending until it is full. How many bytes that takes in
// the session and in memory is reported.
func TestFollowerHoldsUpToItsMaximum(t *testing.T) {
	most := longrun.Either(96<<20, 2<<20)
	f := startFleet(t, clusterOf(t), append(deferAll, fmt.Sprint("--max-held-bytes=", most), "--max-pending-series=200000", "--max-pending-bytes=1Gi")...)
	leader := f.waitFollowed(replicas - 1)
	follower := f.standby(leader, 0)
	f.standby(leader, 1).terminate()
	f.waitFollowed(1)
	f.service.remove(follower.name) // the leader's link carries the session only
	_, _, idle := follower.memory()
	o := f.newDeferred(most / 1024) // which a series takes at least
	perOccurrence := func(all []series) float64 {
		carried, recorded := leader.peers.Carried(), leader.read("eventd_occurrences_recorded_total")
		o.postAll(all)
		return float64(leader.peers.Carried()-carried) / (leader.read("eventd_occurrences_recorded_total") - recorded)
	}
	const measured, chunk = 500, 100
	first, again := perOccurrence(o.all[:measured]), perOccurrence(o.all[:measured])
	full := func() bool { return leader.read("eventd_sink_followers", "state=complete") == 0 }
	for all := range slices.Chunk(o.all[measured:], chunk) {
		o.postAll(all)
		// It takes all that a message has, or nothing: no message is to have more than this.
		await.Until(t, "the follower holds what is pending, or is full", func() bool {
			return full() || follower.read("eventd_held_occurrences") == leader.read("eventd_occurrences_pending")
		})
		if full() {
			break
		}
	}
	held, occurrences := follower.read("eventd_held_bytes"), follower.read("eventd_held_occurrences")
	peak, resident, own := follower.memory()
	longrun.Report(t, "a session takes %.0f bytes per occurrence of a new series, %.0f of a pending one; a follower that holds %v occurrences (%.1f of %d MiB) takes %d MiB, %d without the binary, and %d without them; at most %d MiB",
		first, again, occurrences, held/(1<<20), most>>20, resident, own, idle, peak)
	if !full() || held > float64(most) || held < .8*float64(most) {
		t.Errorf("full is %t, and %s holds %v bytes, may hold %d", full(), follower.name, held, most)
	}
	if *longrun.Full && own-idle > 2*most>>20 { // half of it is garbage
		t.Errorf("what %s holds takes %d MiB", follower.name, own-idle)
	}
}

// memory is the resident memory of a replica's process in MiB: the most so far, and now, also
// without the binary. It is 0 where it is not known.
func (m *member) memory() (peak, resident, own int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.process().PID()))
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &resident)
		_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &own)
	}
	return peak >> 10, resident >> 10, own >> 10
}
