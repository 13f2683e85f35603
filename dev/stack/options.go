package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"convoy.dev/convoy/dev/stack/ports"
)

// options are the flags of devstack.
type options struct {
	binDir    string
	dataDir   string
	logDir    string
	endpoints string
	auditLog  string
	stdin     bool
	restart   bool

	kubernetes bool
	kubeconfig string // a cluster that exists already

	temporal        bool
	temporalAddress string // a Temporal server that exists already
	temporalPort    int
	ui              bool
	uiPort          int
}

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("devstack", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.StringVar(&o.binDir, "bin-dir", "", "folder with the programs; `up` of dev/build sets it")
	flags.StringVar(&o.dataDir, "data-dir", "", "keep workflows and objects in this folder (default: nothing is kept)")
	flags.StringVar(&o.logDir, "log-dir", "", "folder for the logs of the parts (default: in the data or temporary folder)")
	flags.StringVar(&o.endpoints, "endpoints", "", "also write the line of JSON to this file")
	flags.StringVar(&o.auditLog, "audit-log", "", "let the API server write its audit log to this file")
	flags.BoolVar(&o.stdin, "stdin", false, "end when the standard input is closed")
	flags.BoolVar(&o.restart, "restart", false, "start a part of the control plane again when it is killed, instead of ending")
	flags.BoolVar(&o.kubernetes, "kubernetes", true, "start a Kubernetes control plane")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "use the cluster of this kubeconfig instead of starting one")
	flags.BoolVar(&o.temporal, "temporal", true, "start a Temporal server")
	flags.StringVar(&o.temporalAddress, "temporal-address", "", "use the Temporal server at this address instead of starting one")
	flags.IntVar(&o.temporalPort, "temporal-port", 0, "port of the Temporal server (default: a free one)")
	flags.BoolVar(&o.ui, "ui", true, "serve Temporal's Web UI")
	flags.IntVar(&o.uiPort, "ui-port", 0, "port of the Web UI (default: a free one)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: devstack takes flags only", flags.Arg(0))
	}
	return o, o.check()
}

// check reports every problem at once.
func (o options) check() error {
	var problems []error
	for _, path := range []struct{ flag, value string }{
		{"--bin-dir", o.binDir}, {"--data-dir", o.dataDir}, {"--log-dir", o.logDir},
		{"--endpoints", o.endpoints}, {"--audit-log", o.auditLog}, {"--kubeconfig", o.kubeconfig},
	} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			problems = append(problems, fmt.Errorf(
				"%s %s must be absolute: under go run -C it would be read from another folder than yours", path.flag, path.value))
		}
	}
	if o.binDir == "" {
		problems = append(problems, errors.New("--bin-dir is missing: start devstack with `go run -C dev/build . up`"))
	}
	if o.kubeconfig != "" {
		if _, err := os.Stat(o.kubeconfig); err != nil {
			problems = append(problems, fmt.Errorf("--kubeconfig: %w", err))
		}
	}
	for _, port := range []struct {
		flag  string
		value int
	}{{"--temporal-port", o.temporalPort}, {"--ui-port", o.uiPort}} {
		if port.value == 0 {
			continue
		}
		if err := ports.Check(port.value); err != nil {
			problems = append(problems, fmt.Errorf("%s %d: %w; name another port, or 0 for a free one", port.flag, port.value, err))
		}
	}
	return errors.Join(problems...)
}

func (o options) startsControlPlane() bool { return o.kubernetes && o.kubeconfig == "" }

func (o options) startsTemporal() bool { return o.temporal && o.temporalAddress == "" }
