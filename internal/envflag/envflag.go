// Package envflag gives flags their twins in the environment, the same for every program of convoy. It reads what it is
// handed and never the process's own environment.
package envflag

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Twin is the variable that stands for a flag: CONVOY_TASK_QUEUE for task-queue.
func Twin(flag string) string {
	return "CONVOY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Set sets the flags that were not given from their twins. An empty variable counts as absent, and a repeatable flag's
// values are separated by colons. It returns everything that is wrong, each error with its variable and value.
func Set(flags *pflag.FlagSet, env func(string) string) []error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		twin := Twin(flag.Name)
		value := env(twin)
		if flag.Changed || value == "" || flag.Name == "help" {
			return
		}
		values := []string{value}
		if flag.Value.Type() == "stringArray" {
			values = strings.Split(value, ":")
		}
		for _, v := range values {
			if err := flags.Set(flag.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", twin, v, err))
			}
		}
	})
	return errs
}
