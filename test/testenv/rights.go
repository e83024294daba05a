package testenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
)

// Grant gives a ServiceAccount a Role with rules in its namespace, and returns when
// the authorizer has seen it.
func (c *ControlPlane) Grant(t testing.TB, namespace, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(c.Config())
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules,
	}, metav1.CreateOptions{})
	_, bindErr := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
					User: User(namespace, account),
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: group, Resource: rule.Resources[0], Namespace: namespace,
						Name: strings.Join(rule.ResourceNames, ""), // of one, if any
					},
				})
			}
		}
	}
	if err := WaitAllowed(t.Context(), client, reviews...); err != nil {
		t.Fatal(err)
	}
}

// User is the user name of a ServiceAccount.
func User(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// WaitAllowed waits until the authorizer allows what is reviewed: it sees new Roles
// and bindings with a delay.
func WaitAllowed(ctx context.Context, client kubernetes.Interface, reviews ...authorizationv1.SubjectAccessReviewSpec) error {
	for _, review := range reviews {
		err := await.Success(ctx, await.Timeout, func() error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
				&authorizationv1.SubjectAccessReview{Spec: review}, metav1.CreateOptions{})
			if err != nil {
				return await.Permanent(err)
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("%s may not %v%v", review.User, review.ResourceAttributes, review.NonResourceAttributes)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
