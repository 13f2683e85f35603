package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// request is one request of convoy that the API server has answered, as its audit log tells.
type request struct {
	Verb, Group, Resource, Subresource, Namespace, Name string
	// User is whom the API server took the request for, after impersonation.
	User   string
	DryRun bool
	Code   int
	// ReceivedAt and CompletedAt are the API server's own times.
	ReceivedAt, CompletedAt time.Time
}

// String is a request in short, for whole lists of expected requests: "patch configmaps/shop 201",
// "patch deployments/web dry run 500".
func (r request) String() string {
	what := r.Resource
	if r.Name != "" {
		what += "/" + r.Name
	}
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if r.DryRun {
		what += " dry run"
	}
	return fmt.Sprintf("%s %s %d", r.Verb, what, r.Code)
}

// isWrite: the request was to change an object, or to try a change.
func (r request) isWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// isBookkeeping: the request is about convoy's own resources, or an event.
func (r request) isBookkeeping() bool {
	return r.Group == v1alpha1.GroupVersion.Group || r.Resource == "events"
}

// mark is a moment in the audit log.
type mark int64

// mark returns the present moment: requests answered by now lie before it.
func (w *world) mark() mark {
	w.Helper()
	info, err := os.Stat(w.auditLog())
	require.NoError(w, err)
	return w.catchUp(mark(info.Size()))
}

// requests are convoy's answered requests about objects in the world's namespace since a mark, in the order of their
// answers, and others that one of also says yes to. Convoy's own resources and events are left out.
func (w *world) requests(since mark, also ...func(request) bool) []request {
	w.Helper()
	var list []request
	for _, r := range w.allRequests(since) {
		wanted := r.Namespace == w.ns
		for _, accepts := range also {
			wanted = wanted || accepts(r)
		}
		if wanted && !r.isBookkeeping() {
			list = append(list, r)
		}
	}
	return list
}

// allRequests are all of convoy's answered requests since a mark, whatever they are about. Other tests cause some.
func (w *world) allRequests(since mark) []request {
	w.Helper()
	now := w.catchUp(since)
	log := w.readAudit(since)[:now-since]
	var list []request
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(`"userAgent":"convoy"`)) {
			list = append(list, w.parseAudit(line))
		}
	}
	return list
}

// about accepts the requests about one object that is not in the world's namespace.
func about(resource, namespace, name string) func(request) bool {
	return func(r request) bool { return r.Resource == resource && r.Namespace == namespace && r.Name == name }
}

// within accepts the requests about objects in a namespace.
func within(namespace string) func(request) bool {
	return func(r request) bool { return r.Namespace == namespace }
}

// writes keeps the requests that were to change an object, or to try a change.
func writes(list []request) []request { return filter(list, request.isWrite) }

// dryRuns keeps the requests that only tried a change.
func dryRuns(list []request) []request {
	return filter(list, func(r request) bool { return r.DryRun })
}

// changes keeps the requests that were to change an object.
func changes(list []request) []request {
	return filter(list, func(r request) bool { return r.isWrite() && !r.DryRun })
}

func filter(list []request, keep func(request) bool) []request {
	var kept []request
	for _, r := range list {
		if keep(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// said is every request in short.
func said(list []request) []string {
	short := []string{}
	for _, r := range list {
		short = append(short, r.String())
	}
	return short
}

func (w *world) auditLog() string {
	if w.info.AuditLog != "" {
		return w.info.AuditLog
	}
	return auditLog
}

// catchUp waits until the log has caught up with what was answered by now, and returns that moment. The API server
// writes an event before the answer's last byte, so the log of a request that is sent now ends what was there.
func (w *world) catchUp(since mark) mark {
	w.Helper()
	marker := "marker-" + string(uuid.NewUUID())
	err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: marker}, &corev1.ConfigMap{})
	require.True(w, apierrors.IsNotFound(err), "%v", err)
	var now mark
	w.eventually("the audit log catches up", func() error {
		log := w.readAudit(since)
		at := bytes.Index(log, []byte(marker))
		end := bytes.IndexByte(log[max(at, 0):], '\n')
		if at < 0 || end < 0 {
			return fmt.Errorf("%s is not in %s yet", marker, w.auditLog())
		}
		now = since + mark(at+end+1)
		return nil
	})
	return now
}

func (w *world) readAudit(since mark) []byte {
	w.Helper()
	file, err := os.Open(w.auditLog())
	require.NoError(w, err)
	defer func() { _ = file.Close() }()
	log, err := io.ReadAll(io.NewSectionReader(file, int64(since), 1<<40))
	require.NoError(w, err)
	return log
}

func (w *world) parseAudit(line []byte) request {
	w.Helper()
	var event struct {
		Verb       string
		RequestURI string
		User       struct{ Username string }
		// ImpersonatedUser is absent where nobody was impersonated.
		ImpersonatedUser *struct{ Username string }
		ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus   struct{ Code int }

		RequestReceivedTimestamp, StageTimestamp time.Time
	}
	require.NoError(w, json.Unmarshal(line, &event))
	uri, err := url.Parse(event.RequestURI)
	require.NoError(w, err)
	user := event.User.Username
	if event.ImpersonatedUser != nil {
		user = event.ImpersonatedUser.Username
	}
	object := event.ObjectRef
	return request{
		Verb: strings.ToLower(event.Verb), Group: object.APIGroup, Resource: object.Resource, Subresource: object.Subresource,
		Namespace: object.Namespace, Name: object.Name, User: user, DryRun: uri.Query().Has("dryRun"),
		Code: event.ResponseStatus.Code, ReceivedAt: event.RequestReceivedTimestamp, CompletedAt: event.StageTimestamp,
	}
}
