package sizing

import (
	"cmp"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/cmd/eventd/app"
)

// With twice the value of its flag, a part takes more.
func TestEveryFlagThatIsNamedCounts(t *testing.T) {
	for i, part := range Memory(app.NewOptions()) {
		for _, name := range part.Flags {
			o := app.NewOptions()
			double(t, o, name)
			after := Memory(o)[i]
			if after.Usual <= part.Usual && after.Most <= part.Most {
				t.Errorf("%s: twice --%s takes no more", part.What, name)
			}
		}
	}
}

func double(t *testing.T, o *app.Options, name string) {
	t.Helper()
	for _, set := range o.Flags().FlagSets {
		flag := set.Lookup(name)
		if flag == nil {
			continue
		}
		value, err := resource.ParseQuantity(flag.Value.String())
		if err == nil { // 0 follows from other flags
			err = flag.Value.Set(strconv.FormatInt(cmp.Or(2*value.Value(), 1<<40), 10))
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("there is no flag --%s", name)
}

func TestAdviceHoldsEverything(t *testing.T) {
	o := app.NewOptions()
	o.ConfigFile = "configuration.yaml"
	parts := Memory(o)
	if _, with := Sum(parts); with <= total(Memory(app.NewOptions())) {
		t.Error("receivers take no memory")
	}
	for _, part := range parts {
		if part.Usual <= 0 || part.Most < part.Usual {
			t.Errorf("%s: usual %d, most %d", part.What, part.Usual, part.Most)
		}
	}
	_, most := Sum(parts)
	if a := Advise(parts); a.GoMemLimit <= most || a.ContainerLimit <= a.GoMemLimit {
		t.Errorf("%d bytes have a soft limit of %d and a hard one of %d", most, a.GoMemLimit, a.ContainerLimit)
	}
}

func total(parts []Part) int64 {
	_, most := Sum(parts)
	return most
}
