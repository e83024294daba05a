package relay

import (
	"errors"
	"os"
	"strings"
	"sync"
)

// tokenFile reads a token that another process rotates, such as the kubelet in a
// projected volume. It checks the file at each call and reads it when it has changed,
// so a new token is used from the next request on. client-go's
// transport.NewCachedFileTokenSource uses the old one for up to 50 s more: until
// then a replica whose token was rejected would stay unready.
type tokenFile struct {
	path string

	mu    sync.Mutex
	read  os.FileInfo // of the file as last read
	token string
}

// get returns the token. If the file cannot be read, that is the previous token, which
// may still be valid. It returns an error if there is none.
func (f *tokenFile) get() (string, error) {
	// Stat first: a write between Stat and ReadFile causes another read.
	info, err := os.Stat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.isRead(info) {
		err = f.load(info)
	}
	if f.token == "" {
		return "", err
	}
	return f.token, nil
}

func (f *tokenFile) isRead(info os.FileInfo) bool {
	return f.read != nil && os.SameFile(f.read, info) && f.read.ModTime().Equal(info.ModTime()) && f.read.Size() == info.Size()
}

func (f *tokenFile) load(info os.FileInfo) error {
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
