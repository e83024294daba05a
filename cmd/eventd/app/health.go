package app

import (
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// watchdogTolerance is how long the work of a leader may go on after the Lease
// could have been another's, before the process is held to be dead. It ends in
// a moment, unless something is very wrong.
const watchdogTolerance = 10 * time.Second

func (p *process) livez() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader-election", p.elector.Watchdog(watchdogTolerance)))
	}
	return checks
}

func (p *process) readyz() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz, healthz.NewShutdownHealthz(p.ending.begun)}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader", p.standing.check))
	}
	return checks
}
