package app

import (
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// watchdogTolerance is how long leader work may continue after the Lease was lost
// before /livez fails. Normally it ends within milliseconds.
const watchdogTolerance = 10 * time.Second

func (p *process) livez() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader-election", p.elector.Watchdog(watchdogTolerance)))
	}
	return checks
}

func (p *process) readyz() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{healthz.PingHealthz, healthz.NewShutdownHealthz(p.shutdown.begun)}
	if p.elector != nil {
		checks = append(checks, healthz.NamedCheck("leader", p.standing.check))
	}
	if p.serving.ca != nil {
		checks = append(checks, healthz.NamedCheck("serving-certificate", p.serving.ca.check))
	}
	return checks
}
