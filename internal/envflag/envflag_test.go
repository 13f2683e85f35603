package envflag

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestFlagsAreSetFromTheirTwins(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	queue := flags.String("task-queue", "convoy", "")
	level := flags.String("log-level", "info", "")
	empty := flags.String("empty", "default", "")
	roots := flags.StringArray("path-root", nil, "")
	help := flags.Bool("help", false, "")
	require.NoError(t, flags.Parse([]string{"--log-level=debug"}))
	env := map[string]string{
		"CONVOY_TASK_QUEUE": "other", "CONVOY_LOG_LEVEL": "error", "CONVOY_EMPTY": "", "CONVOY_PATH_ROOT": "/a:/b", "CONVOY_HELP": "true",
	}
	require.Empty(t, Set(flags, func(name string) string { return env[name] }))
	require.Equal(t, "other", *queue)
	require.Equal(t, "debug", *level, "the flag wins")
	require.Equal(t, "default", *empty)
	require.Equal(t, []string{"/a", "/b"}, *roots)
	require.False(t, *help, "a person asks for help, not an environment")
}

func TestEverythingThatIsWrongIsTold(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Bool("force", false, "")
	flags.Duration("stop-timeout", time.Second, "")
	env := map[string]string{"CONVOY_FORCE": "perhaps", "CONVOY_STOP_TIMEOUT": "soon"}
	errs := Set(flags, func(name string) string { return env[name] })
	require.Len(t, errs, 2)
	require.ErrorContains(t, errs[0], `CONVOY_FORCE="perhaps": `)
	require.ErrorContains(t, errs[1], `CONVOY_STOP_TIMEOUT="soon": `)
}
