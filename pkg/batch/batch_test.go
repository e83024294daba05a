package batch

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each Event has the code of the answer, or a Status of its own.
func TestEachEventHasAStatus(t *testing.T) {
	for code, want := range map[int32]string{200: "[200 422 200 409]", 201: "[201 422 201 409]", 299: "[299 422 299 409]"} {
		answer := Answer{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Code: code, Others: []Item{
			{Index: 1, Status: metav1.Status{Status: metav1.StatusFailure, Code: 422}},
			{Index: 3, Status: metav1.Status{Status: metav1.StatusFailure, Code: 409}},
		}}
		statuses, err := answer.Statuses(4)
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		for _, s := range statuses {
			if got = append(got, s.Code); (s.Status == metav1.StatusSuccess) != (s.Code == code) {
				t.Errorf("%+v", s)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// An answer that cannot be one to the batch is refused: it is as one that is lost.
func TestAnswersThatDoNotFitAreRefused(t *testing.T) {
	typed := metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}
	at := func(index int, code int32) Item {
		return Item{Index: index, Status: metav1.Status{Code: code}}
	}
	for name, answer := range map[string]Answer{
		"another kind":  {TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: "Status"}, Code: 202},
		"another API":   {TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: Kind}, Code: 202},
		"no success":    {TypeMeta: typed, Code: 500},
		"a redirection": {TypeMeta: typed, Code: 300},
		"information":   {TypeMeta: typed, Code: 199},
		"too many":      {TypeMeta: typed, Code: 202, Others: []Item{at(2, 422)}},
		"not ascending": {TypeMeta: typed, Code: 202, Others: []Item{at(1, 422), at(0, 422)}},
		"twice":         {TypeMeta: typed, Code: 202, Others: []Item{at(1, 422), at(1, 422)}},
		"negative":      {TypeMeta: typed, Code: 202, Others: []Item{at(-1, 422)}},
		"no code":       {TypeMeta: typed, Code: 202, Others: []Item{at(0, 0)}},
	} {
		if _, err := answer.Statuses(2); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
