package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// results are the rows of a file. Rows that are measured again are replaced.
type results []row

// load reads the rows of a file, none if it does not exist.
func load(file string) (r results, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(data, &r)
}

func (r results) save(file string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// with returns the rows with another one, in place of that of the same name. It may change r.
func (r results) with(added row) results {
	if i := slices.IndexFunc(r, func(old row) bool { return old.name() == added.name() }); i >= 0 {
		r[i] = added
		return r
	}
	return append(r, added)
}

// of returns a row, and whether there is one.
func (r results) of(name string) (row, bool) {
	i := slices.IndexFunc(r, func(r row) bool { return r.name() == name })
	if i < 0 {
		return row{}, false
	}
	return r[i], true
}
