package e2e

import (
	"log/slog"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func restConfig(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		cfg.QPS = -1
	}
	return cfg, err
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
