package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/snapfs/snapfs/serve/token"
)

// A serveWhere says where the server listens, in the same JSON form as api.Where. That type is not used,
// because its package would slow down every start of snapfs.
type serveWhere struct {
	Socket string   `json:"socket,omitempty"`
	Group  string   `json:"group,omitempty"`
	Listen string   `json:"listen,omitempty"`
	Cert   string   `json:"cert,omitempty"`
	Key    string   `json:"key,omitempty"`
	Hosts  []string `json:"hosts,omitempty"`
	Stdio  bool     `json:"stdio,omitempty"`
}

// A serveRequest is the configuration that `snapfs serve` passes to the program snapfs-serve, as JSON.
type serveRequest struct {
	State     string     `json:"state"`
	Program   string     `json:"program"`
	Workspace string     `json:"workspace"`
	Backend   string     `json:"backend,omitempty"`
	Where     serveWhere `json:"where"`
	// Login are the scopes of the link to the page that the server prints; none for no link.
	Login []token.Scope `json:"login,omitempty"`

	MCP *serve.Rules     `json:"mcp,omitempty"`
	E2B *serve.E2BConfig `json:"e2b,omitempty"`
}

// A server is one run of `snapfs serve`: the values of its flags, of which it makes the configuration of
// snapfs-serve.
type server struct {
	serveRequest
	flags     requestFlags
	e2b       serve.E2BConfig
	templates []string
	login     string
	// withE2B and withMCP are set to serve these, too.
	withE2B, withMCP bool
}

// socketName is the file name, in the state directory, of the unix socket on which `snapfs serve` listens.
const socketName = "serve.sock"

