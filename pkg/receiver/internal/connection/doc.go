// Package connection is what the receivers over the network have in common: TLS, credentials from
// files that another process rotates, an HTTP client for one destination, and what its answers
// mean.
//
// A destination is not trusted with memory or time: responses are read up to a limit, a call ends
// with its context, redirects are not followed, so credentials go to no other host.
//
// Files are checked before each request, which is one stat for each. While one can't be read or
// doesn't make sense, such as a certificate whose key is not there yet, the last good content is
// used, and an error is logged, at most once a minute.
package connection
