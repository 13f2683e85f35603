package controlplane

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"convoy.dev/convoy/dev/stack/process"
)

// stageFiles say what kwok makes of nodes and pods. node-*, pod-ready, pod-complete and pod-delete are those of kwok
// v0.8.0 (kustomize/stage, Apache License 2.0), with conditions on the image's tag added; the others are ours. For any
// pod at most one stage matches, so weights are not needed.
//
//go:embed stages/*.yaml
var stageFiles embed.FS

// stages joins the stage files into the one document that kwok reads. Without stages kwok ends at once.
func stages() (string, error) {
	entries, err := stageFiles.ReadDir("stages")
	if err != nil {
		return "", err
	}
	var documents []string
	for _, entry := range entries {
		content, err := stageFiles.ReadFile("stages/" + entry.Name())
		if err != nil {
			return "", err
		}
		documents = append(documents, string(content))
	}
	return strings.Join(documents, "---\n"), nil
}

func (c *ControlPlane) startKwok() (*process.Process, error) {
	content, err := stages()
	if err != nil {
		return nil, fmt.Errorf("kwok's stages: %w", err)
	}
	file := filepath.Join(c.opts.Dir, "stages.yaml")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		return nil, fmt.Errorf("kwok's stages: %w", err)
	}
	return c.run("kwok", []string{
		"--kubeconfig=" + c.Kubeconfig,
		"--manage-all-nodes=true",
		"--node-lease-duration-seconds=40",
		"--config=" + file,
	}, "KWOK_WORKDIR="+c.opts.Dir) // otherwise a person's ~/.kwok/kwok.yaml is read too
}
