package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/spf13/cobra"
)

// flagError shortens err, cobra's error about the value of a flag, to one line, because the rejected value
// may have several.
func flagError(err error) error {
	text := err.Error()
	for of, right := range map[string]string{"Bool": "write true or false", "Int": "write a whole number"} {
		if before, _, found := strings.Cut(text, "strconv.Parse"+of+": "); found {
			text = before + right
		}
	}
	return errors.New(strings.ReplaceAll(text, "\n", `\n`))
}

var errEmptyName = errors.New("the name is empty")

// exactly returns a check for cobra that there is exactly one argument for each of names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return missing(names[len(args)])
		}
		return tooMany(args, len(names))
	}
}

// atMost returns a check for cobra that there is at most one argument for each of names.
func atMost(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error { return tooMany(args, len(names)) }
}

// between returns a check for cobra that the argument called first is there, and at most one for each of
// more.
func between(first string, more ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missing(first)
		}
		return tooMany(args, 1+len(more))
	}
}

// atLeast returns a check for cobra that the argument called first is there, followed by any number of
// others.
func atLeast(first string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missing(first)
		}
		return nil
	}
}

// missing returns the error for a command line without the argument that is called name.
func missing(name string) error { return usageError(fmt.Errorf("missing argument: %s", name)) }

func tooMany(args []string, most int) error {
	if len(args) > most {
		return usageError(fmt.Errorf("unexpected argument: %q", args[most]))
	}
	return nil
}

// group makes cmd a command that consists of subs, such as `snapfs pool`. Without an argument cmd prints its
// help; an argument that names none of subs is an error, for which [app.finish] suggests similar names.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(subs...)
	return cmd
}

// otherNames maps names of commands in other programs to those of snapfs.
var otherNames = map[string]string{
	"list": "ls", "ps": "ls", "remove": "rm", "delete": "rm", "destroy": "rm", "create": "new", "revert": "undo", "restore": "rollback",
	"info": "show", "inspect": "show", "enter": "shell", "checkpoint": "snapshot", "save": "snapshot", "merge": "promote", "kill": "stop",
}

// similar returns hints for typed, an unknown command below cmd: prefix and the name of each command that the
// person may have meant.
func similar(cmd *cobra.Command, prefix, typed string) (hints []string) {
	for _, name := range cmd.SuggestionsFor(typed) {
		hints = append(hints, prefix+" "+name)
	}
	for _, c := range cmd.Commands() {
		if hint := prefix + " " + c.Name(); c.Name() == otherNames[typed] && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	return hints
}

// optionalName returns the name in args[i], or "" if there is no such argument. An empty argument is an
// error, because in a script it usually is an unset variable.
func optionalName(args []string, i int) (string, error) {
	if len(args) <= i {
		return "", nil
	}
	if args[i] == "" {
		return "", usageError(errEmptyName)
	}
	return args[i], nil
}

// splitState splits an argument "sandbox@state", which names a snapshot of a sandbox, into both names; state
// is "" without an @.
func splitState(s string) (sandbox, state string) {
	sandbox, state, _ = strings.Cut(s, "@")
	return sandbox, state
}

// count returns a number with a noun, in the singular or plural, as text: "1 file", "2 files".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// A size is the value of a flag that is a number of bytes, such as 20G, with K, M, G or T for powers of 1024.
type size snapshot.Bytes

func (s *size) String() string { return snapshot.Bytes(*s).String() }

// Type returns the name that the help text has for the type of a flag with a number of bytes.
func (*size) Type() string { return "size" }

// Set parses a flag's value such as 20G, 512M, 1.5T or 1073741824, in bytes. Package pflag calls it.
func (s *size) Set(text string) error {
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "B"), "I")
	factor := 1.0
	if i := strings.IndexAny(number, "KMGT"); i >= 0 && i == len(number)-1 {
		factor = math.Pow(1024, float64(1+strings.IndexByte("KMGT", number[i])))
		number = number[:i]
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 || n*factor > 1<<60 {
		return errors.New("not a size (write 20G or 512M)")
	}
	*s = size(n * factor)
	return nil
}

// A durationValue is the value of a flag that is a duration, such as 90s or 2d; 0 stands for none.
type durationValue time.Duration

// Set parses a duration such as 90s, 1h30m or 2d12h. Package pflag calls it.
func (v *durationValue) Set(text string) error {
	d, err := units.ParseDuration(text)
	if errors.Is(err, units.ErrZero) {
		err = nil
	}
	if err == nil {
		*v = durationValue(d)
	}
	return err
}

func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return units.FormatDuration(time.Duration(*v))
}

// Type returns the name of the type of such a flag in the help text.
func (v *durationValue) Type() string { return "duration" }

// realDirectory returns the absolute path of a directory, without symbolic links if it exists. A missing one
// is no error here, because the function that uses it reports that.
func realDirectory(dir string) (string, error) {
	abs, err := absolute(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return abs, nil //nolint:nilerr // its user reports the error
	}
	return real, nil
}

// workspaceAt returns the path of the workspace dir without symbolic links, for a server of sandboxes.
func workspaceAt(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		dir, err = p.Path, p.Err
	}
	return real, errs.With("opening the workspace", dir, err)
}

// realPath returns the absolute path of a file, which need not exist, without symbolic links
// in its directories.
func realPath(path string) (string, error) {
	abs, err := absolute(path)
	if err != nil {
		return "", err
	}
	if dir, err := workdir(); err == nil && abs == filepath.Clean(dir) {
		return realDirectory(abs)
	}
	dir, rest := filepath.Split(abs)
	for {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest), nil
		}
		dir = filepath.Clean(dir)
		rest, dir = filepath.Join(filepath.Base(dir), rest), filepath.Dir(dir)
	}
}