func newServe(a *app) *cobra.Command {
	var q server
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
that systemd passes is used as it is. With --group the members of a group may open the
socket too, and every request needs a token.

At / is a page for a browser: sandboxes, their changes and jobs, to review and to promote. It asks
for a token. --login prints a link that logs a browser in once, within ten minutes, with the given
scopes and for twelve hours.

--mcp also serves agents, as "snapfs mcp" does, at the path /mcp. --e2b also serves programs
written for E2B, at the root of the address, and prints E2B_API_URL and E2B_SANDBOX_URL for them;
they also need E2B_API_KEY. The flags of snapfs new hold for the sandboxes of both
(docs/agents.md).

The server has no state of its own. It may be killed at any time, and commands may work
beside it. What callers run in the background continues without it.`,
		Example: `  snapfs serve
  curl --unix-socket /var/lib/snapfs/serve.sock http://snapfs/v1/sandboxes
  snapfs serve --socket /run/snapfs/serve.sock --group developers
  snapfs serve --listen 127.0.0.1:7070
  snapfs serve --listen 127.0.0.1:7070 --login read,run,promote
  snapfs serve --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem
  ssh host snapfs serve --stdio`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := local.CheckOutside(); err != nil {
				return err
			}
			if err := a.completeServe(&q); err != nil {
				return err
			}
			if err := a.addProtocols(cmd.Context(), &q); err != nil {
				return err
			}
			text, err := exactjson.Encode(q.serveRequest)
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
	f.StringVar(&q.Where.Group, "group", "", "let the members of this `group` open the socket, with a token")
	f.StringVar(&q.Where.Listen, "listen", "", "listen on this TCP `address`, such as 127.0.0.1:7070")
	f.StringVar(&q.Where.Cert, "tls-cert", "", "use the certificate in this PEM `file`, with its chain")
	f.StringVar(&q.Where.Key, "tls-key", "", "use the key in this PEM `file`")
	f.StringArrayVar(&q.Where.Hosts, "host", nil, "also answer requests for this host `name`")
	f.BoolVar(&q.Where.Stdio, "stdio", false, "serve one connection on standard input and output")
	f.StringVar(&q.login, "login", "", "print a link to the page for one login with these `scopes`: read, run, promote, cosign")
	q.flags.add(cmd)
	q.flags.addProve(cmd)
	f.BoolVar(&q.withMCP, "mcp", false, "also serve agents at /mcp")
	f.BoolVar(&q.withE2B, "e2b", false, "also serve programs written for E2B")
	f.StringVar(&q.e2b.KeyFile, "e2b-key", "", "with --e2b, require the API key in this `file`")
	f.StringArrayVar(&q.templates, "template", nil, "with --e2b, offer a profile as a template, as `NAME=FILE`")
	q.e2b.MaxTimeout = 24 * time.Hour
	f.Var((*durationValue)(&q.e2b.MaxTimeout), "max-timeout", "with --e2b, allow time-outs up to this `duration`")
	return cmd
}

// checkServe returns a usage error if flags of `snapfs serve` contradict each other or lack one that they need.
func checkServe(q *server) error {
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
	case w.Group != "" && (w.Listen != "" || w.Stdio):
		return usageError(errors.New("--group is for the unix socket, and excludes --listen and --stdio"))
	case w.Group != "" && w.Socket == "" && os.Getenv("LISTEN_FDS") == "":
		return usageError(errors.New("--group requires --socket: nobody else can open the state directory, in which the socket is otherwise"))
	case (w.Cert == "") != (w.Key == ""):
		return usageError(errors.New("--tls-cert and --tls-key need each other"))
	case (w.Cert != "" || len(w.Hosts) > 0) && w.Listen == "":
		return usageError(errors.New("--tls-cert and --host require --listen"))
	case q.login != "" && w.Listen == "":
		return usageError(errors.New("--login requires --listen: a browser opens no unix socket"))
	}
	return nil
}

// completeServe checks the flags of `snapfs serve` and sets the fields that they leave out.
func (a *app) completeServe(q *server) (err error) {
	if err := checkServe(q); err != nil {
		return err
	}
	w := &q.Where
	if q.login != "" {
		if q.Login, err = token.ParseScopes(q.login); err != nil {
			return usageError(err)
		}
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
	if q.Workspace, err = usualWorkspace(q.flags.workspace); err != nil {
		return err
	}
	if q.Backend = q.flags.backend; q.Backend == "" {
		q.Backend = os.Getenv("SNAPFS_BACKEND")
	}
	q.Program, err = os.Executable()
	return errs.With("serving", "", err)
}

// addProtocols adds the protocols that --mcp and --e2b request to the configuration of the server. It checks
// the flags that apply only to these protocols.
func (a *app) addProtocols(ctx context.Context, q *server) error {
	own := []string{"socket", "group", "listen", "tls-cert", "tls-key", "host", "stdio", "login", "workspace", "backend", "mcp", "e2b", "state", "json"}
	for _, name := range []string{"e2b-key", "template", "max-timeout"} {
		if q.flags.given.Changed(name) && !q.withE2B {
			return usageError(errors.New("--" + name + " requires --e2b"))
		}
	}
	var other string
	q.flags.given.Visit(func(f *pflag.Flag) {
		if !slices.Contains(own, f.Name) {
			other = f.Name
		}
	})
	switch {
	case other != "" && !q.withE2B && !q.withMCP:
		return usageError(errors.New("--" + other + " requires --mcp or --e2b"))
	case q.withE2B && q.e2b.MaxTimeout <= 0:
		return usageError(errors.New("--max-timeout must be positive"))
	case q.withE2B && q.Where.Listen == "":
		return usageError(errors.New("--e2b requires --listen"))
	case !q.withE2B && !q.withMCP:
		return nil
	}
	rules, err := a.agentRules(ctx, &q.flags)
	if err != nil {
		return err
	}
	if q.withMCP {
		q.MCP = &rules
	}
	if !q.withE2B {
		return nil
	}
	q.E2B = &q.e2b
	q.E2B.Rules, q.E2B.Hosts = rules, q.Where.Hosts
	if q.E2B.Templates, err = templateFlags(q.templates); err == nil && q.E2B.KeyFile != "" {
		q.E2B.KeyFile, err = absolute(q.E2B.KeyFile)
	}
	return err
}

// usualWorkspace returns the workspace of new sandboxes: the directory flag, or without that the workspace of
// the current directory, without symbolic links.
func usualWorkspace(flag string) (string, error) {
	dir, err := absolute(flag)
	if err == nil && flag == "" {
		dir, err = hostfs.Workspace(dir)
	}
	if err != nil {
		return "", errs.With("serving", flag, err)
	}
	return workspaceAt(dir)
}

// templateFlags parses the values NAME=PROFILE of the flag --template, and returns the paths of the profiles
// by name. Clients of `snapfs serve --e2b` name one as the template of a sandbox.
func templateFlags(list []string) (map[string]string, error) {
	templates := map[string]string{}
	for _, text := range list {
		name, file, ok := strings.Cut(text, "=")
		if !ok || name == "" || file == "" || name == "base" {
			return nil, usageError(errors.New("--template takes NAME=FILE, and the name base is taken"))
		}
		path, err := absolute(file)
		if err != nil {
			return nil, err
		}
		templates[name] = path
	}
	return templates, nil
}
