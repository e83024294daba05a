package app

import (
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// maxIdentity is longer than the name of a Pod and what newIdentity adds.
const maxIdentity = 512

// lockIdentity locks a file until it is closed or this process ends, replaces the identity in it, and returns that of
// the process that had locked it before. That one has ended, whatever its end was: nothing less releases the
// lock. The Pod, or an answer of the kubelet, would prove nothing, since two processes of one Pod may run at once.
func lockIdentity(path, identity string) (file *fileutil.LockedFile, former string, err error) {
	file, err = fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("locking %s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxIdentity))
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt([]byte(identity), 0)
	}
	if err != nil {
		file.Close()
		return nil, "", fmt.Errorf("writing the identity: %w", err)
	}
	return file, string(data), nil
}
