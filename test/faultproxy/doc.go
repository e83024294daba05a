// Package faultproxy is a proxy between writers of Events and a kube-apiserver, for
// tests. It injects faults: refusals, answers that are lost after the write took
// effect, requests that are lost before it, writes that take effect after their
// answer, delays, limited capacity, and an apiserver that is away.
//
//	proxy := faultproxy.New(t, testenv.Shared(t).Config(), seed)
//	proxy.SetRules(
//		faultproxy.Rule{Match: faultproxy.Match{Namespace: "stuck"}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang)},
//		faultproxy.Rule{Probability: 0.1, Fault: faultproxy.AfterWrite(faultproxy.ResetStream)},
//	)
//	client := kubernetes.NewForConfigOrDie(proxy.Config())
//	...
//	proxy.Pause() // the apiserver is stopped
//	...
//	if err := proxy.Resume(); err != nil { ... }
//	...
//	if err := proxy.Quiet(ctx); err != nil { ... } // late writes have happened
//	proxy.Record() // has all writes
//
// The contract: only Event writes (POST, PUT and PATCH of events, in core/v1 and in
// events.k8s.io/v1) meet faults; everything else passes unchanged, watches included.
// A write that no rule strikes passes unchanged, and is cancelled when its client
// cancels, as on a direct connection. A client cannot cancel a write that is struck
// after it took effect. Every write is in the Record, with the fault, the answer of
// the backend and the answer to the client. The proxy sends nothing twice.
//
// To the client it is an HTTPS server with a certificate of its own, for HTTP/2.
// Credentials pass unchanged, except that the client certificate of the backend's
// configuration is used for every request without an Authorization header. So a client
// with a token keeps its own rights, and one without has those of the certificate.
//
// # Repeating a run
//
// What happens to a write depends on the seed, on its key, on how many writes
// with that key came before it, and on the rules; not on the time, nor on writes
// with other keys. The key is the verb and the name, unless SetKey sets
// another. To repeat a run, the client must make the same requests: how often it
// writes an Event depends on what it merges and when it retries, and the order of two
// concurrent writes of one key is random. Names of Events with a random part, such as
// a hash of a namespace that was made for one test, are other keys in every run;
// SetKey can omit that part. A write above the capacity is not counted.
//
// # Ownership and end
//
// A Proxy owns its listener, connections and goroutines; all of them end with
// Close, which New leaves to the test's cleanup. Close waits until nothing is on
// its way to the backend. All methods may be called from several goroutines.
package faultproxy
