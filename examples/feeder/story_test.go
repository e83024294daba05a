package main

import (
	"math/rand/v2"
	"testing"
)

func TestStoryHasRepeatsAndDistinctSeriesOfBothStyles(t *testing.T) {
	story := newStory("shop", rand.New(rand.NewPCG(1, 2)))
	type series struct {
		uid, fieldPath, reason, note string
	}
	times := make(map[series]int)
	styles := make(map[bool]int)
	const happenings = 5000
	for range happenings {
		h := story.next()
		if h.by.Component == "" || h.object.Name == "" || h.object.Namespace != "shop" || h.reason == "" || h.note == "" {
			t.Fatalf("not what a recorder takes: %+v", h)
		}
		times[series{string(h.object.UID), h.object.FieldPath, h.reason, h.note}]++
		styles[h.action != ""]++
	}
	most := 0
	for _, n := range times {
		most = max(most, n)
	}
	if len(times) < happenings/10 || len(times) > happenings/2 || most < 20 {
		t.Errorf("%d series, the longest of %d: want a mix of many series and of long ones", len(times), most)
	}
	if styles[true] == 0 || styles[false] == 0 {
		t.Errorf("reported in the new style: %v", styles)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-rate=0"}, {"-rate=-1"}, {"-rate=NaN"}, {"-duration=-1s"}, {"extra"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
