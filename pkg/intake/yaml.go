package intake

import (
	"bytes"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxYAMLBytes limits a body in YAML. Decoding takes 800 times its length, and clients
// send YAML to an apiserver for server-side apply only.
const maxYAMLBytes = 16 << 10

// maxYAMLLists limits the opening brackets. The time to decode YAML grows with the
// square of their nesting.
const maxYAMLLists = 512

// checkYAML returns the error for a body in YAML that is too large or has aliases: a
// kilobyte of them can stand for hundreds of thousands of values. It does not parse the
// body, because no memory is reserved yet. So it also refuses text that only looks like
// an anchor and an alias, such as "&a *b".
func checkYAML(body []byte) error {
	if len(body) > maxYAMLBytes {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d", maxYAMLBytes))
	}
	if opens := bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")); opens > maxYAMLLists {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d lists and objects in brackets", maxYAMLLists))
	}
	if mayIndicate(body, '&') && mayIndicate(body, '*') {
		return apierrors.NewBadRequest("the body may have YAML aliases, which are not supported")
	}
	return nil
}

// mayIndicate reports whether an indicator may begin an anchor or an alias: a name follows
// it, and it is not inside of a word.
func mayIndicate(body []byte, indicator byte) bool {
	for i, c := range body {
		if c == indicator && (i == 0 || !isAlphanumeric(body[i-1])) && i+1 < len(body) && body[i+1] > ' ' {
			return true
		}
	}
	return false
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
