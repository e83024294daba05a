package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDataDir makes the directory of all state, and locks it for as long as the process
// lives; the lock goes with the process, however that ends. Two etcd members in one
// directory would wait for each other for ever.
func lockDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := syscall.Open(filepath.Join(dir, "lock"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err == nil {
		err = syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("data directory %s is in use by another control plane", dir)
	}
	return err
}

// removeDataDir removes a directory in which an abandoned server may be making files.
func removeDataDir(dir string) (err error) {
	for range 10 {
		if err = os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	return err
}
