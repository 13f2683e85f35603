package main

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// temporalClient is a connection of the test's own.
func (s *stack) temporalClient(namespace string) *temporal {
	s.t.Helper()
	p := &program{env: s.env, globals: globals{temporalNamespace: namespace}}
	c, err := p.dialTemporal(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// temporalNamespace makes a Temporal namespace that nobody else knows, and waits until Temporal serves it.
func (s *stack) temporalNamespace() string {
	s.t.Helper()
	c := s.temporalClient("")
	name := "cli-" + s.namespace
	_, err := c.WorkflowService().RegisterNamespace(s.t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		_, err := c.OperatorService().ListSearchAttributes(s.t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: name})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	return name
}

func TestInstallIsRepeatable(t *testing.T) {
	s := newStack(t)
	namespace := s.temporalNamespace()

	first := s.run("install", "--temporal-namespace", namespace, "--dry-run")
	require.Equal(t, exitDone, first.code, first.stderr)
	require.Contains(t, first.stdout, "search attribute ConvoyRelease (Keyword) would be created\n")

	second := s.run("install", "--temporal-namespace", namespace)
	require.Equal(t, exitDone, second.code, second.stderr)
	require.Equal(t, `customresourcedefinition clusters.convoy.dev unchanged
customresourcedefinition releaseinventories.convoy.dev unchanged
customresourcedefinition releases.convoy.dev unchanged
search attribute ConvoyCluster (Keyword) created
search attribute ConvoyReason (Keyword) created
search attribute ConvoyRelease (Keyword) created
search attribute ConvoyStalled (Bool) created
search attribute ConvoyStep (Keyword) created
search attribute ConvoyWave (Int) created
`, second.stdout)

	third := s.run("install", "--temporal-namespace", namespace)
	require.Equal(t, exitDone, third.code, third.stderr)
	require.Equal(t, 9, strings.Count(third.stdout, " unchanged\n"), third.stdout)
}

func TestInstallRefusesASearchAttributeOfAnotherType(t *testing.T) {
	s := newStack(t)
	namespace := s.temporalNamespace()
	_, err := s.temporalClient(namespace).OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace:        namespace,
		SearchAttributes: map[string]enumspb.IndexedValueType{release.AttributeRelease: enumspb.INDEXED_VALUE_TYPE_INT},
	})
	require.NoError(t, err)
	got := s.run("install", "--temporal-namespace", namespace)
	require.Equal(t, exitFailed, got.code, got.stdout)
	require.Contains(t, got.stderr, "search attribute ConvoyRelease of the Temporal namespace \""+namespace+"\" has the type Int, and convoy needs Keyword")
	require.Contains(t, got.stderr, "temporal operator search-attribute remove --name ConvoyRelease")
	require.Contains(t, got.stderr, "the CustomResourceDefinitions are installed")
}

func TestInstallWithoutTemporalSaysWhatIsMissing(t *testing.T) {
	s := newStack(t)
	got := s.run("install", "--temporal-address", "127.0.0.1:1")
	require.Equal(t, exitUnreachable, got.code)
	require.Equal(t, 3, strings.Count(got.stdout, "customresourcedefinition"))
	require.Contains(t, got.stderr, "Temporal at 127.0.0.1:1 cannot be reached")
	require.Contains(t, got.stderr, "run `convoy install` again")
}
