package query

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// The types of frames, as in watches of Kubernetes.
const (
	frameAdded    = "ADDED"
	frameModified = "MODIFIED"
	frameBookmark = "BOOKMARK"
	frameError    = "ERROR"
)

// frame is a metav1.WatchEvent, whose object is encoded with it.
type frame struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// lines encode frames: as lines of JSON, or as server-sent events.
type lines struct {
	sse bool
	bytes.Buffer
}

// send encodes a frame. id is the cursor from which a browser resumes, if it is not empty.
func (l *lines) send(kind string, object any, id string) error {
	data, err := json.Marshal(frame{kind, object}) // one line
	if err != nil {
		return err
	}
	l.sendLine(id, data)
	return nil
}

// itemPrefix returns the beginning of a frame with an added TailItem, up to its event or step. It is the same for
// all items with one cursor, and to encode it takes longer than to send an item.
func itemPrefix(cursor, field string) ([]byte, error) {
	item, err := json.Marshal(v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: cursor})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"type":%q,"object":%s,%q:`, frameAdded, item[:len(item)-1], field), nil
}

// sendItem adds an item that is encoded, after its prefix.
func (l *lines) sendItem(prefix []byte, cursor string, item []byte) {
	l.sendLine(cursor, prefix, item, []byte("}}"))
}

// sendLine adds a frame that is encoded, in parts.
func (l *lines) sendLine(id string, parts ...[]byte) {
	if l.sse {
		if id != "" {
			l.WriteString("id: " + id + "\n")
		}
		l.WriteString("data: ")
	}
	for _, part := range parts {
		l.Write(part)
	}
	l.WriteByte('\n')
	if l.sse {
		l.WriteByte('\n')
	}
}

// bookmark encodes a cursor, and how many steps were lost.
func (l *lines) bookmark(resourceVersion string, lost int64) error {
	item := v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: resourceVersion, Lost: lost}
	return l.send(frameBookmark, item, resourceVersion)
}
