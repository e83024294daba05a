package v1alpha1

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (o *OTLP) validate(path *field.Path) (errs field.ErrorList) {
	endpoint := path.Child("endpoint")
	switch {
	case o.Endpoint == "":
		errs = append(errs, field.Required(endpoint, ""))
	case o.Protocol == OTLPGRPC:
		errs = append(errs, validateHostPort(o.Endpoint, endpoint)...)
		errs = append(errs, o.validateMetadata(path.Child("headers"))...)
	case o.Protocol == OTLPHTTP:
		errs = append(errs, validateURL(o.Endpoint, endpoint, "http", "https")...)
		errs = append(errs, o.validateScheme(o.Endpoint, path)...)
		if u, err := url.Parse(o.Endpoint); err == nil && strings.Trim(u.Path, "/") == "" {
			errs = append(errs, field.Invalid(endpoint, field.OmitValueType{}, "must have a path, which is /v1/logs by default in OTLP"))
		}
	}
	if o.Protocol != OTLPGRPC && o.Protocol != OTLPHTTP {
		errs = append(errs, field.NotSupported(path.Child("protocol"), o.Protocol, []OTLPProtocol{OTLPGRPC, OTLPHTTP}))
	}
	if o.Compression != "gzip" && o.Compression != "none" {
		errs = append(errs, field.NotSupported(path.Child("compression"), o.Compression, []string{"gzip", "none"}))
	}
	return append(errs, o.Connection.validate(path)...)
}

// validateMetadata checks the names of headers that gRPC sends, which has fewer than HTTP.
func (c *Connection) validateMetadata(path *field.Path) (errs field.ErrorList) {
	for i, header := range c.Headers {
		if strings.ContainsFunc(strings.ToLower(header.Name), isNoMetadata) {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), field.OmitValueType{}, "must have only letters, digits, -, _ and . with grpc"))
		}
	}
	return errs
}

