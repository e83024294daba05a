// Package servingca keeps a CA in a Secret, publishes it in a ConfigMap, and issues the serving
// certificates of eventd from it.
//
// A Manager promises:
//
//   - Every replica issues its own certificate in memory, and renews it without a restart. It signs
//     only with a CA that is published.
//   - Only the leader writes. Each write names the resourceVersion that was read, so of two leaders
//     one gets a conflict, and reads again.
//   - A CA is published for Times.PublishFor before it replaces another one, and is trusted for
//     Times.RetireAfter after it was replaced.
//   - Somebody may edit or delete both objects. The leader repairs them, a deleted Secret once there is
//     one again, and the CAs whose certificates are in use stay published.
//   - Without the apiserver, a replica keeps serving, and renews its certificate from what it read
//     last. All times are those of the apiserver's clock.
//
// Run owns all state, and ends soon after its context. What to write is decided by plan, which has
// no side effects.
package servingca
