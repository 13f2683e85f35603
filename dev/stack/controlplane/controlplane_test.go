package controlplane

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCertificatesAreKeptAndWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := loadPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range first.content {
		if len(content) == 0 || !bytes.Equal(content, second.content[name]) {
			t.Errorf("%s is empty or was made again", name)
		}
	}
	if _, err := tls.X509KeyPair(first.content[serverCert], first.content[serverKey]); err != nil {
		t.Error(err)
	}
	if err := os.Remove(first.file(adminKey)); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPKI(dir); err == nil || !strings.Contains(err.Error(), "delete the folder "+dir) {
		t.Errorf("without a key: got %v", err)
	}
}

func TestEveryStageIsADocument(t *testing.T) {
	joined, err := stages()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := stageFiles.ReadDir("stages")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(joined, "\n---\n")
	if len(documents) != len(entries) {
		t.Fatalf("%d documents from %d files", len(documents), len(entries))
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		if !strings.Contains(joined, "kind: Stage\nmetadata:\n  name: "+name+"\n") {
			t.Errorf("%s holds no stage of that name", entry.Name())
		}
	}
}
