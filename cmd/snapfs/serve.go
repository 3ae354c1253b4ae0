package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/serve/local"
)

// serveWhere is api.Where as JSON, whose package would cost every start of snapfs.
type serveWhere struct {
	Socket string   `json:"socket,omitempty"`
	Listen string   `json:"listen,omitempty"`
	Cert   string   `json:"cert,omitempty"`
	Key    string   `json:"key,omitempty"`
	Hosts  []string `json:"hosts,omitempty"`
	Stdio  bool     `json:"stdio,omitempty"`
}

// serveRequest is what snapfs-serve reads.
type serveRequest struct {
	State     string     `json:"state"`
	Program   string     `json:"program"`
	Workspace string     `json:"workspace"`
	Backend   string     `json:"backend,omitempty"`
	Where     serveWhere `json:"where"`
}

// socketName is the name of the socket in the state directory.
const socketName = "serve.sock"

func newServe(a *app) *cobra.Command {
	var q serveRequest
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "serve the HTTP API for programs",
		Long: `Serves all sandboxes of the state directory over HTTP, until it is interrupted: make and
fork sandboxes, run commands with their output as it comes, read and write files, take
snapshots, compare, plan, promote and undo. docs/serve.md has a session;
GET /v1/openapi.json describes every route.

It listens on a unix socket that only this user and root can open: serve.sock in the
state directory. With --listen it listens on a TCP address instead, and every request
needs a token ("snapfs token new"); an address that is not loopback needs TLS. A socket
that systemd passes is used as it is.

The server has no state of its own. It may be killed at any time, and commands may work
beside it. What callers run in the background goes on without it.`,
		Example: `  snapfs serve
  curl --unix-socket /var/lib/snapfs/serve.sock http://snapfs/v1/sandboxes
  snapfs serve --listen 127.0.0.1:7070
  snapfs serve --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem
  ssh host snapfs serve --stdio`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			if err := local.CheckOutside(); err != nil {
				return err
			}
			if err := a.completeServe(&q); err != nil {
				return err
			}
			text, err := json.Marshal(q)
			if err != nil {
				return err
			}
			program, err := run.Beside("snapfs-serve", a.ui.notice)
			if err != nil {
				return errs.With("serving", "", err)
			}
			// In place of this process, so that a signal to it, its death and a socket of systemd's are those of the server.
			return run.Replace(program[0], "api", string(text))
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Where.Socket, "socket", "", "listen on this unix socket `path` (default serve.sock in the state directory)")
	f.StringVar(&q.Where.Listen, "listen", "", "listen on this TCP `address`, such as 127.0.0.1:7070")
	f.StringVar(&q.Where.Cert, "tls-cert", "", "use the certificate in this PEM `file`, with its chain")
	f.StringVar(&q.Where.Key, "tls-key", "", "use the key in this PEM `file`")
	f.StringArrayVar(&q.Where.Hosts, "host", nil, "also answer requests for this host `name`")
	f.BoolVar(&q.Where.Stdio, "stdio", false, "serve one connection on standard input and output")
	f.StringVarP(&q.Workspace, "workspace", "C", "", "clone this `directory` where a request names none (default the git work tree around the current directory, or the current directory)")
	return cmd
}

// completeServe checks the flags and completes what they leave out.
func (a *app) completeServe(q *serveRequest) (err error) {
	w := &q.Where
	ways := 0
	for _, set := range []bool{w.Socket != "", w.Listen != "", w.Stdio} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return usageError(errors.New("--socket, --listen and --stdio exclude each other"))
	case (w.Cert == "") != (w.Key == ""):
		return usageError(errors.New("--tls-cert and --tls-key need each other"))
	case (w.Cert != "" || len(w.Hosts) > 0) && w.Listen == "":
		return usageError(errors.New("--tls-cert and --host require --listen"))
	}
	state, err := a.openState()
	if err == nil {
		q.State, err = absolute(state)
	}
	if err != nil {
		return err
	}
	if w.Socket, err = absolute(cmp.Or(w.Socket, filepath.Join(q.State, socketName))); err != nil {
		return err
	}
	for _, file := range []*string{&w.Cert, &w.Key} {
		if *file != "" {
			if *file, err = absolute(*file); err != nil {
				return err
			}
		}
	}
	if q.Workspace, err = usualWorkspace(q.Workspace); err != nil {
		return err
	}
	q.Backend = os.Getenv("SNAPFS_BACKEND")
	q.Program, err = os.Executable()
	return errs.With("serving", "", err)
}

// usualWorkspace returns the workspace that a directory stands for: as a flag says, or that of the current directory.
func usualWorkspace(flag string) (string, error) {
	dir, err := absolute(flag)
	if err == nil && flag == "" {
		dir, err = hostfs.Workspace(dir)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return dir, errs.With("serving", dir, err)
}
