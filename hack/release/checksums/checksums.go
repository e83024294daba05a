// Package checksums has the SHA-256 of files, and their list.
package checksums

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// File is the name of the list.
const File = "SHA256SUMS"

// Write lists all files below folder in File, as "sha256sum --check" reads it.
func Write(folder string) error {
	var list strings.Builder
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		digest, err := Of(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", digest, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, File), []byte(list.String()), 0o644)
}

// Of returns the SHA-256 of a file.
func Of(file string) ([]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, in); err != nil {
		return nil, err
	}
	return digest.Sum(nil), nil
}
