//go:build tools

// Package tools names the program, so that go mod tidy keeps what it needs.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
	_ "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	_ "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	_ "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)
