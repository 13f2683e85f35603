package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"convoy.dev/convoy/internal/preview"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/source"

	"github.com/spf13/cobra"
)

const longDiff = `Show what the next sync of a Release would create, change, prune and keep, and what the cluster rejects.

The Release is rendered here, and its target cluster is asked by dry runs: nothing is changed, and Temporal is not
needed. The identity is that of the sync: the Cluster's kubeconfig, or your own on the control cluster.

  + create       the object is new
  ~ change       fields change, old value -> new value; values of Secrets are never shown
  - prune        the render no longer holds it: it is deleted
  = keep         it leaves the inventory and stays on the cluster
  ! rejected     the cluster refuses it: the sync would end as Unappliable and apply nothing
  ? unverified   it cannot be judged before something else of this render is there

Exit codes: 0 nothing would change, 1 something would, above 1 the sync would fail or an error: see
` + "`convoy help exit-codes`."

func (p *program) diffCommand() *cobra.Command {
	var options source.Options
	cmd := &cobra.Command{
		Use:               "diff NAMESPACE/NAME",
		GroupID:           groupLook,
		Short:             "Show what the next sync would change and prune",
		Long:              longDiff,
		Example:           "  convoy diff team-a/shop\n  convoy diff team-a/shop --path-root /renders",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			cluster, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			path := rel.Spec.Source.Path
			if path != nil && len(options.PathRoots) == 0 {
				return failf(exitUsage, "Release %s comes from the path %s on the worker, and diff renders on this machine: name a directory here that holds it with --path-root",
					args[0], *path)
			}
			seen, err := preview.Look(ctx, preview.Input{Release: rel, Control: cluster, Source: source.New(options)})
			if err != nil {
				return onThisMachine(err, path != nil)
			}
			for _, warning := range seen.Warnings {
				p.warnf("warning: %s", warning)
			}
			printPreview(p.stdout, seen)
			return diffExit(seen)
		}),
	}
	cmd.Flags().StringArrayVar(&options.PathRoots, "path-root", nil, "directory on this machine that path sources may lie below; repeatable (in the environment: separated by colons)")
	cmd.Flags().BoolVar(&options.AllowLocalURLs, "allow-local-urls", false, "let url sources lead to loopback, link-local and metadata addresses")
	_ = cmd.MarkFlagDirname("path-root")
	return cmd
}

// onThisMachine adds to the fault of a path source where it was looked for: the worker may well have it.
func onThisMachine(err error, isPath bool) error {
	var fetch *source.Error
	if isPath && errors.As(err, &fetch) {
		return failf(exitRenderFailed, "%s: %s (on this machine: the worker has files and a --path-root of its own)", release.RenderFailed, fetch.Message)
	}
	return err
}

// diffExit is what the next sync would come to.
func diffExit(seen *preview.Preview) error {
	switch {
	case seen.Refusal != nil:
		return failf(exitOfReason(string(seen.Refusal.Reason)), "the next sync would be refused (%s): %s", seen.Refusal.Reason, seen.Refusal.Message)
	case seen.Count(preview.Reject) > 0:
		return failf(exitUnappliable, "the cluster rejects %s: the next sync would end as %s and change nothing",
			release.Count(seen.Count(preview.Reject), "object"), release.Unappliable)
	case seen.Count(preview.Unjudged) > 0:
		return failf(exitDeployFailed, "the cluster could not judge %s for now: try again", release.Count(seen.Count(preview.Unjudged), "object"))
	case len(seen.Changes) > 0:
		return &failure{code: exitDifferent}
	}
	return nil
}

// marks stand in front of each change.
var marks = map[preview.Action]string{
	preview.Create: "+ create", preview.Update: "~ change", preview.Prune: "- prune", preview.Keep: "= keep",
	preview.Reject: "! rejected", preview.Unverified: "? unverified", preview.Unjudged: "? unjudged",
}

// maxFields bounds the fields that are shown of one object.
const maxFields = 40

func printPreview(w io.Writer, seen *preview.Preview) {
	for i := range seen.Changes {
		printChange(w, &seen.Changes[i])
	}
	fmt.Fprintln(w, clean(summary(seen)))
}

func printChange(w io.Writer, change *preview.Change) {
	head := marks[change.Action] + " " + change.Ref.String()
	if change.Ref.Group != "" {
		head += " (" + change.Ref.Group + ")"
	}
	switch {
	case change.Action == preview.Keep:
		head += " (stays: " + change.Detail + ")"
	case change.Detail != "":
		head += ": " + change.Detail
	}
	fmt.Fprintln(w, oneLine(head))
	if len(change.TakenOver) > 0 {
		fmt.Fprintf(w, "    takes over the fields of %s: those that the render does not have go\n", oneLine(strings.Join(change.TakenOver, ", ")))
	}
	if change.Action == preview.Update && len(change.Fields)+len(change.TakenOver) == 0 {
		fmt.Fprintln(w, "    values stay, convoy becomes the owner of fields, or gives some up")
	}
	for i, field := range change.Fields {
		if i == maxFields {
			fmt.Fprintf(w, "    … and %s\n", release.Count(len(change.Fields)-maxFields, "more field"))
			break
		}
		printField(w, field)
	}
}

func printField(w io.Writer, field preview.Field) {
	switch {
	case len(field.Lines) > 0:
		fmt.Fprintf(w, "    %s:\n", clean(field.Path))
		for _, line := range field.Lines {
			fmt.Fprintf(w, "      %s\n", clean(line))
		}
	case field.Old == "":
		fmt.Fprintf(w, "    %s: + %s\n", clean(field.Path), clean(field.New))
	case field.New == "":
		fmt.Fprintf(w, "    %s: - %s\n", clean(field.Path), clean(field.Old))
	default:
		fmt.Fprintf(w, "    %s: %s -> %s\n", clean(field.Path), clean(field.Old), clean(field.New))
	}
}

// summary is the last line.
func summary(seen *preview.Preview) string {
	text := "render " + release.ShortDigest(seen.Digest)
	if seen.Refusal != nil {
		return text + " would be refused"
	}
	var parts []string
	for _, part := range []struct {
		action preview.Action
		text   string
	}{
		{preview.Create, "to create"}, {preview.Update, "to change"}, {preview.Prune, "to prune"}, {preview.Keep, "to keep"},
		{preview.Reject, "rejected"}, {preview.Unverified, "unverified"}, {preview.Unjudged, "unjudged"},
	} {
		if n := seen.Count(part.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, part.text))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%s: no difference, %s unchanged", text, release.Count(seen.Unchanged, "object"))
	}
	return fmt.Sprintf("%s: %s, %d unchanged", text, strings.Join(parts, ", "), seen.Unchanged)
}