func isNoMetadata(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

func (c *CloudEvents) validate(path *field.Path) (errs field.ErrorList) {
	if c.URL == "" {
		errs = append(errs, field.Required(path.Child("url"), ""))
	} else {
		errs = append(errs, validateURL(c.URL, path.Child("url"), "http", "https")...)
		errs = append(errs, c.validateScheme(c.URL, path)...)
	}
	return append(errs, c.Connection.validate(path)...)
}

func (j *JetStream) validate(path *field.Path) (errs field.ErrorList) {
	if j.URL == "" {
		errs = append(errs, field.Required(path.Child("url"), ""))
	} else {
		for server := range strings.SplitSeq(j.URL, ",") {
			errs = append(errs, validateURL(strings.TrimSpace(server), path.Child("url"), "nats", "tls")...)
		}
	}
	subject := path.Child("subject")
	switch {
	case j.Subject == "":
		errs = append(errs, field.Required(subject, ""))
	case len(j.Subject) > 255:
		errs = append(errs, field.TooLong(subject, j.Subject, 255))
	case strings.HasPrefix(j.Subject, "$"):
		errs = append(errs, field.Invalid(subject, j.Subject, "must not begin with $, which is for the server itself"))
	case strings.ContainsFunc(j.Subject, isNoSubject) || slices.Contains(strings.Split(j.Subject, "."), ""):
		errs = append(errs, field.Invalid(subject, j.Subject, "must be tokens of printable ASCII, separated by dots, without wildcards"))
	}
	return append(errs, j.TLS.validate(path.Child("tls"))...)
}

func isNoSubject(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }

func (j *JSONLines) validate(path *field.Path) (errs field.ErrorList) {
	if j.Path != "" {
		file := filepath.Clean(j.Path) + "/"
		if strings.HasSuffix(j.Path, "/") || !strings.HasPrefix(file, "/dev/shm/") && slices.ContainsFunc(
			[]string{"/dev/", "/proc/", "/sys/"}, func(of string) bool { return strings.HasPrefix(file, of) }) {
			errs = append(errs, field.Invalid(path.Child("path"), j.Path, "must be a regular file; without a path, lines go to stdout"))
		}
	}
	return errs
}

// The errors about addresses have them not: whoever puts a password there by mistake would find it
// in the log.

func validateHostPort(address string, path *field.Path) field.ErrorList {
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 || host == "" || strings.ContainsAny(host, "/@ ") {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be HOST:PORT")}
	}
	return nil
}

// validateURL refuses credentials in URLs too: URLs are logged.
func validateURL(text string, path *field.Path, schemes ...string) field.ErrorList {
	u, err := url.Parse(text)
	if err == nil && u.User != nil {
		return field.ErrorList{field.Forbidden(path, "credentials are not part of the URL, but in a file")}
	}
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "" || u.Fragment != "" {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a URL with the scheme "+strings.Join(schemes, " or "))}
	}
	if port := u.Port(); port != "" {
		return validateHostPort(u.Host, path)
	}
	return nil
}

// validateScheme checks what the connection says against the scheme of its URL.
func (c *Connection) validateScheme(url string, path *field.Path) (errs field.ErrorList) {
	isHTTP := strings.HasPrefix(strings.ToLower(url), "http:")
	if isHTTP && c.TLS != nil {
		errs = append(errs, field.Forbidden(path.Child("tls"), "an http URL is without TLS"))
	}
	if !isHTTP && c.Insecure {
		errs = append(errs, field.Forbidden(path.Child("insecure"), "an https URL is with TLS"))
	}
	return errs
}

func (c *Connection) validate(path *field.Path) field.ErrorList {
	errs := c.TLS.validate(path.Child("tls"))
	if c.Insecure && c.TLS != nil {
		errs = append(errs, field.Forbidden(path.Child("tls"), "insecure is set"))
	}
	headers := path.Child("headers")
	if len(c.Headers) > maxHeaders {
		errs = append(errs, field.TooMany(headers, len(c.Headers), maxHeaders))
	}
	names := sets.New[string]()
	if c.BearerTokenFile != "" {
		names.Insert("authorization")
	}
	for i, header := range c.Headers {
		errs = append(errs, addUnique(strings.ToLower(header.Name), names, headers.Index(i).Child("name"))...)
		errs = append(errs, header.validate(headers.Index(i))...)
	}
	return errs
}

// setByReceivers are headers that follow from the request.
var setByReceivers = sets.New("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "keep-alive",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "user-agent")

func (h *Header) validate(path *field.Path) (errs field.ErrorList) {
	name, lower := path.Child("name"), strings.ToLower(h.Name)
	switch {
	case h.Name == "":
		errs = append(errs, field.Required(name, ""))
	case !httpguts.ValidHeaderFieldName(h.Name):
		errs = append(errs, field.Invalid(name, field.OmitValueType{}, "must be the name of a header"))
	case setByReceivers.Has(lower) || strings.HasPrefix(lower, "grpc-"):
		errs = append(errs, field.Forbidden(name, h.Name+" is set by eventd"))
	}
	if (h.Value == "") == (h.File == "") {
		errs = append(errs, field.Required(path, "needs one of value and file"))
	}
	// The value may be a secret, so the error has it not.
	if text := strings.TrimSpace(h.Value); (text == "") != (h.Value == "") || strings.ContainsFunc(text, isNoText) {
		errs = append(errs, field.Invalid(path.Child("value"), field.OmitValueType{}, "must be printable ASCII"))
	}
	return errs
}

func isNoText(r rune) bool { return r < ' ' || r > '~' }

func (t *TLS) validate(path *field.Path) (errs field.ErrorList) {
	if t == nil {
		return nil
	}
	if t.CertFile != "" && t.KeyFile == "" {
		errs = append(errs, field.Required(path.Child("keyFile"), "certFile is set"))
	}
	if t.KeyFile != "" && t.CertFile == "" {
		errs = append(errs, field.Required(path.Child("certFile"), "keyFile is set"))
	}
	if t.ServerName != "" && net.ParseIP(t.ServerName) == nil {
		for _, message := range validation.IsDNS1123Subdomain(t.ServerName) {
			errs = append(errs, field.Invalid(path.Child("serverName"), t.ServerName, message))
		}
	}
	return errs
}
