package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Audience is that of tokens which are good for convoy alone. Tokens for the API server itself are taken as well.
const Audience = "convoy.dev"

// User is who calls, as the control cluster knows him.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authorizationv1.ExtraValue
}

// Gate asks the control cluster who a token belongs to (TokenReview), and what he may do (SubjectAccessReview). It
// remembers nothing: what is taken away from somebody is gone at once.
type Gate struct {
	client kubernetes.Interface
}

// NewGate makes a Gate. It sends no request yet, and limits no rate: the API server's fairness does that.
func NewGate(cfg *rest.Config) (*Gate, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent = -1, "convoy-endpoint"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("control cluster at %s: %w", cfg.Host, err)
	}
	return &Gate{client: client}, nil
}

// Who is the user that a token belongs to, nil when the control cluster does not accept it. No error holds the token.
func (g *Gate) Who(ctx context.Context, token string) (*User, error) {
	for _, audiences := range [][]string{nil, {Audience}} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
		answer, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, errors.New("TokenReview: " + strings.ReplaceAll(err.Error(), token, "TOKEN"))
		}
		// A server that knows nothing of audiences would take any token for this one.
		meant := audiences == nil || slices.Contains(answer.Status.Audiences, Audience)
		if answer.Status.Authenticated && meant && answer.Status.User.Username != "" {
			return userOf(answer.Status.User), nil
		}
	}
	return nil, nil
}

func userOf(info authenticationv1.UserInfo) *User {
	user := &User{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: map[string]authorizationv1.ExtraValue{}}
	for name, values := range info.Extra {
		user.Extra[name] = authorizationv1.ExtraValue(values)
	}
	return user
}

// May reports whether a user has a verb on a Release.
func (g *Gate) May(ctx context.Context, user *User, verb string, key types.NamespacedName) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: user.Extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "releases",
			Namespace: key.Namespace, Name: key.Name, Verb: verb,
		},
	}}
	answer, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("SubjectAccessReview: %w", err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
