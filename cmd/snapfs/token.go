package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/serve/token"
)

func newToken(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "make, list and remove the tokens of snapfs serve",
		Long: `Makes, lists and removes the bearer tokens that programs need for snapfs serve --listen. The
text of a token is printed once, and stored as a hash only. Whoever has it has its
scopes until it expires or is removed, which every server notices at the next request.

Scopes: read lists sandboxes and reads their files, changes and events; run makes and
removes sandboxes and runs commands in them; promote changes the real tree; cosign adds
another party's signature to the evidence of a sandbox.`,
		Example: `  snapfs token new --scope read,run --expires 30d ci
  snapfs token ls
  snapfs token rm ci`,
	}
	return group(cmd, newTokenNew(a), newTokenLs(a), newTokenRm(a))
}

// tokens returns the store of the API tokens in the state directory, for the commands below `snapfs token`.
func (a *app) tokens() (*token.Store, error) {
	state, err := a.openState()
	if err != nil {
		return nil, err
	}
	return token.Open(state), nil
}

// A newTokenDocument is the JSON form of `snapfs token new`: a new API token, with the secret text that
// clients of `snapfs serve` send.
type newTokenDocument struct {
	token.Token
	Text string `json:"token"`
}

func newTokenNew(a *app) *cobra.Command {
	var scopes, expires string
	cmd := &cobra.Command{
		Use:   "new [flags] name",
		Short: "make a token and print it",
		Args:  exactly("name"),
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := token.ParseScopes(scopes)
			if err != nil {
				return usageError(err)
			}
			t := token.Token{Name: args[0], Scopes: list, Created: time.Now().UTC().Truncate(time.Second)}
			if expires != "never" {
				d, err := units.ParseDuration(expires)
				if err == nil && d <= 0 {
					err = errors.New("--expires needs a duration, or never")
				}
				if err != nil {
					return usageError(err)
				}
				t.Expires = t.Created.Add(d)
			}
			store, err := a.tokens()
			if err != nil {
				return err
			}
			text, err := store.New(t)
			if err != nil {
				return err
			}
			return a.ui.say(newTokenDocument{t, text}, text)
		},
	}
	cmd.Flags().StringVar(&scopes, "scope", "read", "permit these `scopes`, separated by commas: read, run, promote, cosign")
	cmd.Flags().StringVar(&expires, "expires", "30d", "end the token after this `time`, or never")
	return cmd
}

func newTokenLs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "list the tokens",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			store, err := a.tokens()
			if err != nil {
				return err
			}
			list, err := store.List()
			if err != nil {
				return err
			}
			return a.ui.result(list, func(w io.Writer) error { return printTokens(w, list) })
		},
	}
}

func printTokens(w io.Writer, list []token.Token) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(list) > 0 {
		fmt.Fprintln(table, "NAME\tSCOPES\tCREATED\tEXPIRES")
	}
	for _, t := range list {
		var scopes []string
		for _, s := range t.Scopes {
			scopes = append(scopes, string(s))
		}
		end := "never"
		if !t.Expires.IsZero() {
			end = t.Expires.Local().Format("2006-01-02 15:04")
		}
		if t.Expired(time.Now()) {
			end += " (over)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", t.Name, strings.Join(scopes, ","), t.Created.Local().Format("2006-01-02 15:04"), end)
	}
	return table.Flush()
}

func newTokenRm(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm name...",
		Short: "remove tokens",
		Args:  atLeast("name"),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := a.tokens()
			for _, name := range args {
				if err == nil {
					err = store.Remove(name)
				}
			}
			if err != nil {
				return err
			}
			return a.ui.result(args, func(io.Writer) error { return nil })
		},
	}
}
