//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

// packImage packs files into an image of one layer, and writes it as an archive of an OCI image layout.
func packImage(args []string) error {
	flags := flag.NewFlagSet("cluster image", flag.ContinueOnError)
	out := flags.String("o", "", "the `file` to write")
	name := flags.String("name", "", "`reference` of the image")
	entrypoint := flags.String("entrypoint", "", "`words` of the command")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || *name == "" || flags.NArg() == 0 {
		return errors.New("the arguments are -o FILE -name REFERENCE and FILE=PATH or PATH->TARGET, for each file or link of the image")
	}
	layer, err := packLayer(flags.Args())
	if err != nil {
		return err
	}
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(writeLayout(file, *name, strings.Fields(*entrypoint), layer), file.Close())
}

func packLayer(files []string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return nil, err
	}
	for _, arg := range files {
		link, target, isLink := strings.Cut(arg, "->")
		from, to, isFile := strings.Cut(arg, "=")
		var err error
		switch {
		case isLink:
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(link, "/"), Linkname: target, Mode: 0o777})
		case isFile:
			err = addFile(w, from, strings.TrimPrefix(to, "/"))
		default:
			err = fmt.Errorf("%q is neither FILE=PATH nor PATH->TARGET", arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return layer.Bytes(), w.Close()
}

func addFile(w *tar.Writer, from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if dir := path.Dir(to); dir != "." {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	return addData(w, to, 0o755, data)
}

func addData(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// writeLayout writes the layout of an image with this layer.
func writeLayout(out io.Writer, name string, entrypoint []string, layer []byte) error {
	type object = map[string]any
	w := tar.NewWriter(out)
	var failed error
	blob := func(mediaType string, data []byte) object {
		digest := fmt.Sprintf("%x", sha256.Sum256(data))
		failed = errors.Join(failed, addData(w, "blobs/sha256/"+digest, 0o644, data))
		return object{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	encode := func(o object) []byte {
		data, err := json.Marshal(o)
		failed = errors.Join(failed, err)
		return data
	}
	packed := blob("application/vnd.oci.image.layer.v1.tar", layer)
	config := blob("application/vnd.oci.image.config.v1+json", encode(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Env": []string{"PATH=/bin"}, "Entrypoint": entrypoint},
		"rootfs": object{"type": "layers", "diff_ids": []any{packed["digest"]}},
	}))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := blob(manifestType, encode(object{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{packed}}))
	manifest["annotations"] = object{"io.containerd.image.name": name}
	return errors.Join(
		addData(w, "index.json", 0o644, encode(object{"schemaVersion": 2, "manifests": []any{manifest}})),
		addData(w, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		failed, w.Close())
}
