// Package dropin tests that eventd replaces client-go's recorders in controllers, also with
// controller-runtime. It is a module of its own, so that eventd does not depend on
// controller-runtime.
package dropin
