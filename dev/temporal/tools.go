//go:build tools

// Package tools names the program, so that go mod tidy keeps what it needs.
package tools

import _ "github.com/temporalio/cli/cmd/temporal"
