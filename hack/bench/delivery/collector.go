package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/eventd/eventd/test/process"
)

// collector is an OpenTelemetry collector, as one process, which watches Events.
type collector struct {
	config     string // the file
	kubeconfig string
	running    *process.Process
}

// The receivers, as their documentation has them.
const (
	k8sEvents  = "k8s_events: {auth_type: kubeConfig}"
	k8sObjects = "k8sobjects: {auth_type: kubeConfig, objects: [{name: events, mode: watch}]}"
)

// startCollector starts one with a receiver, and with or without the batch processor.
func startCollector(receiver string, batched bool) start {
	return func(_ context.Context, c *cluster, to ...*destination) (side, error) {
		config, err := c.file("collector.yaml", collectorConfig(receiver, batched, to[0].url()))
		if err != nil {
			return nil, err
		}
		s := &collector{config: config, kubeconfig: c.plane.Kubeconfig()}
		return s, s.start()
	}
}

// collectorConfig has one pipeline, and defaults otherwise.
func collectorConfig(receiver string, batched bool, endpoint string) string {
	processors, used := "", ""
	if batched {
		processors, used = "processors: {batch: {}}\n", ", processors: [batch]"
	}
	name, _, _ := strings.Cut(receiver, ":")
	return fmt.Sprintf(`receivers:
  %s
%sexporters:
  otlphttp: {endpoint: %q}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    logs: {receivers: [%s]%s, exporters: [otlphttp]}
`, receiver, processors, endpoint, name, used)
}

func (s *collector) start() (err error) {
	command := exec.Command(*collectorBinary, "--config=file:"+s.config)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	s.running, err = process.Start("the collector", "", command)
	return err
}

func (s *collector) usage() (usage, error) { return usageOf(s.running.PID()) }

func (s *collector) kill(context.Context) error {
	if s.running.Ended() {
		return s.running.Failure("ended by itself")
	}
	s.running.Kill()
	return s.start()
}

func (s *collector) end() { s.running.Kill() }
