// Package dropin shows that eventd takes the place of client-go's recorders in
// controllers that know nothing of it. It is a module of its own, so that eventd
// does not depend on controller-runtime.
package dropin
