package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const wide = "wide"

func (p *program) listCommand() *cobra.Command {
	var format, namespace string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		GroupID: groupLook,
		Short:   "List the Releases",
		Long: `List the Releases of the control cluster: is the last render applied, is the Release ready, when was its last sync, when
is it looked at again. With -o wide also the target, the applied render and whole messages; with -o json or yaml each
Release's status as the API server has it.`,
		Example:           "  convoy list\n  convoy list -n team-a -o wide",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: does(func(ctx context.Context, _ []string) error {
			if format != wide && checkFormat(format) != nil {
				return failf(exitUsage, "-o %s: use json, yaml or wide", format)
			}
			return p.list(ctx, namespace, format)
		}),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Kubernetes namespace of the Releases (default: all)")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json, yaml or wide (default: text for people)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", wide}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("namespace", p.completeNamespace)
	return cmd
}

func (p *program) list(ctx context.Context, namespace, format string) error {
	cluster, err := p.controlCluster()
	if err != nil {
		return err
	}
	list, err := cluster.Releases(ctx, namespace)
	if apierrors.IsForbidden(err) && namespace == "" {
		return failf(exitFailed, "%v: name a namespace with -n", err)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b v1alpha1.Release) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case format == "json" || format == "yaml":
		return encode(p.stdout, format, plainList(list))
	case len(list) == 0 && namespace != "":
		p.warnf("there is no Release in namespace %s", namespace)
	case len(list) == 0:
		p.warnf("there is no Release")
	default:
		printList(p.stdout, list, format == wide, p.now())
	}
	return nil
}

// releaseList is what -o json shows of Releases: no spec (D10).
type releaseList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []releaseStatus `json:"items"`
}

func plainList(list []v1alpha1.Release) releaseList {
	out := releaseList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ReleaseList"}, Items: []releaseStatus{},
	}
	for i := range list {
		out.Items = append(out.Items, plainStatus(&list[i]))
	}
	return out
}

func printList(w io.Writer, list []v1alpha1.Release, wide bool, now time.Time) {
	head := []string{"NAMESPACE", "NAME", "APPLIED", "READY", "LAST SYNC", "NEXT", "SUSPENDED"}
	if wide {
		head = append(head, "TARGET", "RENDER")
	}
	rows := [][]string{append(head, "MESSAGE")}
	for i := range list {
		rows = append(rows, listRow(&list[i], wide, now))
	}
	table(w, "", rows)
}

// listedMessage is how many characters of a message a row shows.
const listedMessage = 40

func listRow(rel *v1alpha1.Release, wide bool, now time.Time) []string {
	status := rel.Status
	lastSync, suspended, message := "-", "-", oneLine(listMessage(rel))
	if status.LastAttempted != nil {
		lastSync = since(status.LastAttempted.StartedAt, now) + " ago"
	}
	if rel.Spec.Suspend {
		suspended = "true"
	}
	row := []string{
		rel.Namespace, rel.Name, conditionCell(status.Conditions, v1alpha1.ConditionApplied), conditionCell(status.Conditions, v1alpha1.ConditionReady),
		lastSync, orDash(nextCell(rel, now)), suspended,
	}
	if !wide {
		return append(row, fit(message, listedMessage))
	}
	render := "-"
	if status.LastSuccessful != nil {
		render = release.ShortDigest(status.LastSuccessful.Digest)
	}
	return append(row, targetName(rel), render, message)
}

// conditionCell is "True", or "False/DeployFailed".
func conditionCell(conditions []metav1.Condition, kind string) string {
	condition := meta.FindStatusCondition(conditions, kind)
	switch {
	case condition == nil:
		return "-"
	case condition.Status == metav1.ConditionTrue:
		return "True"
	}
	return string(condition.Status) + "/" + condition.Reason
}

// nextCell is when convoy looks at a Release again by itself: "in 3m".
func nextCell(rel *v1alpha1.Release, now time.Time) string {
	next := rel.Status.NextReconcileAt
	switch {
	case next == nil || rel.Spec.Suspend:
		return ""
	case !next.After(now):
		return "now"
	}
	return "in " + duration.HumanDuration(next.Sub(now))
}

// listMessage is what is to be said of a Release: what it does, else what is wrong.
func listMessage(rel *v1alpha1.Release) string {
	conditions := rel.Status.Conditions
	if rel.DeletionTimestamp != nil {
		return "is being deleted"
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionApplied); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReconciling); c != nil && c.Message != "" {
		return c.Message
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

// completeNamespace completes the namespaces that hold Releases.
func (p *program) completeNamespace(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names, directive := p.completeRelease(cmd, nil, "")
	for i := range names {
		names[i], _, _ = releaseName(names[i])
	}
	return slices.Compact(names), directive
}
