package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version = ""

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		GroupID:           groupSetUp,
		Short:             "Print the version of convoy",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: does(func(context.Context, []string) error {
			p.printf("convoy %s (%s %s/%s)", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}),
	}
}

// buildVersion is the version of the release, else that of the module, else the commit.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return "devel"
}
