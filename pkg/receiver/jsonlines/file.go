package jsonlines

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// handle is what is used of an *os.File.
type handle interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}

// file is a destination that others may rotate. Its own state is only a cache: prepare compares it with the file at the
// path, which others may have removed, renamed or written to.
type file struct {
	path string
	open func(path string) (handle, error)

	now  handle // nil while it is closed
	size int64  // of whole lines
	// synced is the size of which commit has returned.
	synced int64
}

func openFile(path string) (handle, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err // not a nil *os.File
	}
	return f, nil
}

func (f *file) prepare() error {
	if f.now != nil && !f.current() {
		f.drop()
	}
	if f.now != nil {
		return nil
	}
	return f.reopen()
}

// current reports whether the open file is still the one at the path, and as it was left.
func (f *file) current() bool {
	opened, err := f.now.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.path)
	return err == nil && os.SameFile(opened, named) && opened.Size() == f.size
}

// reopen opens the file, and ends a line that a crash has left incomplete. It does not cut it:
// programs that follow the file take a file that shrinks for a new one, and read all of it again.
func (f *file) reopen() error {
	opened, err := f.open(f.path)
	if err != nil {
		return err
	}
	size, err := endLine(opened)
	if err == nil {
		err = syncDirectory(filepath.Dir(f.path)) // it may be new
	}
	if err != nil {
		opened.Close()
		return err
	}
	f.now, f.size, f.synced = opened, size, size
	return nil
}

// endLine adds the newline that a file lacks, and returns its size.
func endLine(opened handle) (size int64, err error) {
	info, err := opened.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", info.Name())
	}
	if size = info.Size(); size == 0 {
		return 0, nil
	}
	last := make([]byte, 1)
	if _, err := opened.ReadAt(last, size-1); err != nil {
		return 0, err
	}
	if last[0] == '\n' {
		return size, nil
	}
	_, err = opened.Write([]byte{'\n'})
	return size + 1, err
}

// write adds lines, or nothing.
func (f *file) write(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := f.now.Write(lines); err != nil {
		return errors.Join(err, f.cut(f.size))
	}
	f.size += int64(len(lines))
	return nil
}

// commit syncs the file. What was written since the last time is written again after a failure,
// since the kernel may have discarded it and reports that only once.
func (f *file) commit() error {
	if f.size == f.synced {
		return nil
	}
	if f.now == nil {
		return errors.New("closed before a sync") // by cut
	}
	if err := f.now.Sync(); err != nil {
		err = errors.Join(fmt.Errorf("sync: %w", err), f.cut(f.synced))
		f.drop()
		return err
	}
	f.synced = f.size
	return nil
}

// cut removes what follows a size. If that fails, reopen ends the line.
func (f *file) cut(size int64) error {
	if err := f.now.Truncate(size); err != nil {
		f.drop()
		return err
	}
	f.size = size
	return nil
}

// drop closes the file. All that matters of it was synced, or is written again.
func (f *file) drop() {
	if f.now != nil {
		f.now.Close()
		f.now = nil
	}
}

func (f *file) close() error {
	f.drop()
	return nil
}

// syncDirectory makes names in a directory durable.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
