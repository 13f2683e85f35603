package main

import (
	"slices"
	"testing"
)

func TestTheEnvironmentIsIgnoredInTests(t *testing.T) {
	getenv := func(name string) string { return map[string]string{"KUBECONFIG": "/theirs"}[name] }
	for _, tc := range []struct{ args, want []string }{
		{nil, []string{"--kubeconfig", "/theirs"}},
		{[]string{"--stdin"}, nil},
		{[]string{"--kubeconfig=/mine"}, nil},
	} {
		if got := fromEnvironment(getenv, tc.args); !slices.Equal(got, tc.want) {
			t.Errorf("%v: got %v, want %v", tc.args, got, tc.want)
		}
	}
}
