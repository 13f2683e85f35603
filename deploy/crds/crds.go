// Package crds holds convoy's CustomResourceDefinitions, generated from api/v1alpha1, for the binaries that install or
// check them.
package crds

import "embed"

// Files are the CustomResourceDefinitions, one file for each kind.
//
//go:embed *.yaml
var Files embed.FS
