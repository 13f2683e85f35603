package shell

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTheGreetingIsWhatAShellTakes(t *testing.T) {
	text := Greeting(Stack{
		Kubeconfig: "/tmp/it's here/kubeconfig", TemporalAddress: "127.0.0.1:7233", UIURL: "http://127.0.0.1:8233", BinDir: "/tmp/bin",
	})
	for _, want := range []string{"until Ctrl-C", "export TEMPORAL_ADDRESS=127.0.0.1:7233\n", "Web UI: http://127.0.0.1:8233\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	var exports []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "export ") {
			exports = append(exports, strings.TrimSpace(line))
		}
	}
	script := strings.Join(exports, "\n") + "\nprintf '%s|%s|%s' \"$KUBECONFIG\" \"$TEMPORAL_ADDRESS\" \"${PATH%%:*}\""
	got, err := exec.Command("sh", "-c", script).Output()
	if want := "/tmp/it's here/kubeconfig|127.0.0.1:7233|/tmp/bin"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestWhatWasNotStartedIsNotNamed(t *testing.T) {
	text := Greeting(Stack{TemporalAddress: "127.0.0.1:7233", BinDir: "/tmp/bin"})
	if strings.Contains(text, "KUBECONFIG") || strings.Contains(text, "Web UI") {
		t.Error(text)
	}
}
