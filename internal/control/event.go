package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event records an Event on a Release. The same event of the same sync (key) is recorded once, however often the step
// that records it runs.
func (c *Client) Event(ctx context.Context, rel *v1alpha1.Release, key, eventType, reason, message string, now time.Time) error {
	sum := sha256.Sum256([]byte(string(rel.UID) + "\x00" + key + "\x00" + reason))
	if len(message) > 1024 {
		message = strings.ToValidUTF8(message[:1021], "") + "..."
	}
	at := metav1.NewTime(now)
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rel.Namespace,
			Name:      fmt.Sprintf("%.200s.%s", rel.Name, hex.EncodeToString(sum[:8])),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Release",
			Namespace: rel.Namespace, Name: rel.Name, UID: rel.UID, ResourceVersion: rel.ResourceVersion,
		},
		Reason: reason, Message: message, Type: eventType, Count: 1,
		FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "convoy"},
		ReportingController: "convoy.dev/worker",
	}
	err := c.client.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
