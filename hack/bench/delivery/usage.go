package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has taken so far.
type usage struct {
	cpu  time.Duration // in user and in kernel mode
	peak int64         // of the resident memory, in bytes; 0 if it is not known
}

// clockTick is the unit of times in /proc (USER_HZ), on every architecture that Go supports.
const clockTick = time.Second / 100

// usageOf reads that of a running process. It is known on Linux only.
func usageOf(pid int) (usage, error) {
	if runtime.GOOS != "linux" {
		return usage{}, nil
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(stat, status)
}

// since is what was taken since then. The peak is that of the whole life.
func (u usage) since(before usage) usage { return usage{u.cpu - before.cpu, u.peak} }

// parseUsage parses /proc/PID/stat and /proc/PID/status.
func parseUsage(stat, status []byte) (u usage, err error) {
	// The name of the program ends with the last parenthesis. utime and stime are fields 14 and 15, and
	// the third one comes next.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("stat is %q", stat)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return usage{}, err
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			u.peak = kib << 10
			return u, nil
		}
	}
	return usage{}, fmt.Errorf("there is no VmHWM in %q", status)
}

// loadAverage is how many processes ran, or wanted to, in the last minute.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(content))[0]
}
