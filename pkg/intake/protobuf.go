package intake

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufPrefix begins all bodies in protobuf (runtime/serializer/protobuf).
var protobufPrefix = []byte("k8s\x00")

// metadataField is the number of the metadata of an Event of both APIs (their generated.proto), which alone has lists.
const metadataField = 1

// checkProtobuf is checkShape for a body in protobuf: two bytes may be an owner reference, which takes 100 bytes. What
// cannot be read is left to the decoder, which refuses it.
func checkProtobuf(body []byte) error {
	enveloped, ok := bytes.CutPrefix(body, protobufPrefix)
	var unknown runtime.Unknown
	if !ok || unknown.Unmarshal(enveloped) != nil {
		return nil
	}
	// The scheme has other kinds, with lists of their own.
	if unknown.Kind != "" && unknown.Kind != "Event" && len(unknown.Raw) > smallBody {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes of what is no Event", smallBody))
	}
	return checkFields(unknown.Raw, metadataField)
}

// checkFields returns the error for a message with too many fields, its own and those of the message at a path. What
// ends too early is left to the decoder.
func checkFields(message []byte, path ...protowire.Number) error {
	err := countFields(message, path, new(int))
	if refused, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return refused
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return apierrors.NewBadRequest("the body is not valid protobuf: " + err.Error())
	}
	return nil
}

func countFields(message []byte, path []protowire.Number, fields *int) error {
	return eachField(message, func(number protowire.Number, value []byte) error {
		switch *fields++; {
		case *fields > maxValues:
			return overLimit("values", maxValues)
		case len(path) > 0 && number == path[0]:
			return countFields(value, path[1:], fields)
		}
		return nil
	})
}

var errGroup = errors.New("it has a group")

// eachField calls a function for each field of a message. Only one of bytes has a value.
func eachField(message []byte, do func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		if kind == protowire.StartGroupType { // they nest, and Kubernetes has none
			return errGroup
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:])
		}
		if err := do(number, value); err != nil {
			return err
		}
		message = message[tag+size:]
	}
	return nil
}
