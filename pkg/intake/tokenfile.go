package intake

import (
	"errors"
	"os"
	"strings"
	"sync"
)

// tokenFile is a token that somebody else keeps fresh, as the kubelet does in a
// projected volume. It looks at the file whenever it is asked, and reads it when
// it is another one, so that a new token counts from the first request on.
type tokenFile struct {
	path string

	mu    sync.Mutex
	read  os.FileInfo // of what was read last
	token string
}

// get returns the token, also the last one that could be read: it may be good
// for a while. An error is that there never was any.
func (f *tokenFile) get() (string, error) {
	// Before it is read: what is written in between is read again.
	info, err := os.Stat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.is(info) {
		err = f.readAs(info)
	}
	if f.token == "" {
		return "", err
	}
	return f.token, nil
}

func (f *tokenFile) is(info os.FileInfo) bool {
	return f.read != nil && os.SameFile(f.read, info) && f.read.ModTime().Equal(info.ModTime()) && f.read.Size() == info.Size()
}

func (f *tokenFile) readAs(info os.FileInfo) error {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return errors.New("the file is empty: " + f.path)
	}
	f.read, f.token = info, token
	return nil
}
