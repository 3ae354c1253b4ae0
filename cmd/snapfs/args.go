package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

var errEmptyName = errors.New("the name is empty")

// exactly makes sure that there is one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usageError{fmt.Errorf("%s is missing", names[len(args)])}
		}
		return tooMany(args, len(names))
	}
}

// atMost allows one argument for each name, or fewer.
func atMost(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error { return tooMany(args, len(names)) }
}

// between asks for the first name and allows the others.
func between(first string, more ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{fmt.Errorf("%s is missing", first)}
		}
		return tooMany(args, 1+len(more))
	}
}

// atLeast asks for the first name and allows any number of further arguments.
func atLeast(first string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{fmt.Errorf("%s is missing", first)}
		}
		return nil
	}
}

func tooMany(args []string, most int) error {
	if len(args) > most {
		return usageError{fmt.Errorf("one argument too many: %q", args[most])}
	}
	return nil
}

// splitState takes "sandbox@state" apart; the state is "" where none is named.
func splitState(s string) (sandbox, state string) {
	sandbox, state, _ = strings.Cut(s, "@")
	return sandbox, state
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
