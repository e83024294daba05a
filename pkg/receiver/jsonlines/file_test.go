package jsonlines

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

func TestFileIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	must(t, os.WriteFile(path+".3", nil, 0o600)) // of a configuration that kept more
	r := newFile(t, v1alpha1.JSONLines{Path: path, MaxBytes: new(int64(2000)), MaxFiles: new(int32(2))})
	var all []receiver.Record
	for i := range 10 {
		batch := records(10*i, 10, "")
		send(t, r, batch)
		all = append(all, batch...)
	}
	var kept []byte
	for _, name := range []string{path + ".2", path + ".1", path} {
		data, err := os.ReadFile(name)
		must(t, err)
		if len(data) > 2000+300 || len(data) < 200 {
			t.Errorf("%s has %d bytes", name, len(data))
		}
		kept = append(kept, data...)
	}
	lines := 0
	for _, b := range kept {
		if b == '\n' {
			lines++
		}
	}
	wantLines(t, kept, 0, all[len(all)-lines:])
	if _, err := os.Stat(path + ".3"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a third file is kept: %v", err)
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

func TestRotationThatFailsIsRetried(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path, MaxBytes: new(int64(4000)), MaxFiles: new(int32(1))})
	must(t, os.MkdirAll(filepath.Join(path+".1", "in-the-way"), 0o700))
	batch := records(0, 20, "")
	sendError(t, r, batch, "file exists")
	must(t, os.RemoveAll(path+".1"))
	send(t, r, batch)
	old, err := os.ReadFile(path + ".1")
	must(t, err)
	now, err := os.ReadFile(path)
	must(t, err)
	wantLines(t, slices.Concat(old, now), 0, batch)
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
			f := &file{path: path, maxBytes: 1e6, maxFiles: 1, open: func(path string) (handle, error) {
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

// What is renamed is durable, as it is acknowledged with the rest of its batch, whose sync is that of
// the next file.
func TestFileIsSyncedBeforeItIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	d := &disk{room: 1e6, sync: errors.New("broken")}
	f := &file{path: path, maxBytes: 1000, maxFiles: 9, open: func(path string) (handle, error) {
		h, err := openFile(path)
		if err != nil {
			return nil, err
		}
		return diskFile{h.(*os.File), d}, nil
	}}
	r := newReceiver(path, turnOf(path), f, 1)
	batch := records(0, 20, "")
	sendError(t, r, batch, "sync: broken")
	if _, err := os.Stat(path + ".1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was rotated that was not synced: %v", err)
	}
	must(t, r.Close())
}

func TestLineThatIsLargerThanAFileMovesNoEmptyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path, MaxBytes: new(int64(1000)), MaxFiles: new(int32(2))})
	batch := records(0, 1, strings.Repeat("large", 1000))
	send(t, r, batch)
	wantFile(t, path, 0, batch)
	if _, err := os.Stat(path + ".1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty file was rotated: %v", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, config := range []v1alpha1.JSONLines{{MaxBytes: new(int64(-1))}, {MaxFiles: new(int32(-1))}, {MaxBytes: new(int64(0))}} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
	r, err := New(v1alpha1.JSONLines{Path: "events"})
	must(t, err)
	if f := r.out.(*file); f.maxBytes != 100<<20 || f.maxFiles != 3 || !filepath.IsAbs(f.path) {
		t.Errorf("the defaults are %s", fmt.Sprint(f.maxBytes, f.maxFiles, f.path))
	}
}
