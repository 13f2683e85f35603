package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterTimeout bounds one request: a person waits.
const clusterTimeout = 15 * time.Second

// clusterConfig is the connection to the control cluster.
func (p *program) clusterConfig() (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{
		ExplicitPath: p.globals.kubeconfig,
		Precedence:   filepath.SplitList(p.env.get("KUBECONFIG")),
	}
	if len(rules.Precedence) == 0 {
		rules.Precedence = []string{p.homeKubeconfig()}
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: p.globals.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, failf(exitUsage, "control cluster: no kubeconfig is named, and there is none at %s: name a kubeconfig with --kubeconfig or KUBECONFIG",
			p.homeKubeconfig())
	}
	if err != nil {
		return nil, failf(exitUsage, "control cluster: %v: name a kubeconfig with --kubeconfig or KUBECONFIG, and a context with --context", err)
	}
	cfg.Timeout = clusterTimeout
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

func (p *program) homeKubeconfig() string {
	home := p.env.get("HOME")
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	return filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
}

// controlCluster makes the client; it sends nothing yet.
func (p *program) controlCluster() (*control.Client, error) {
	cfg, err := p.clusterConfig()
	if err != nil {
		return nil, err
	}
	return control.New(cfg)
}

// readRelease reads the Release that an argument names.
func (p *program) readRelease(ctx context.Context, arg string) (*control.Client, *v1alpha1.Release, error) {
	namespace, name, err := releaseName(arg)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := p.controlCluster()
	if err != nil {
		return nil, nil, err
	}
	rel, err := cluster.Release(ctx, namespace, name)
	return cluster, rel, err
}

// completionFor bounds how long a shell waits for names.
const completionFor = 3 * time.Second

// completeRelease completes NAMESPACE/NAME from the cluster, and says nothing when it cannot.
func (p *program) completeRelease(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || p.fromEnvironment(cmd.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionFor)
	defer cancel()
	names, err := p.releaseNames(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) releaseNames(ctx context.Context) ([]string, error) {
	cluster, err := p.controlCluster()
	if err != nil {
		return nil, err
	}
	list, err := cluster.Releases(ctx, "")
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for i := range list {
		names = append(names, list[i].Namespace+"/"+list[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// targetName is where a Release goes, for people.
func targetName(rel *v1alpha1.Release) string {
	if rel.Spec.ClusterRef == nil {
		return "control cluster"
	}
	return rel.Spec.ClusterRef.Name
}
