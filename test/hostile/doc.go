// Package hostile attacks a running eventd as its tenants could, and holds what
// others notice against what it is to promise: nobody but the attacker pays.
//
// Each attack is one test. It says what the attacker needs, and runs while a victim
// in another namespace reports ten Events a second. Where the attack applies to a
// kube-apiserver too, it is made there as well, so that the table that the package
// prints at its end has both. A short form runs in CI; -soak makes each attack last
// as long as its figures need.
package hostile
