package renderstore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
)

// patience bounds what a test waits for on a loaded machine.
const patience = time.Minute

// newS3 starts a server that speaks S3, with one empty bucket, and returns the store's URL of that bucket. Endpoint and
// style are in the URL, the credentials in the environment.
func newS3(t *testing.T) string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("renders"))
	s3 := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIAEXAMPLE/") {
			http.Error(w, "<Error><Code>AccessDenied</Code><Message>no key of ours</Message></Error>", http.StatusForbidden)
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "s3://renders?" + url.Values{"endpoint": {server.URL}, "region": {"us-east-1"}, "use_path_style": {"true"}}.Encode()
}

// A wrong bucket is named, whether it is written or read first.
func TestS3BucketThatIsNotThere(t *testing.T) {
	right := newS3(t)
	s := open(t, strings.Replace(right, "renders", "elsewhere", 1))
	r := render(t, meter)
	_, err := s.Put(t.Context(), r)
	t.Log(err)
	require.ErrorContains(t, err, "in the render store s3://elsewhere")
	require.ErrorContains(t, err, "NoSuchBucket")
	require.NotErrorIs(t, err, ErrNotFound)
	_, err = s.Get(t.Context(), r.Digest)
	t.Log(err)
	require.ErrorContains(t, err, "NoSuchBucket")
	require.NotErrorIs(t, err, ErrNotFound, "a render that is not there is something else")
}

// Another worker reads what the first wrote: it is in the bucket, under its key.
func TestS3StoreOutlivesTheWorker(t *testing.T) {
	bucket := newS3(t)
	r := render(t, meter)
	key, err := open(t, bucket).Put(t.Context(), r)
	require.NoError(t, err)
	second := open(t, bucket)
	_, err = second.Get(t.Context(), r.Digest)
	require.NoError(t, err)
	attributes, err := second.bucket.Attributes(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "application/x-ndjson", attributes.ContentType)
}

// Credentials come from the environment; wrong ones are an error that shows none of them.
func TestS3KeyThatIsNotTaken(t *testing.T) {
	bucket := newS3(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
	s := open(t, bucket)
	r := render(t, meter)
	_, err := s.Put(t.Context(), r)
	require.ErrorContains(t, err, "Forbidden")
	_, err = s.Get(t.Context(), r.Digest)
	require.ErrorContains(t, err, "AccessDenied")
	require.NotErrorIs(t, err, ErrNotFound)
	require.NotContains(t, err.Error(), "hushhush")
}

// An S3 server that is out of reach is an error with the store's name, and without the credentials.
func TestS3ServerOutOfReach(t *testing.T) {
	newS3(t)
	s := open(t, "s3://renders?region=us-east-1&use_path_style=true&endpoint=http://127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := s.Put(ctx, render(t, meter))
	t.Log(err)
	require.ErrorContains(t, err, "in the render store s3://renders")
	require.NotContains(t, err.Error(), "hushhush")
	require.NotErrorIs(t, err, ErrNotFound)
}
