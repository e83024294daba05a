package trail

// list is a linked list of steps, newest first.
type list struct{ newest *step }

// links are the neighbours of a step in a list. A step that is in none has none.
type links struct {
	newer, older *step
	linked       bool
}

// moveToFront adds a step as the newest, or moves it there.
func (l *list) moveToFront(s *step, of func(*step) *links) {
	if l.newest == s {
		return
	}
	l.remove(s, of)
	if l.newest != nil {
		of(l.newest).newer = s
	}
	*of(s) = links{older: l.newest, linked: true}
	l.newest = s
}

// remove removes a step, if it is in the list.
func (l *list) remove(s *step, of func(*step) *links) {
	at := of(s)
	if !at.linked {
		return
	}
	if at.newer != nil {
		of(at.newer).older = at.older
	} else {
		l.newest = at.older
	}
	if at.older != nil {
		of(at.older).newer = at.newer
	}
	*at = links{}
}

func inAll(s *step) *links       { return &s.drops }
func inNamespace(s *step) *links { return &s.ownDrops }
