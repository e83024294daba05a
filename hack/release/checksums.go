package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checksumsFile is the name of the list.
const checksumsFile = "SHA256SUMS"

// writeChecksums lists all files below folder, as "sha256sum --check" reads it.
func writeChecksums(folder string) error {
	var list strings.Builder
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		digest, err := sha256Of(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", digest, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, checksumsFile), []byte(list.String()), 0o644)
}

// sha256Of is the digest of a file in hex.
func sha256Of(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
