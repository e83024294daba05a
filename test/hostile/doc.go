// Package hostile attacks a running eventd as its tenants could. An attack must not
// affect anybody but the attacker.
//
// Each attack is one test. It states which rights the attacker needs, and runs while a
// victim in another namespace reports ten Events per second. An attack that applies to
// a kube-apiserver, too, is also run there, for comparison in the table that the
// package prints at its end. CI runs a short form; -soak runs each attack as long as
// its figures need.
package hostile
