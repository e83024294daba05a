package sequence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/sequence"
	"github.com/eventd/eventd/test/receivertest"
)

// destination takes two records in a request, and answers with what it is told for the first.
type destination struct {
	answers map[string]answer // by the ID of the first record
	sent    []string          // the IDs of the requests' first records
}

type answer struct {
	rejected int
	err      error
	only     int // the number of records that it is for; 0 for all
}

func (d *destination) request(_ context.Context, records []receiver.Record) (sequence.Outcome, error) {
	id := records[0].ID
	d.sent = append(d.sent, id)
	a, n := d.answers[id], min(2, len(records))
	if a.only != 0 && a.only != n {
		a = answer{}
	}
	return sequence.Outcome{Records: n, Rejected: a.rejected}, a.err
}

func TestBatchIsSentInOrderFromWhereItFailed(t *testing.T) {
	away := errors.New("away")
	refused := &receiver.Error{Permanent: true, Err: errors.New("refused")}
	unclear := fmt.Errorf("%w: unclear", sequence.ErrMaybeTooLarge)
	batch, large := receivertest.Records(6), receivertest.Records(6)
	large[2].Event.Message, large[3].Event.Message = strings.Repeat("m", 16<<10), strings.Repeat("m", 16<<10)
	id := func(i int) string { return batch[i].ID }
	type send struct {
		batch    []receiver.Record
		answers  map[string]answer
		rejected int
		err      error
		sent     []string
	}
	for name, sends := range map[string][]send{
		"all accepted":      {{batch, nil, 0, nil, []string{id(0), id(2), id(4)}}},
		"an empty batch":    {{nil, nil, 0, nil, nil}},
		"some rejected":     {{batch, map[string]answer{id(0): {rejected: 1}, id(4): {rejected: 2}}, 3, nil, []string{id(0), id(2), id(4)}}},
		"a request refused": {{batch, map[string]answer{id(2): {err: refused}}, 1, nil, []string{id(0), id(2), id(2), id(3), id(5)}}},
		"all requests refused": {{batch[:3], map[string]answer{id(0): {err: refused}, id(1): {err: refused}, id(2): {err: refused}}, 3, nil,
			[]string{id(0), id(0), id(1), id(1), id(2)}}},
		"the only request refused": {{batch[:2], map[string]answer{id(0): {err: refused}}, 0, refused, []string{id(0)}}},
		"the last fails, then not": {
			{batch, map[string]answer{id(0): {rejected: 1}, id(4): {err: away}}, 0, away, []string{id(0), id(2), id(4)}},
			{batch, map[string]answer{id(4): {err: away}}, 0, away, []string{id(4)}},
			{batch, map[string]answer{id(4): {rejected: 1}}, 2, nil, []string{id(4)}},
			{batch, nil, 0, nil, []string{id(0), id(2), id(4)}},
		},
		"what is left is refused": {
			{batch, map[string]answer{id(4): {err: away}}, 0, away, []string{id(0), id(2), id(4)}},
			{batch, map[string]answer{id(4): {err: refused}}, 1, nil, []string{id(4), id(4), id(5)}},
		},
		"several may be too large":          {{batch, map[string]answer{id(2): {err: unclear, only: 2}}, 0, nil, []string{id(0), id(2), id(2), id(3), id(5)}}},
		"the only request may be too large": {{batch[:2], map[string]answer{id(0): {err: unclear}}, 0, refused, []string{id(0)}}},
		"one may be too large": slices.Concat(
			[]send{{large, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(0), id(2), id(2)}}},
			slices.Repeat([]send{{large, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(2)}}}, 8),
			[]send{{large, map[string]answer{id(2): {err: unclear}}, 1, nil, []string{id(2), id(3), id(5)}}},
		),
		"one after another may be too large": slices.Concat(
			[]send{{large, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(0), id(2), id(2)}}},
			slices.Repeat([]send{{large, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(2)}}}, 8),
			[]send{{large, map[string]answer{id(2): {err: unclear}, id(3): {err: unclear}}, 0, unclear, []string{id(2), id(3), id(3)}}},
		),
		"the only one may be too large": slices.Concat(
			slices.Repeat([]send{{large[2:3], map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(2)}}}, 9),
			[]send{{large[2:3], map[string]answer{id(2): {err: unclear}}, 0, refused, []string{id(2)}}},
		),
		"one is too much for now": slices.Concat(
			[]send{{batch, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(0), id(2), id(2)}}},
			slices.Repeat([]send{{batch, map[string]answer{id(2): {err: unclear}}, 0, unclear, []string{id(2)}}}, 30),
			[]send{{batch, nil, 0, nil, []string{id(2), id(3), id(5)}}},
		),
		"another batch follows a failure": {
			{batch[:4], map[string]answer{id(2): {err: away}}, 0, away, []string{id(0), id(2)}},
			{batch[1:], nil, 0, nil, []string{id(1), id(3), id(5)}},
		},
		"a shorter batch follows a failure": {
			{batch, map[string]answer{id(4): {err: away}}, 0, away, []string{id(0), id(2), id(4)}},
			{batch[:3], nil, 0, nil, []string{id(0), id(2)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sender := sequence.New()
			for i, s := range sends {
				d := &destination{answers: s.answers}
				rejected, err := sender.Send(t.Context(), s.batch, d.request)
				if rejected != s.rejected || !sameMeaning(err, s.err) || !slices.Equal(d.sent, s.sent) {
					t.Errorf("send %d: %d rejected, %v, requests %q; want %d, %v, %q", i, rejected, err, d.sent, s.rejected, s.err, s.sent)
				}
				failure, ok := errors.AsType[*receiver.Error](err)
				if progressed := err != nil && len(d.sent) > 1; progressed != (ok && failure.Progressed) {
					t.Errorf("send %d: %+v, want progress: %t", i, err, progressed)
				}
			}
		})
	}
}

// sameMeaning reports whether two errors lead the delivery to the same.
func sameMeaning(a, b error) bool {
	permanent := func(err error) bool {
		failure, ok := errors.AsType[*receiver.Error](err)
		return ok && failure.Permanent
	}
	return (a == nil) == (b == nil) && permanent(a) == permanent(b)
}

// A batch may take longer than what was left of the lease.
func TestNothingIsSentAfterTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term, lose := receivertest.Term(t)
		requests := 0
		_, err := sequence.New().Send(term, receivertest.Records(6), func(context.Context, []receiver.Record) (sequence.Outcome, error) {
			if requests++; requests == 2 {
				lose()
			}
			return sequence.Outcome{Records: 1}, nil
		})
		if requests != 2 || !errors.Is(err, election.ErrLeaseLost) {
			t.Errorf("%d requests: %v", requests, err)
		}
	})
}
