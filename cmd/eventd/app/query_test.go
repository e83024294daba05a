package app

import "testing"

// BenchmarkGather reads all metrics of a process once, as the query API does every 2 s, to know rates.
func BenchmarkGather(b *testing.B) {
	a := startAPIServer(b)
	o, err := optionsOf(a.flags("--history-bytes=8Mi")...)
	if err != nil {
		b.Fatal(err)
	}
	o.SecureServing.ServerCert.FixtureDirectory = certificates
	p, err := newProcess(b.Context(), o, a.config())
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
