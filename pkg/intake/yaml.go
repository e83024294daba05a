package intake

import (
	"bytes"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxYAMLBytes is the largest body in YAML. Reading it takes 800 times its length, and
// no client sends YAML to an apiserver but for server-side apply.
const maxYAMLBytes = 32 << 10

// maxYAMLLists is how many brackets may open: the time that YAML takes grows with the
// square of the depth to which they are nested.
const maxYAMLLists = 512

// checkYAML returns the error to answer a body in YAML with that is too large or has
// aliases: a kilobyte of them stands for hundreds of thousands of values. It does not
// parse the body, which would take memory before any is reserved for that. So it also
// refuses a text that has the looks of an anchor and that of an alias, as "&a *b".
func checkYAML(body []byte) error {
	if len(body) > maxYAMLBytes {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d", maxYAMLBytes))
	}
	if opens := bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")); opens > maxYAMLLists {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit of YAML is %d lists and objects in brackets", maxYAMLLists))
	}
	if mayMark(body, '&') && mayMark(body, '*') {
		return apierrors.NewBadRequest("the body may have YAML aliases, which are not read")
	}
	return nil
}

// mayMark tells whether an indicator may begin an anchor or an alias: a name follows
// it, and what precedes it does not make it a part of a word.
func mayMark(body []byte, indicator byte) bool {
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
