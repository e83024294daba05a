package history

import (
	"slices"

	"github.com/eventd/eventd/internal/eventsize"
)

// hit is a row that matches.
type hit struct {
	object, event, row int
	at                 rank
}

// block searches a block. It decodes only what it needs.
func (s *search) block(b *block) error {
	objects := s.objects(b)
	if len(objects) == 0 {
		return nil
	}
	v := s.c.view(b)
	defer v.release()
	if err := v.decode(objectsFrame); err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o int) bool { return !s.matchesObject(v, o) })
	if len(objects) == 0 {
		return nil
	}
	if err := v.decode(rowsFrame); err != nil {
		return err
	}
	hits := s.hits(v, objects)
	if len(hits) == 0 {
		return nil
	}
	if err := v.decode(textsFrame); err != nil {
		return err
	}
	return s.addHits(v, hits)
}

// objects returns the objects of a block that may match, and have Events that are wanted, from what is
// not compressed.
func (s *search) objects(b *block) (objects []int) {
	newest := b.last()
	for o, name := range b.names {
		if s.q.Object.Name != "" && name != s.name || s.q.Object.UID != "" && b.uids[o] != s.uid {
			continue
		}
		begin, end := b.eventsOf(o)
		if s.q.AllVersions || slices.ContainsFunc(b.events[begin:end], func(uid uidKey) bool { return s.wanted(uid, newest) }) {
			objects = append(objects, o)
		}
	}
	return objects
}

func (s *search) matchesObject(v *view, object int) bool {
	q := &s.q
	namespace := v.namespaces.at(object)
	return (q.Namespaces == nil || slices.Contains(q.Namespaces, string(namespace))) &&
		sameGroup(q.Object.Group, string(v.apiVersions.at(object))) && equalOrNone(q.Object.Kind, v.kinds.at(object)) && equalOrNone(q.Object.Namespace, v.objectNamespaces.at(object)) &&
		equalOrNone(q.Object.Name, v.objectNames.at(object)) &&
		(q.Object.UID == "" || s.exactUID && v.objectUIDs[object] == "" || v.objectUIDs[object] == string(q.Object.UID))
}

// hits returns the rows of objects that match and are wanted, newest first, and no more than can be in the
// result.
func (s *search) hits(v *view, objects []int) (hits []hit) {
	for _, o := range objects {
		begin, end := v.b.eventsOf(o)
		for e := begin; e < end; e++ {
			hits = s.eventHits(v, o, e, hits)
		}
	}
	slices.SortFunc(hits, func(a, b hit) int { return compareRanks(b.at, a.at) })
	if len(hits) > s.limit {
		hits = hits[:s.limit]
	}
	return hits
}

// eventHits appends the rows of an Event that match: one, if only the latest is wanted.
func (s *search) eventHits(v *view, object, event int, hits []hit) []hit {
	begin, end := v.b.rowsOf(event)
	first := len(hits)
	for row := begin; row < end; row++ {
		at := rank{v.times[row].happened(v.observed[row]), position{v.b.epoch, v.rvs[row]}}
		if !s.inTime(at.time) || !s.wanted(v.b.events[event], at) || !s.matchesRow(v, row) {
			continue
		}
		if len(hits) > first && !s.q.AllVersions {
			if hits[first].at.before(at) {
				hits[first] = hit{object, event, row, at}
			}
			continue
		}
		hits = append(hits, hit{object, event, row, at})
	}
	return hits
}

func (s *search) matchesRow(v *view, row int) bool {
	return equalOrNone(s.q.Reason, v.texts[columnReason].at(row)) &&
		equalOrNone(s.q.Type, v.texts[columnType].at(row)) && equalOrNone(s.q.Reporter, v.reporter(row))
}

func (s *search) addHits(v *view, hits []hit) error {
	for _, h := range hits {
		key := v.b.events[h.event]
		if !s.wanted(key, h.at) { // a later one of the block was added
			continue
		}
		version, err := v.version(h.object, h.event, h.row)
		if err != nil {
			return err
		}
		s.add(key, h.at, version, eventsize.Of(version.Event)+rowBytes)
	}
	return nil
}
