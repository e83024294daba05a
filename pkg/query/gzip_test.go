package query

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
)

// A reader has each part before the next one is written, compressed or not, and the whole is a gzip stream.
func TestGzipStreamOfParts(t *testing.T) {
	for name, text := range map[string]string{
		"short": "a frame\n", "compressible": strings.Repeat("a frame\n", 10_000), "more than a block": strings.Repeat("x", math.MaxUint16+1),
	} {
		t.Run(name, func(t *testing.T) {
			var g gzipStream
			var p packer
			out, plain := bytes.Buffer{}, []byte(text)
			g.begin(&out)
			read, write := io.Pipe()
			go func() { _, _ = write.Write(out.Bytes()) }()
			reader, err := gzip.NewReader(read)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				out := bytes.Buffer{}
				if i%2 == 0 {
					g.add(&out, plain)
				} else {
					packed, err := p.pack(plain)
					if err != nil {
						t.Fatal(err)
					}
					g.count(plain)
					out.Write(packed)
					if name == "compressible" && len(packed) > len(plain)/10 {
						t.Errorf("%d bytes are compressed to %d", len(plain), len(packed))
					}
				}
				go func() { _, _ = write.Write(out.Bytes()) }()
				got := make([]byte, len(plain))
				if _, err := io.ReadFull(reader, got); err != nil || !bytes.Equal(got, plain) {
					t.Fatalf("part %d is not read: %v", i, err)
				}
			}
			last := bytes.Buffer{}
			g.end(&last)
			go func() { _, _ = write.Write(last.Bytes()); _ = write.Close() }()
			if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
				t.Errorf("at the end there are %d bytes: %v", len(rest), err)
			}
		})
	}
}

func TestClientsThatAcceptGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"gzip": true, "deflate, GZIP;q=0.5": true, "br;q=1.0, gzip;q=1": true, "gzip;q=0": false, "gzip; q=0.0": false, "br": false, "": false, "identity": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}
