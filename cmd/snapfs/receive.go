package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/workflow/transfer"
	"github.com/spf13/cobra"
)

func newReceive(a *app) *cobra.Command {
	var req requestFlags
	var have, forget bool
	cmd := &cobra.Command{
		Use:   "receive [flags] [sandbox[@state]]",
		Short: "create a sandbox or named snapshot from a stream of snapfs send",
		Long: `Reads a stream of snapfs send from standard input.

A full stream creates a sandbox whose workspace holds the files sent: snapfs diff
compares them with the real directory here, and snapfs promote merges them into it. The
directory is the sender's, or -C; it must exist. The flags set the sandbox's policy, as
for snapfs new; a budget with which the sandbox was sent stays in force besides.

A difference to a base adds a named snapshot to the sandbox that has the base. The
sandbox's files do not change until snapfs rollback SANDBOX STATE. So an attempt can
run on another machine, and its result come back.

Nothing appears before the whole stream has arrived and its SHA-256 matches. snapfs
keeps a partial stream for a week if there is space; --have lists it for snapfs send
--have, which sends the rest, and --forget deletes it. A stream is not signed: receive
from machines that you trust, over ssh. An ordinary user owns all received files, and
attributes that only root can set (security.*, trusted.*) are left out; snapfs names
the first of them.`,
		Example: `  snapfs send fix | ssh big snapfs receive -C /srv/project
  ssh big snapfs send fix@done --base s1 | snapfs receive
  snapfs rollback fix done && snapfs apply fix
  snapfs receive --have | ssh big snapfs send fix@done --have - | snapfs receive`,
		ValidArgsFunction: a.completeSandbox,
		Args:              atMost("sandbox[@state]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			arg, err := optionalName(args, 0)
			if err != nil {
				return err
			}
			if strings.HasSuffix(arg, "@") {
				return usageError(errEmptyName)
			}
			switch {
			case have && forget:
				return usageError(errors.New("--have and --forget exclude one another"))
			case forget && arg != "":
				return usageError(errors.New("--forget takes no sandbox: it deletes all partial streams"))
			case have && strings.Contains(arg, "@"):
				return usageError(errors.New("--have takes a sandbox without a snapshot"))
			case have:
				return a.have(cmd, arg)
			case forget:
				return a.forget(cmd)
			}
			if isTerminal(a.ui.in) {
				return usageError(errors.New("standard input is a terminal; use ssh HOST snapfs send SANDBOX | snapfs receive"))
			}
			return a.receive(cmd, &req, arg)
		},
	}
	req.add(cmd)
	cmd.Flags().Lookup("workspace").Usage = "use this `directory` as the workspace (default the sender's)"
	cmd.Flags().BoolVar(&have, "have", false, "print the snapshots and partial streams of this host, for snapfs send --have")
	cmd.Flags().BoolVar(&forget, "forget", false, "delete partial streams")
	return cmd
}

func (a *app) receive(cmd *cobra.Command, flags *requestFlags, arg string) error {
	var state string
	flags.name, state = splitState(arg)
	there := flags.workspace == ""
	if there && flags.profile == "" {
		flags.profile = profile.None // one that is found here has nothing to do with it
	}
	r, _, err := flags.request(cmd.Context(), a)
	if err != nil {
		return err
	}
	if there {
		r.Workspace = ""
	}
	e, err := a.engine(cmd.Context())
	if err != nil {
		return err
	}
	p := newProgress(a.ui)
	in := &counting{r: input(cmd.Context(), a.ui.in), progress: p}
	got, err := transfer.New(e).Receive(cmd.Context(), in, transfer.ReceiveRequest{Request: r, State: state})
	p.end()
	if err != nil {
		return err
	}
	return a.ui.say(got, got.Sandbox+"@"+got.State)
}

// A forgottenStreams is the JSON form of the result of `snapfs receive --forget`: of how many states it deleted the
// partial files.
type forgottenStreams struct {
	Removed int `json:"removed"`
}

// forget deletes the partial files of interrupted receives, for `snapfs receive --forget`.
func (a *app) forget(cmd *cobra.Command) error {
	e, err := a.engine(cmd.Context())
	if err != nil {
		return err
	}
	n, err := transfer.New(e).Forget()
	if err != nil {
		return err
	}
	return a.ui.result(forgottenStreams{n}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "removed the partial streams of %s\n", count(n, "state"))
		return err
	})
}

// have prints the identities of the named snapshots and partial files on this machine: of the sandbox called
// arg, or of all if arg is "". On the sending machine they are the input of --have, so that only differences
// are sent.
func (a *app) have(cmd *cobra.Command, arg string) error {
	e, err := a.engine(cmd.Context())
	if err != nil {
		return err
	}
	ids, err := transfer.New(e).Offers(arg)
	return errors.Join(a.ui.result(ids, func(w io.Writer) error {
		for _, id := range ids {
			if _, err := fmt.Fprintln(w, id); err != nil {
				return err
			}
		}
		return nil
	}), err)
}
