package model

// kinds are all that can happen.
var kinds []kind

func init() { // since actions refer to kinds
	kinds = []kind{
		{"post", "", never, (*world).canPost, (*world).post},
		{"retry", "o", never, (*world).canRetry, (*world).retry},
		{"accept", "o", never, (*world).canAccept, (*world).accept},
		{"refuse", "se", never, (*world).canRefuse, (*world).refuse},
		{"merge", "pse", never, (*world).canMerge, (*world).merge},
		{"connect", "pp", always, (*world).canConnect, (*world).connect},
		{"batch", "pp", always, (*world).canBatch, (*world).batch},
		{"deliver", "pp", always, canDeliver, (*world).deliver},
		{"lose batch", "pp", never, func(w *world, s *state, a action) bool {
			return !w.Ordered && s.left.disconnects > 0 && canDeliver(w, s, a)
		}, (*world).loseBatch},
		{"ack", "pp", always, (*world).canAck, (*world).ack},
		{"disconnect", "pp", mustDisconnect, (*world).canDisconnect, (*world).disconnect},

		{"send", "pps", always, (*world).canSend, (*world).send},
		{"arrive", "pps", always, canArrive, (*world).arrive},
		{"answer", "pps", always, canAnswer, (*world).answer},
		{"lose answer", "pps", never, func(w *world, s *state, a action) bool {
			return s.left.lostAnswers > 0 && canAnswer(w, s, a)
		}, (*world).loseAnswer},
		{"lose request", "pps", never, func(w *world, s *state, a action) bool {
			return s.left.lostRequests > 0 && canArrive(w, s, a) && s.late == late{}
		}, (*world).loseRequest},
		{"arrive late", "", never, func(_ *world, s *state, _ action) bool { return s.late != late{} }, (*world).arriveLate},
		{"read", "pps", always, (*world).canRead, (*world).read},

		{"elect", "p", func(_ *world, s *state, _ action) bool { return !s.leads(s.leader) }, (*world).canElect, (*world).elect},
		{"hand", "pp", always, (*world).canHand, (*world).hand},
		{"release", "ppp", always, (*world).canRelease, (*world).release},

		{"start", "p", never, func(_ *world, s *state, a action) bool {
			p := &s.processes[a.a]
			return s.left.starts > 0 && !p.alive && !p.dead
		}, (*world).start},
		{"crash", "p", never, func(_ *world, s *state, a action) bool {
			return s.left.crashes > 0 && s.processes[a.a].alive
		}, (*world).crash},
		{"expire", "s", never, func(_ *world, s *state, a action) bool {
			return s.left.expiries > 0 && s.events[a.a].exists
		}, (*world).expire},
		{"others", "s", never, func(_ *world, s *state, a action) bool {
			return s.left.others > 0 && s.events[a.a].exists
		}, (*world).others},
		{"names", "s", never, func(_ *world, s *state, a action) bool {
			return s.left.names > 0 && s.events[a.a].totals != [maxClients]uint8{}
		}, (*world).names},
	}
}

func always(*world, *state, action) bool { return true }
func never(*world, *state, action) bool  { return false }

func canDeliver(_ *world, s *state, a action) bool {
	f := &s.processes[a.a].streams[a.b]
	return f.open && f.inFlight && s.processes[a.b].alive
}

func canArrive(_ *world, s *state, a action) bool { return s.counter(a).request.stage == sent }
func canAnswer(_ *world, s *state, a action) bool { return s.counter(a).request.stage > sent }
