package controlplane

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
)

// writeKubeconfig writes the administrator's access with the certificates inside, so that the file can be copied.
func writeKubeconfig(file, url string, p pki) error {
	inline := func(name string) string { return base64.StdEncoding.EncodeToString(p.content[name]) }
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: convoy-dev
contexts:
- name: convoy-dev
  context: {cluster: convoy-dev, user: admin}
clusters:
- name: convoy-dev
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: admin
  user:
    client-certificate-data: %s
    client-key-data: %s
`, url, inline(caCert), inline(adminCert), inline(adminKey))

	work := filepath.Join(filepath.Dir(file), ".kubeconfig")
	if err := os.WriteFile(work, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := os.Rename(work, file); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}
