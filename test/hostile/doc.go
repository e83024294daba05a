// Package hostile attacks a running eventd as its tenants could. An attack must not
// affect anybody but the attacker.
//
// Each attack is one test. It runs while a victim in another namespace reports ten Events
// per second, and logs what that notices. CI runs a short form; -soak runs each attack as
// long as its figures need, and one that applies to a kube-apiserver, too, also there, for
// comparison.
package hostile
