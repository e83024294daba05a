// Package responsestart calls a function when a response begins.
package responsestart

import "net/http"

// Writer calls Begin once, with the status code, before the header of a response is written. Informational
// responses (1xx) do not count.
type Writer struct {
	http.ResponseWriter
	Begin func(code int)
	begun bool
}

func (w *Writer) begin(code int) {
	if !w.begun && code >= http.StatusOK {
		w.begun = true
		w.Begin(code)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
