// Package faultproxy stands between a writer of Events and a kube-apiserver in
// tests, and makes go wrong what goes wrong between the two: answers that say
// no, answers that are lost after the write took effect, requests that are lost
// before it, writes that take effect when nobody expects them any more, delays,
// too little room, and an apiserver that is away.
//
//	proxy := faultproxy.New(t, testenv.Shared(t).Config(), seed)
//	proxy.SetRules(
//		faultproxy.Rule{Match: faultproxy.Match{Namespace: "stuck"}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang)},
//		faultproxy.Rule{Probability: 0.1, Fault: faultproxy.AfterWrite(faultproxy.ResetStream)},
//		faultproxy.Rule{Probability: 0.1, Fault: faultproxy.BeforeWrite(faultproxy.Status(503).RetryAfter(1))},
//	)
//	client := kubernetes.NewForConfigOrDie(proxy.Config())
//	...
//	proxy.Pause() // the apiserver is stopped
//	...
//	if err := proxy.Resume(); err != nil { ... }
//	...
//	if err := proxy.Quiet(ctx); err != nil { ... } // late writes have happened
//	t.Log(proxy.Record().Table())
//
// A fault says when it strikes, BeforeWrite, AfterWrite or LateWrite, and how the
// request then ends for its client: with an Answer (Status, StatusOf),
// ResetStream, ResetConnection or Hang. Slow and Delayed add latency, SetCapacity
// takes room away, Pause and Freeze take everything away.
//
// What it promises: only Event writes (POST, PUT and PATCH of events, in core/v1
// and in events.k8s.io/v1) meet faults; everything else passes as it is, watches
// included. A write that no rule strikes is handed on as it came, and is taken
// back when its client gives up, as on a direct connection. A write that is
// struck after it took effect did take effect: the client cannot take it back.
// Every write is in the Record, with what its client met and what the backend
// said. The proxy sends nothing twice.
//
// To the client it is an HTTPS server with a certificate of its own, for HTTP/2
// and HTTP/1.1; a client takes the latter if its configuration has the
// NextProtos "http/1.1" alone. Credentials pass as the client sends them, except
// that a client certificate of the backend's configuration is shown to the
// backend for every request that has no Authorization header. So a client with a
// token of its own keeps its own rights, and one without any has those of the
// certificate.
//
// # Repeating a run
//
// What happens to a write depends on the seed, on its key, on how many writes
// with that key came before it, and on the rules; not on the time, nor on writes
// with other keys. The key is the verb and the name, unless SetKey says
// otherwise. It is for the client to ask the same again: how often it writes an
// Event depends on what it merges and when it tries again, and two writes of one
// key that are under way together change places as they like. Names of Events
// that contain something random, such as the digest over a namespace that was
// made for one test, are other keys in every run; SetKey can leave that part out.
// A write that finds no room (Capacity) takes no turn.
//
// # Ownership and end
//
// A Proxy owns its listener, connections and goroutines; all of them end with
// Close, which New leaves to the test's cleanup. Close waits until nothing is on
// its way to the backend. All methods may be called from several goroutines.
package faultproxy
