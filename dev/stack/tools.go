//go:build tools

package main

// Named here so that go mod tidy keeps the pin that the Temporal server needs.
import _ "go.opentelemetry.io/otel/log"
