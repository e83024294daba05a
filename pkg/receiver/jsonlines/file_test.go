package jsonlines

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// What rotates files renames them, or removes them, at any time.
func TestFileThatIsRenamedIsBegunAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path})
	for i, rotate := range []func(){
		func() { must(t, os.Rename(path, path+".0")) },
		func() { must(t, os.Rename(path, path+".1")); must(t, os.WriteFile(path, nil, 0o640)) }, // logrotate with "create"
		func() {},
	} {
		send(t, r, records(2*i, 1, ""))
		send(t, r, records(2*i+1, 1, ""))
		rotate()
	}
	for i, name := range []string{path + ".0", path + ".1", path} {
		wantFile(t, name, 0, records(2*i, 2, ""))
	}
}

func TestLineOfACrashIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	must(t, os.WriteFile(path, []byte(`{"id":"0/1","clusterN`), 0o600))
	send(t, newFile(t, v1alpha1.JSONLines{Path: path}), records(0, 2, ""))
	send(t, newFile(t, v1alpha1.JSONLines{Path: path}), records(2, 1, ""))
	wantFile(t, path, 1, records(0, 3, ""))
}

func TestPathThatCannotBeWrittenIsRetried(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path})
	sendError(t, r, records(0, 1, ""), "no such file or directory")
	must(t, os.MkdirAll(path, 0o700))
	sendError(t, r, records(0, 1, ""), "is a directory")
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o600))
	sendError(t, r, records(0, 1, ""), "not a regular file")
	must(t, os.Remove(path))
	send(t, r, records(0, 2, ""))
	wantFile(t, path, 0, records(0, 2, ""))

	must(t, os.Rename(path, path+".old")) // by another program
	send(t, r, records(2, 2, ""))
	wantFile(t, path, 0, records(2, 2, ""))
	must(t, os.Truncate(path, 10))
	send(t, r, records(4, 1, ""))
	wantFile(t, path, 1, records(4, 1, ""))

	if os.Geteuid() != 0 { // to whom nothing is forbidden
		must(t, os.Rename(path, path+".older"))
		must(t, os.Chmod(dir, 0o500))
		sendError(t, r, records(5, 1, ""), "permission denied")
		must(t, os.Chmod(dir, 0o700))
		send(t, r, records(5, 1, ""))
	}
}

// disk has room for some bytes, and faults.
type disk struct {
	room           int
	sync, truncate error
}

type diskFile struct {
	*os.File
	*disk
}

func (f diskFile) Write(data []byte) (int, error) {
	n, err := f.File.Write(data[:min(len(data), f.room)])
	f.room -= n
	if err == nil && n < len(data) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (f diskFile) Sync() error {
	if f.sync != nil {
		return f.sync
	}
	return f.File.Sync()
}

func (f diskFile) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.File.Truncate(size)
}

func TestDiskFaults(t *testing.T) {
	broken := errors.New("broken")
	for name, of := range map[string]struct {
		disk disk
		want string
		// lines that are whole after the fault, and repeated and broken ones at the end.
		whole, repeated, broken int
	}{
		"full":                          {disk: disk{room: 1000}, want: "no space left", whole: 3},
		"full, and cannot be truncated": {disk: disk{room: 1000, truncate: broken}, want: "broken", whole: -1, repeated: 3, broken: 1},
		"sync fails":                    {disk: disk{room: 1e6, sync: broken}, want: "sync: broken"},
		"sync fails, and cannot be truncated": {
			disk: disk{room: 1e6, sync: broken, truncate: broken}, want: "sync: broken", whole: 20, repeated: 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events")
			d := &disk{room: 1e6}
			f := &file{path: path, open: func(path string) (handle, error) {
				h, err := openFile(path)
				if err != nil {
					return nil, err
				}
				return diskFile{h.(*os.File), d}, nil
			}}
			r := newReceiver(path, turnOf(path), f, 1)
			before, batch := records(0, 1, ""), records(1, 20, "")
			send(t, r, before)
			*d = of.disk
			sendError(t, r, batch, of.want)
			if of.whole >= 0 {
				wantFile(t, path, 0, slices.Concat(before, batch[:of.whole]))
			}
			*d = disk{room: 1e6}
			send(t, r, batch)
			wantFile(t, path, of.broken, slices.Concat(before, batch[:of.repeated], batch))
			must(t, r.Close())
		})
	}
}
