package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// dataDirEntries is everything that this program puts into a data directory,
// and so everything that it ever removes from one.
var dataDirEntries = []string{"etcd", "pki", "pki.new", "admin.kubeconfig", "lock"}

// dataDir is the directory of all state. It is locked for as long as the
// process lives; the lock goes with the process, however that ends.
type dataDir struct {
	dir       string
	temporary bool
	lock      *os.File

	// alsoRemove are files elsewhere that are of no use without the directory.
	alsoRemove []string

	once     sync.Once
	closeErr error
}

// openDataDir makes and locks the directory. An empty name makes a temporary
// one, which close removes.
func openDataDir(name string) (*dataDir, error) {
	d := &dataDir{temporary: name == ""}
	var err error
	if d.temporary {
		d.dir, err = os.MkdirTemp("", "controlplane-")
	} else if d.dir, err = filepath.Abs(name); err == nil {
		err = os.MkdirAll(d.dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	// Two etcd members in one directory would wait for each other for ever.
	d.lock, err = os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = d.lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another control plane", d.dir)
		}
		return nil, fmt.Errorf("locking data directory %s: %w", d.dir, err)
	}
	return d, nil
}

func (d *dataDir) path(name string) string { return filepath.Join(d.dir, name) }

// close removes a temporary directory, and another one if remove says so. It does not release the lock: the
// servers may have been abandoned rather than stopped, and then they write to
// the directory until the process ends.
func (d *dataDir) close(remove bool) error {
	d.once.Do(func() {
		if d.temporary || remove {
			d.closeErr = d.remove()
		}
	})
	return d.closeErr
}

// remove takes away what this program has made, and the directory itself if
// nothing else is in it. A directory that was named by mistake loses nothing.
func (d *dataDir) remove() error {
	var errs []error
	for _, file := range d.alsoRemove {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, name := range dataDirEntries {
		errs = append(errs, removeAll(d.path(name)))
	}
	err := os.Remove(d.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeAll removes a folder in which an abandoned server may be making files.
func removeAll(path string) error {
	var err error
	for range 10 {
		if err = os.RemoveAll(path); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	return err
}
