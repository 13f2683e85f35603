package main

import (
	"context"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/spf13/cobra"
)

func (p *program) pinCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "pin NAMESPACE/NAME [DIGEST]",
		GroupID: groupAct,
		Short:   "Hold a Release at a render",
		Long: `Set spec.pin of a Release: the loop applies that render of the render store and keeps correcting drift to it, whatever the
source has, until ` + "`convoy unpin`" + `. Without a digest it is the render that was applied last; the beginning of a digest of
` + "`convoy history`" + ` is enough. The workers need a render store (--render-store-url).`,
		Example:           "  convoy pin team-a/shop                 # at what is applied now\n  convoy pin team-a/shop sha256:3f1c     # at an earlier render",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			cluster, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			digest, err := pinTo(rel, args[1:])
			if err != nil {
				return err
			}
			if err := cluster.SetPin(ctx, rel, digest); err != nil {
				return err
			}
			p.printf("Release %s is held at render %s until `convoy unpin %s`", args[0], digest, args[0])
			return nil
		}),
	}
}

func (p *program) unpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "unpin NAMESPACE/NAME",
		GroupID: groupAct,
		Short:   "Let a pinned Release follow its source again",
		Long: `Take spec.pin of a Release away: the render of its source is applied as soon as a worker takes it; in mode Manual with the
next request. It can be repeated.`,
		Example:           "  convoy unpin team-a/shop",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			cluster, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			if rel.Spec.Pin == nil {
				p.printf("Release %s is not pinned", args[0])
				return nil
			}
			if err := cluster.SetPin(ctx, rel, ""); err != nil {
				return err
			}
			p.printf("Release %s follows its source again", args[0])
			return nil
		}),
	}
}

// pinTo is the digest to pin to: the one that is meant, or that of the render applied last.
func pinTo(rel *v1alpha1.Release, args []string) (string, error) {
	if len(args) == 0 {
		if rel.Status.LastSuccessful == nil {
			return "", failf(exitFailed, "Release %s/%s has no render that was applied: name a digest", rel.Namespace, rel.Name)
		}
		return rel.Status.LastSuccessful.Digest, nil
	}
	return wholeDigest(rel, args[0])
}

// shortestDigest is how much of a digest has to be typed.
const shortestDigest = len("sha256:") + 4

// wholeDigest is the digest that a person means: a whole one, or the beginning of one in the history.
func wholeDigest(rel *v1alpha1.Release, typed string) (string, error) {
	if digestForm.MatchString(typed) {
		return typed, nil
	}
	begin := "sha256:" + strings.TrimPrefix(typed, "sha256:")
	found := map[string]bool{}
	for _, entry := range rel.Status.History {
		if len(begin) >= shortestDigest && strings.HasPrefix(entry.Digest, begin) {
			found[entry.Digest] = true
		}
	}
	switch len(found) {
	case 1:
		for digest := range found {
			return digest, nil
		}
	case 0:
		return "", failf(exitUsage, "%q is neither a digest (sha256: and 64 hex digits) nor the beginning of one in the history of Release %s/%s: "+
			"look at `convoy history %[2]s/%[3]s`", typed, rel.Namespace, rel.Name)
	}
	return "", failf(exitUsage, "%q is the beginning of %s in the history: type more of it", typed, release.Count(len(found), "digest"))
}
