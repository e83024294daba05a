package main

import (
	"flag"
	"io"

	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// setUpLogging makes the kube-apiserver log to stderr: as its own flags say, or
// errors only if they leave the verbosity at 0. A kube-apiserver has no such
// quiet setting: the information and warnings of one start are some hundred
// lines, in which the one that matters to a failed test is hard to find.
func setUpLogging(config *logsapi.LoggingConfiguration, gate featuregate.FeatureGate) error {
	if config.Verbosity > 0 {
		return logsapi.ValidateAndApply(config, gate)
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	for name, value := range map[string]string{
		"logtostderr":                      "false",
		"legacy_stderr_threshold_behavior": "false",
		"stderrthreshold":                  "ERROR",
	} {
		if fs.Lookup(name) == nil {
			continue // klog until Kubernetes 1.35 has no legacy behavior
		}
		if err := fs.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(io.Discard)
	return nil
}
