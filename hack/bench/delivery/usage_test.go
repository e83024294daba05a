package main

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestUsageIsReadFromProc(t *testing.T) {
	const stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 9 0 1000 1 2"
	got, err := parseUsage([]byte(stat), []byte("Name:\ta) b\nVmPeak:\t  900 kB\nVmHWM:\t    512 kB\n"))
	if want := (usage{3 * time.Second, 512 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := (usage{5 * time.Second, 7}).since(usage{3 * time.Second, 6}); got != (usage{2 * time.Second, 7}) {
		t.Errorf("since then: %+v", got)
	}
	for _, test := range [][2]string{{"", "VmHWM: 1 kB"}, {stat, ""}, {"42 (a) S 1 2 3 4 5 6 7 8 9 10 x y z", "VmHWM: 1 kB"}} {
		if got, err := parseUsage([]byte(test[0]), []byte(test[1])); err == nil {
			t.Errorf("%q has %+v", test, got)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	u, err := usageOf(os.Getpid())
	if err != nil || (u.peak > 1<<20) != (runtime.GOOS == "linux") {
		t.Errorf("%+v, %v", u, err)
	}
}
