package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateIntake(rules []IntakeRule, path *field.Path) (errs field.ErrorList) {
	if len(rules) > maxIntake {
		errs = append(errs, field.TooMany(path, len(rules), maxIntake))
	}
	names := sets.New[string]()
	for i := range rules {
		r, path := &rules[i], path.Index(i)
		errs = append(errs, validateName(r.Name, names, path.Child("name"))...)
		errs = append(errs, r.validate(path)...)
	}
	return errs
}

func (r *IntakeRule) validate(path *field.Path) (errs field.ErrorList) {
	if r.Match == "" { // a rule that drops everything is never meant
		errs = append(errs, field.Required(path.Child("match"), `"true" matches every Event`))
	}
	switch {
	case r.Drop && r.Budget != nil:
		errs = append(errs, field.Forbidden(path, "may have only one of drop and budget"))
	case r.Budget != nil:
		errs = append(errs, r.Budget.validate(path.Child("budget"))...)
	case !r.Drop:
		errs = append(errs, field.Required(path, "needs one of drop and budget"))
	}
	return errs
}

func (b *Budget) validate(path *field.Path) (errs field.ErrorList) {
	if b.Burst < 1 {
		errs = append(errs, field.Invalid(path.Child("burst"), b.Burst, "must be at least 1"))
	}
	switch qps, err := b.QPS.PerSecond(); {
	case b.QPS == "":
		errs = append(errs, field.Required(path.Child("qps"), ""))
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("qps"), b.QPS, err.Error()))
	case !(qps > 0):
		errs = append(errs, field.Invalid(path.Child("qps"), b.QPS, `must be greater than 0, or "unlimited"`))
	}
	return errs
}
