package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"convoy.dev/convoy/internal/envflag"
	"convoy.dev/convoy/internal/release"
)

// program is one run of the command line.
type program struct {
	stdout, stderr io.Writer
	env            environment
	now            func() time.Time
	globals        globals
}

// globals are the flags that several commands share.
type globals struct {
	kubeconfig        string
	context           string
	temporalAddress   string
	temporalNamespace string
	taskQueue         string
}

// environment is a list of NAME=value, as os.Environ gives it.
type environment []string

// Environ and LookupEnv make it a lookup for the Temporal SDK's envconfig.
func (e environment) Environ() []string { return e }

// LookupEnv finds a variable; the last one of a name counts.
func (e environment) LookupEnv(name string) (string, bool) {
	for i := len(e) - 1; i >= 0; i-- {
		if key, value, ok := strings.Cut(e[i], "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}

func (e environment) get(name string) string {
	value, _ := e.LookupEnv(name)
	return value
}

// run is the whole program; its result is the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	// The libraries' own logs would stand in between the output; what matters comes back as an error.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	p := &program{stdout: stdout, stderr: stderr, env: env, now: time.Now}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var known *failure
	if !errors.As(err, &known) {
		// Whatever a command returns is a failure: this is cobra's own word on the command line.
		known = ofCommandLine(err)
	}
	if known.message != "" {
		p.warnf("convoy: %s", known.message)
	}
	return known.code
}

// ofCommandLine is an unknown command in one line, with the ones that it may have been meant for.
func ofCommandLine(err error) *failure {
	text, suggested, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if names := strings.Fields(suggested); len(names) > 0 {
		text += ": did you mean " + strings.Join(names, " or ") + "?"
	}
	return failf(exitUsage, "%s (`convoy --help` lists the commands)", oneLine(text))
}

const longHelp = `convoy keeps Kubernetes clusters in the state that your rendered manifests describe.

A Release says what to deploy and where. A sync sends its objects to the cluster, wave by wave, with Server-Side
Apply, and then prunes what an earlier sync brought and the manifests no longer hold. Syncs run as Temporal workflows,
so they survive restarts, and anyone can look at them.`

const examples = `  # once for each cluster that holds Releases: the kinds, and Temporal's search attributes
  convoy install

  # what would the next sync do?
  convoy diff team-a/shop

  # sync now, and watch
  convoy sync team-a/shop --wait

  # how are they all, how is one, and what does convoy manage?
  convoy list
  convoy status team-a/shop
  convoy why team-a/shop
  convoy inventory team-a/shop`

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "convoy",
		Short:         "Sync rendered Kubernetes objects to clusters, and prune what is gone",
		Long:          longHelp,
		Example:       examples,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.globals.kubeconfig, "kubeconfig", "", "kubeconfig of the control cluster, which holds the Releases (default: KUBECONFIG, else ~/.kube/config, else in-cluster)")
	flags.StringVar(&p.globals.context, "context", "", "context in the kubeconfig (default: its current one)")
	flags.StringVar(&p.globals.temporalAddress, "temporal-address", "", "host:port of Temporal (default: TEMPORAL_ADDRESS or the Temporal profile file, which also give TLS and the API key)")
	flags.StringVar(&p.globals.temporalNamespace, "temporal-namespace", "", "Temporal namespace (default: TEMPORAL_NAMESPACE, else default)")
	flags.StringVar(&p.globals.taskQueue, "task-queue", "convoy", "task queue that the workers serve")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return p.fromEnvironment(cmd.Flags()) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return failf(exitUsage, "%v: see `%s --help`", err, cmd.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look:"}, &cobra.Group{ID: groupAct, Title: "Act:"}, &cobra.Group{ID: groupSetUp, Title: "Set up:"})
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
	root.AddCommand(p.listCommand(), p.statusCommand(), p.whyCommand(), p.inventoryCommand(), p.historyCommand(), p.diffCommand(),
		p.syncCommand(), p.reconcileCommand(), p.suspendCommand(), p.resumeCommand(), p.pinCommand(), p.unpinCommand(),
		p.approveCommand(), p.rejectCommand(),
		p.installCommand(), p.versionCommand(), exitCodesTopic())
	root.SetUsageTemplate(root.UsageTemplate() + envNote)
	return root
}

// The groups of commands in the help.
const (
	groupLook  = "look"
	groupAct   = "act"
	groupSetUp = "set-up"
)

const envNote = `{{if not .HasParent}}
Each flag has a twin in the environment: --task-queue is CONVOY_TASK_QUEUE. The flag wins.
{{end}}`

// fromEnvironment sets the flags that were not given from their twins, as the worker does.
func (p *program) fromEnvironment(flags *pflag.FlagSet) error {
	errs := envflag.Set(flags, p.env.get)
	if len(errs) == 0 {
		return nil
	}
	messages := make([]string, len(errs))
	for i, err := range errs {
		messages[i] = err.Error()
	}
	return failf(exitUsage, "%s", strings.Join(messages, "; "))
}

// does makes a command's work out of a function: whatever it returns gets its exit code here.
func does(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := work(cmd.Context(), args); err != nil {
			return asFailure(cmd.Context(), err)
		}
		return nil
	}
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return failf(exitUsage, "%[1]s takes no argument, and got %[2]q: see `%[1]s --help`", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneRelease is the argument of most commands.
func oneRelease(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return failf(exitUsage, "%s takes one argument, NAMESPACE/NAME of a Release, and got %d: see `%s --help`",
			cmd.CommandPath(), len(args), cmd.CommandPath())
	}
	_, _, err := releaseName(args[0])
	return err
}

// releaseName splits NAMESPACE/NAME.
func releaseName(arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok || strings.Contains(name, "/") {
		return "", "", failf(exitUsage, "%q is no Release: write NAMESPACE/NAME, for example team-a/shop", arg)
	}
	if err := release.CheckNames(namespace, name); err != nil {
		return "", "", failf(exitUsage, "%v", err)
	}
	return namespace, name, nil
}

// printf writes a line to the standard output; text that comes from a cluster loses its control characters.
func (p *program) printf(format string, args ...any) {
	fmt.Fprintln(p.stdout, clean(fmt.Sprintf(format, args...)))
}

// warnf writes a line to the standard error.
func (p *program) warnf(format string, args ...any) {
	fmt.Fprintln(p.stderr, clean(fmt.Sprintf(format, args...)))
}

// userName is who types.
func (p *program) userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return p.env.get("USER")
}
