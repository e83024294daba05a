package rules

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// readField returns a field of v1alpha1.StringFields, or a key of labels or annotations, as
// expressions see it. It is empty if the Event does not have it.
func readField(event *corev1.Event, name string) string {
	of, key := v1alpha1.RedactedKey(name)
	value := ref.Val(eventType.new(event))
	for part := range strings.SplitSeq(of, ".") {
		value = value.(traits.Indexer).Get(types.String(part))
	}
	if key != "" {
		value, _ = value.(traits.Mapper).Find(types.String(key))
	}
	text, _ := value.(types.String)
	return string(text)
}
