package main

import (
	"net/http"
	"strconv"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"
)

// behaviour decides how a destination answers a request, by the number of requests before it, and by how
// many records it has.
type behaviour func(request, records int) answer

// answer is what a destination answers, after a delay.
type answer struct {
	accepted   int // of the records, the first ones
	rejected   int // the others, for good
	status     int
	retryAfter time.Duration
	delay      time.Duration
	cut        bool // the connection ends within the answer
}

func (a answer) write(w http.ResponseWriter) {
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.retryAfter.Seconds())))
	}
	if a.status != http.StatusOK {
		w.WriteHeader(a.status)
		return
	}
	response := &collogspb.ExportLogsServiceResponse{}
	if a.rejected > 0 {
		response.PartialSuccess = &collogspb.ExportLogsPartialSuccess{RejectedLogRecords: int64(a.rejected), ErrorMessage: "half of them"}
	}
	body, err := proto.Marshal(response)
	if err != nil {
		panic(err) // has no strings but the one above
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	if a.cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+1)) // net/http closes the connection
	}
	_, _ = w.Write(body) // the client may have gone
}

// healthy accepts everything at once.
func healthy(_, records int) answer { return answer{accepted: records, status: http.StatusOK} }

// slow accepts everything after a second.
func slow(_, records int) answer {
	return answer{accepted: records, status: http.StatusOK, delay: time.Second}
}

// faulty refuses for the moment, fails, accepts and does not say so, accepts, and rejects the second half
// for good, in turns.
func faulty(request, records int) answer {
	switch request % 5 {
	case 0:
		return answer{status: http.StatusTooManyRequests, retryAfter: time.Second}
	case 1:
		return answer{status: http.StatusInternalServerError}
	case 2:
		return answer{accepted: records, status: http.StatusOK, cut: true}
	case 3: // the same records again
		return healthy(request, records)
	default:
		return answer{accepted: records - records/2, rejected: records / 2, status: http.StatusOK}
	}
}
