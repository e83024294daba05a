// Package documents splits files that people and kubectl write.
package documents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Split returns the documents of a file as JSON: those of a YAML stream, or JSON values behind each other, as
// "kubectl get -o json --watch" prints them. Documents that are empty are left out. A file of which a part would not be read
// is an error, and so is a key given twice in YAML.
func Split(data []byte) ([][]byte, error) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, errors.New("the file is in UTF-16, as PowerShell's > writes it: save it in UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if values, err := splitJSON(data); err == nil {
		return values, nil
	}
	var out [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		document, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, err
		}
		if err := checkEnd(part); err != nil {
			return nil, err
		}
		if string(document) != "null" { // empty, or comments only
			out = append(out, document)
		}
	}
}

// splitJSON returns values in JSON, in which a key may be given twice: that is for who decodes them.
func splitJSON(data []byte) (out [][]byte, err error) {
	for in := json.NewDecoder(bytes.NewReader(data)); ; {
		var value json.RawMessage
		if err := in.Decode(&value); errors.Is(err, io.EOF) && len(out) > 0 {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
}

// checkEnd returns an error if there is more after a document: a mapping in braces ends the document, and
// yaml.Unmarshal ignores what is behind it.
func checkEnd(part []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(part))
	var document any
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := decoder.Decode(&document); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of a document, such as lines behind a closing brace: it would not be read")
	}
	return nil
}
