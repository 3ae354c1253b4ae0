package e2b

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// The headers of a request for envd, E2B's program in a sandbox, which name the sandbox, its access token and
// its port; and the port that stands for envd itself.
const (
	idHeader    = "E2b-Sandbox-Id"
	tokenHeader = "X-Access-Token"
	portHeader  = "E2b-Sandbox-Port"
	envdPort    = 49983
)

// maxMessage is the largest size in bytes of a client's message in the protocol of envd, E2B's program in a
// sandbox. The server refuses a request with a larger one.
const maxMessage = 16 << 20

// envdPath reports whether the URL path p belongs to envd, E2B's program in a sandbox, and not to a control
// route, such as one that makes sandboxes.
func envdPath(p string) bool {
	return p == "/health" || p == "/files" || p == "/envs" || strings.HasPrefix(p, "/process.Process/") || strings.HasPrefix(p, "/filesystem.Filesystem/")
}

// envdRoutes returns the handler of the routes of envd, E2B's program in a sandbox, such as those that run
// commands. The context of each request must hold a [visit].
func (s *Server) envdRoutes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	m.HandleFunc("GET /envs", func(w http.ResponseWriter, r *http.Request) {
		envs := map[string]string{}
		for _, v := range s.environment(sandboxOf(r.Context()), nil) {
			name, value, _ := strings.Cut(v, "=")
			envs[name] = value
		}
		writeJSON(w, http.StatusOK, envs)
	})
	m.HandleFunc("GET /metrics", s.envdMetrics)
	m.HandleFunc("GET /files", s.download)
	m.HandleFunc("POST /files", s.upload)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "the agent has no route "+r.Method+" "+r.URL.Path)
	})
	limit := connect.WithReadMaxBytes(maxMessage)
	m.Handle(envd.NewProcessHandler(&processes{s}, limit))
	m.Handle(envd.NewFilesystemHandler(&filesystem{s}, limit))
	return m
}

type sandboxKey struct{}

// A visit is stored in the context of each request that E2B's program in a sandbox (envd) would answer: the
// open sandbox, and the values of the request's headers.
type visit struct {
	b    *opened
	call *call
}

func sandboxOf(ctx context.Context) *opened { return visitOf(ctx).b }
func callOf(ctx context.Context) *call      { return visitOf(ctx).call }

func visitOf(ctx context.Context) visit {
	v, _ := ctx.Value(sandboxKey{}).(visit) // serveEnvd sets it
	return v
}

// serveEnvd serves a request that is meant for a sandbox: for E2B's program there (envd), or for another port
// of the sandbox.
func (s *Server) serveEnvd(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(idHeader)
	if id == "" && r.URL.Path == "/health" {
		w.WriteHeader(http.StatusNoContent) // of this server
		return
	}
	if text := r.Header.Get(portHeader); text != "" && text != strconv.Itoa(envdPort) {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			writeError(w, http.StatusBadRequest, portHeader+" is no port")
			return
		}
		s.proxy(w, r, id, uint16(port))
		return
	}
	b, err := s.visited(r, id)
	switch {
	case errors.Is(err, errs.ErrNotFound):
		// What E2B's proxy says: clients look for these words.
		writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
		return
	case err != nil:
		fail(w, err)
		return
	}
	if !authorized(r, b) {
		writeError(w, http.StatusUnauthorized, "the request has no valid access token of the sandbox")
		return
	}
	if b, err = s.awake(r.Context(), b); err != nil {
		writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The running sandbox was not found: " + err.Error(), "code": http.StatusBadGateway})
		return
	}
	ctx := context.WithValue(r.Context(), sandboxKey{}, visit{b, newCall(r.Header, userOf(r))})
	s.envd.ServeHTTP(w, r.WithContext(ctx))
}

// visited opens the sandbox with this id that a request is meant for. The signed URL of a file names no
// sandbox; then it is the one whose token fits the signature.
func (s *Server) visited(r *http.Request, id string) (*opened, error) {
	if id != "" || r.URL.Query().Get("signature") == "" {
		return s.sandbox(r.Context(), id)
	}
	list, err := s.all(r.Context())
	if err != nil {
		return nil, err
	}
	for _, b := range list {
		if !b.meta.Snapshot && signed(r, b.meta.Token) {
			return b, nil
		}
	}
	return nil, notFound("")
}

// authorized reports whether a request may use the files and commands of the sandbox b: it has the sandbox's
// access token, or, for the content of a file, a signature made with that.
func authorized(r *http.Request, b *opened) bool {
	return hasToken(r, b) || r.URL.Path == "/files" && signed(r, b.meta.Token)
}

// hasToken reports whether a request has the access token of the sandbox b in its header.
func hasToken(r *http.Request, b *opened) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(b.meta.Token)) == 1
}

// signed reports whether the URL of a file in a sandbox has a signature, made with the access token token,
// that has not expired.
func signed(r *http.Request, token string) bool {
	q := r.URL.Query()
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if end := q.Get("signature_expiration"); end != "" {
		at, err := strconv.ParseInt(end, 10, 64)
		if err != nil || time.Now().Unix() > at {
			return false
		}
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare([]byte(q.Get("signature")), []byte("v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))) == 1
}

// awake returns the sandbox b if it is not paused. It resumes a paused one if the client that made the
// sandbox has asked for that (autoResume); otherwise it returns ErrBusy.
func (s *Server) awake(ctx context.Context, b *opened) (*opened, error) {
	if !b.paused() {
		return b, nil
	}
	if !b.meta.AutoResume {
		return nil, errs.New("opening", b.Name, errs.ErrBusy, "it is paused: connect to it")
	}
	if err := s.extend(ctx, b, max(b.meta.Timeout, usualTimeout)); err != nil {
		return nil, err
	}
	return s.sandbox(ctx, b.Name)
}

// path returns a client's path in the sandbox as an absolute one. A relative path begins at the workspace,
// which is the home directory.
func (b *opened) path(p string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = "." + p[1:]
	}
	if !path.IsAbs(p) {
		p = path.Join(b.Workspace, p)
	}
	return path.Clean(p)
}

// environment returns the environment variables of a command in the sandbox b: the harmless ones of this
// process, then those of the sandbox, then more, those of the request.
func (s *Server) environment(b *opened, more map[string]string) []string {
	env := hostfs.Environ(os.Environ(), b.Policy.Env)
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		env = append(env, name+"="+value)
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	set("HOME", b.Workspace)
	set("PWD", b.Workspace)
	set("E2B_SANDBOX", "true")
	set("E2B_SANDBOX_ID", b.Name)
	set("E2B_TEMPLATE_ID", b.meta.Template)
	for _, list := range []map[string]string{b.meta.Envs, more} {
		for name, value := range list {
			set(name, value)
		}
	}
	return env
}

// checkUser returns an error if a client asks to run a command as a user other than that of this server,
// because all commands run as that one. E2B's name of its usual user ("user") is accepted for it.
func (s *Server) checkUser(name string) error {
	if name == "" || name == "user" {
		return nil
	}
	me, err := user.Current()
	if err == nil && (me.Username == name || me.Uid == name) {
		return nil
	}
	return errs.New("choosing the user", name, errs.ErrInvalid, "commands run as the user of the server only")
}
