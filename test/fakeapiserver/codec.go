package fakeapiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

var protobufSerializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// maxBodyBytes is that of a kube-apiserver.
const maxBodyBytes = 3 << 20

func readBody(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBodyBytes+1))
	if err == nil && len(body) > maxBodyBytes {
		return nil, apierrors.NewRequestEntityTooLargeError("")
	}
	return body, err
}

// decode reads the object of a request, in JSON or protobuf.
func decode[T runtime.Object](req *http.Request) (out T, err error) {
	body, err := readBody(req)
	if err != nil {
		return out, err
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return out, apierrors.NewBadRequest(err.Error())
	}
	out, ok := o.(T)
	if !ok {
		return out, apierrors.NewBadRequest("unexpected kind " + o.GetObjectKind().GroupVersionKind().String())
	}
	return out, nil
}

// respond writes an object, whose kind must be set, as the client accepts it.
func respond(w http.ResponseWriter, req *http.Request, code int, o runtime.Object) {
	if acceptsProtobuf(req) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w.WriteHeader(code)
		_ = protobufSerializer.Encode(o, w) // the client may be gone
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

// fail writes the Status of an error.
func fail(w http.ResponseWriter, req *http.Request, err error) {
	known, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		known = apierrors.NewInternalError(err)
	}
	status := known.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	respond(w, req, int(status.Code), &status)
}

func acceptsProtobuf(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), runtime.ContentTypeProtobuf)
}
