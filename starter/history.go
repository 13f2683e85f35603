package main

import (
	"context"
	"io"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/spf13/cobra"
)

func (p *program) historyCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "history NAMESPACE/NAME",
		GroupID: groupLook,
		Short:   "List the renders that were applied",
		Long: `List the renders that were applied whole, newest first, with whole digests: when each was applied first and last, who asked
for it, and the sync in Temporal. As many are kept as spec.revisionHistoryLimit says. Syncs that failed stand in Temporal,
and the last one in ` + "`convoy status`" + `.`,
		Example:           "  convoy history team-a/shop\n  convoy history team-a/shop -o json | jq -r '.[0].digest'",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			_, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			if format != "" {
				return encode(p.stdout, format, append([]v1alpha1.HistoryEntry{}, rel.Status.History...))
			}
			if len(rel.Status.History) == 0 {
				p.printf("no render of Release %s was applied whole yet", args[0])
				return nil
			}
			printHistory(p.stdout, rel, p.now())
			return nil
		}),
	}
	outputFlag(cmd, &format)
	return cmd
}

func printHistory(w io.Writer, rel *v1alpha1.Release, now time.Time) {
	rows := [][]string{{"RENDER", "REVISION", "FIRST APPLIED", "LAST APPLIED", "ASKED BY", "RUN", ""}}
	for i, entry := range rel.Status.History {
		note := ""
		switch pin := rel.Spec.Pin; {
		case pin != nil && pin.Digest == entry.Digest && i == 0:
			note = "applied, pinned"
		case pin != nil && pin.Digest == entry.Digest:
			note = "pinned"
		case i == 0:
			note = "applied"
		}
		rows = append(rows, []string{
			entry.Digest, orDash(entry.Revision), ago(entry.FirstAppliedAt, now), ago(entry.LastAppliedAt, now),
			orDash(entry.RequestedBy), orDash(entry.RunID), note,
		})
	}
	table(w, "", rows)
}
