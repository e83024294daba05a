package identity

// Limits of the apiserver for new-style Events, in bytes
// (kubernetes pkg/apis/core/validation/events.go).
const (
	MaxReason            = 128
	MaxAction            = 128
	MaxReportingInstance = 128
	MaxNote              = 1024
)
