package connection

import (
	"fmt"
	"io"
	"os"
)

// maxFileBytes limits a file of credentials. The CAs of all operating systems take 250 KB.
const maxFileBytes = 1 << 20

// file is a file that another process may replace, such as the kubelet in a projected volume. The
// zero value, with a path, has not been read. It is for one goroutine.
type file struct {
	path    string
	read    os.FileInfo // of the file as last read
	content []byte
}

// refresh reads the file if it has changed since the last time, and reports whether it has. After
// an error the content is the last one that could be read.
func (f *file) refresh() (changed bool, err error) {
	// Stat first: a write between Stat and the reading causes another read.
	info, err := os.Stat(f.path)
	if err != nil {
		return false, err
	}
	if f.read != nil && os.SameFile(f.read, info) && f.read.ModTime().Equal(info.ModTime()) && f.read.Size() == info.Size() {
		return false, nil
	}
	// Opening a named pipe would block.
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", f.path)
	}
	content, err := readLimited(f.path)
	if err != nil {
		return false, err
	}
	f.read, f.content = info, content
	return true, nil
}

func readLimited(path string) ([]byte, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	content, err := io.ReadAll(io.LimitReader(opened, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return content, nil
}
