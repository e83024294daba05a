package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// runner has the folder of the repository, and that of all that is made.
type runner struct{ root, cache string }

// compile compiles the tests, once for all versions.
func (r *runner) compile(ctx context.Context) error {
	compiled := map[string]bool{}
	for _, part := range suite {
		for _, t := range part.tests {
			if compiled[t.folder] {
				continue
			}
			compiled[t.folder] = true
			cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", r.binary(t.folder), "./"+t.folder)
			cmd.Dir, cmd.Env = r.root, append(os.Environ(), "GOGC=400") // compilers end soon
			if _, err := output(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) binary(folder string) string {
	return filepath.Join(r.cache, strings.ReplaceAll(folder, "/", "-")+".test")
}

// test runs a part of the suite against a control plane. The output is kept in a file.
func (r *runner) test(ctx context.Context, version, controlPlane string, part part) result {
	start := time.Now()
	res := result{version: version, part: part.name, log: filepath.Join(r.cache, version, part.name+".log")}
	var log []byte
	for _, t := range part.tests {
		names := strings.Fields(t.names)
		res.tests += len(names)
		cmd := exec.CommandContext(ctx, r.binary(t.folder), "-test.run=^("+strings.Join(names, "|")+")$", "-test.v", "-test.timeout=20m")
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		cmd.Dir, cmd.Env = filepath.Join(r.root, t.folder), append(os.Environ(), "EVENTD_CONTROLPLANE="+controlPlane)
		out, err := cmd.CombinedOutput()
		log = append(log, out...)
		failed := notPassed(names, out)
		if err != nil && len(failed) == 0 {
			failed = []string{fmt.Sprintf("%s: %v", t.folder, err)} // such as a goroutine that is left
		}
		res.failed = append(res.failed, failed...)
	}
	res.took = time.Since(start)
	err := os.MkdirAll(filepath.Dir(res.log), 0o755)
	if err == nil {
		err = os.WriteFile(res.log, log, 0o644)
	}
	if err != nil {
		res.failed = append(res.failed, err.Error())
	}
	return res
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) `)

// notPassed returns the tests that have not passed: those that were skipped or did not run, too.
func notPassed(names []string, output []byte) (missing []string) {
	has := map[string]bool{}
	for _, match := range passed.FindAllSubmatch(output, -1) {
		has[string(match[1])] = true
	}
	for _, name := range names {
		if !has[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
