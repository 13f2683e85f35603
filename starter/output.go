package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "json or yaml (default: text for people)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// checkFormat refuses an unknown -o before anything is asked of a cluster.
func checkFormat(format string) error {
	if format != "" && format != "json" && format != "yaml" {
		return failf(exitUsage, "-o %s: use json or yaml", format)
	}
	return nil
}

// encode writes a value as JSON or YAML.
func encode(w io.Writer, format string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err == nil && format == "yaml" {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(raw), "\n"))
	return err
}

// clean drops control characters: text of a cluster must not steer a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// table writes rows with aligned columns, indented.
func table(w io.Writer, indent string, rows [][]string) {
	var out strings.Builder
	tabs := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
		fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	_ = tabs.Flush()
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
		fmt.Fprintln(w, indent+strings.TrimRight(line, " "))
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(clean(text)), " ") }

// orDash stands in for what is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ago is a time for people: how long it is past, and when it was.
func ago(at metav1.Time, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s ago (%s)", since(at, now), at.UTC().Format(time.RFC3339))
}

func since(at metav1.Time, now time.Time) string { return duration.HumanDuration(now.Sub(at.Time)) }
