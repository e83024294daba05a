//go:build unix

package jsonlines

import (
	"io"
	"os"
	"syscall"
)

// duplicateStdout returns stdout as a file of its own, which can be closed. If nobody reads it any
// more, its writes fail; one to file descriptor 1 would end the process by SIGPIPE (os/signal).
func duplicateStdout() (io.WriteCloser, error) {
	stdout, err := os.Stdout.SyscallConn()
	if err != nil {
		return nil, err
	}
	var duplicate int
	var failed error
	err = stdout.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if duplicate, failed = syscall.Dup(int(fd)); failed == nil {
			syscall.CloseOnExec(duplicate)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(duplicate), "stdout"), nil
}
