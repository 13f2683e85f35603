// Package shell is what a person types to use a running stack. It starts nothing and knows no parts.
package shell

import (
	"fmt"
	"strings"
)

// Stack is where the parts of a stack are; a part that was not started is empty.
type Stack struct {
	Kubeconfig      string
	TemporalAddress string
	UIURL           string
	BinDir          string // holds kubectl and temporal
}

// Greeting tells what to type in another terminal, and how the stack ends.
func Greeting(s Stack) string {
	var out strings.Builder
	out.WriteString("\nThe stack is up, and stays up until Ctrl-C. In another terminal:\n\n")
	for _, variable := range []struct{ name, value, more string }{
		{"KUBECONFIG", s.Kubeconfig, ""},
		{"TEMPORAL_ADDRESS", s.TemporalAddress, ""},
		{"PATH", s.BinDir, `:"$PATH"`},
	} {
		if variable.value != "" {
			fmt.Fprintf(&out, "  export %s=%s%s\n", variable.name, quoted(variable.value), variable.more)
		}
	}
	if s.UIURL != "" {
		fmt.Fprintf(&out, "\nTemporal's Web UI: %s\n", s.UIURL)
	}
	out.WriteString("\n")
	return out.String()
}

// quoted is a word of a shell; one of plain letters stays as it is.
func quoted(word string) string {
	plain := strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("/.:-_", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
	if plain {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
