package intake

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxYAMLBytes is the largest body in YAML. Reading it takes 800 times its length, and
// no client sends YAML to an apiserver but for server-side apply.
const maxYAMLBytes = 32 << 10

// maxYAMLLists is how many brackets may open: the time that YAML takes grows with the
// square of the depth to which they are nested.
const maxYAMLLists = 512

// checkYAML returns the error to answer a body in YAML with that is too large or has
// aliases: a kilobyte of them stands for hundreds of thousands of values.
func checkYAML(body []byte) error {
	if len(body) > maxYAMLBytes {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d", maxYAMLBytes))
	}
	if opens := bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")); opens > maxYAMLLists {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d lists and objects in brackets", maxYAMLLists))
	}
	if bytes.IndexByte(body, '*') < 0 || bytes.IndexByte(body, '&') < 0 {
		return nil
	}
	var document yaml.Node // in which an alias is a node of its own
	if err := yaml.Unmarshal(body, &document); err != nil {
		return apierrors.NewBadRequest("the body is no YAML: " + err.Error())
	}
	if hasAlias(&document) {
		return apierrors.NewBadRequest("the body has YAML aliases, which are not read")
	}
	return nil
}

func hasAlias(node *yaml.Node) bool {
	if node.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range node.Content {
		if hasAlias(child) {
			return true
		}
	}
	return false
}
