// Package registry finds the package registries that a user's own programs fetch from.
//
// It asks npm, pip, go and cargo for their settings, so that a mirror which the user has configured is found,
// and no name of a registry stands in this program. It reads nothing of the current directory: a project's
// settings may have been written by a sandbox.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// Programs are the names of the package managers whose registries [Hosts] can find.
var Programs = []string{"cargo", "go", "npm", "pip"}

// timeout is how long a package manager may take to print its settings before it is killed and [Hosts] fails:
// npm and pip need about a second.
const timeout = 30 * time.Second

// Hosts returns the servers that a program of [Programs] fetches packages from, each as "HOST:PORT", sorted.
// An empty result means that it is configured to fetch nothing.
//
// The program runs on the host, outside of every sandbox. So none is run from workspace, into which a sandbox
// may have written: directories of PATH in it do not count, and neither do variables that a virtual
// environment or a script of npm's has set.
//
// Cost: the program runs for 0.1 to 1 second in the directory /, with this process's environment; for cargo
// only files are read. Errors: errs.ErrNotFound (the program is not installed, or cargo has never fetched and
// so has not stored where its registry is), errs.ErrInvalid (its settings cannot be understood), those of
// [run.Run].
func Hosts(ctx context.Context, program, workspace string) ([]string, error) {
	list, ok := map[string]func(context.Context, string) ([]string, error){"cargo": cargo, "go": golang, "npm": npm, "pip": pip}[program]
	if !ok {
		return nil, errs.New("finding package servers", program, errs.ErrInvalid, "unknown program; use one of "+strings.Join(Programs, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	urls, err := list(ctx, workspace)
	if err != nil {
		return nil, errs.With("finding package servers", program, err)
	}
	var hosts []string
	for _, text := range urls {
		host, err := hostOf(text)
		if err != nil {
			return nil, errs.With("finding package servers", program, err)
		}
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// hostOf returns the host and port of a package registry's URL. A text without a scheme is the name of a host
// with TLS.
func hostOf(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", errs.New("", "", errs.ErrInvalid, fmt.Sprintf("not the address of a server: %q", text))
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// settingsOf runs the program called name with args, so that it prints settings, in the root directory, and
// returns its output. Errors: errs.ErrNotFound if there is no such program outside the workspace.
func settingsOf(ctx context.Context, workspace, name string, args ...string) ([]byte, error) {
	path, err := find(name, workspace)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	err = run.Run(ctx, run.Program{Name: path, Args: args, Dir: "/", Env: environ(workspace), Stdout: &out})
	return []byte(out.String()), err
}

// find returns the path of a program in those directories of PATH that are outside the workspace, also after
// symbolic links.
func find(name, workspace string) (string, error) {
	for _, dir := range outside(workspace) {
		path := filepath.Join(dir, name)
		real, err := filepath.EvalSymlinks(path)
		if err != nil || within(real, workspace) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errs.New("", name, errs.ErrNotFound, "not installed outside the workspace")
}

// outside returns the directories of PATH that are outside the workspace, also after symbolic links.
func outside(workspace string) []string {
	return slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		real, err := filepath.EvalSymlinks(dir)
		return err != nil || !filepath.IsAbs(dir) || within(dir, workspace) || within(real, workspace)
	})
}

// within reports whether a path is the workspace or lies in it, where a sandbox may have written a program.
func within(path, workspace string) bool {
	if real, err := filepath.EvalSymlinks(workspace); err == nil && real != workspace && within(path, real) {
		return true
	}
	rel, err := filepath.Rel(workspace, path)
	return workspace != "" && err == nil && filepath.IsLocal(rel)
}

// environ returns the environment for a program that prints settings: without the directories of PATH in the
// workspace, the variables of a virtual environment of Python, and those of a script that npm runs, which has
// the settings of its project.
func environ(workspace string) []string {
	_, script := os.LookupEnv("npm_lifecycle_event")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "PATH" || name == "VIRTUAL_ENV" || name == "NODE_OPTIONS" || script && strings.HasPrefix(strings.ToLower(name), "npm_")
	})
	path := "PATH=" + strings.Join(outside(workspace), string(filepath.ListSeparator))
	return append(env, path, "LC_ALL=C", "GOTOOLCHAIN=local")
}

// npm returns the URLs of the registries in npm's settings: the general one, and those of single scopes
// (@NAME). It runs an npm outside the workspace.
func npm(ctx context.Context, workspace string) (urls []string, err error) {
	out, err := settingsOf(ctx, workspace, "npm", "config", "list", "--json", "--logs-max=0") // it writes no log
	if err != nil {
		return nil, err
	}
	settings := map[string]any{}
	if err := json.Unmarshal(out, &settings); err != nil {
		return nil, errs.New("", "", errs.ErrInvalid, "npm config list --json: "+err.Error())
	}
	for key, value := range settings {
		if text, ok := value.(string); ok && (key == "registry" || strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry")) {
			urls = append(urls, text)
		}
	}
	return urls, nil
}

// pipDefault is a Python program that prints the addresses of the package index that pip has built in, and of
// the server with the files of that index.
const pipDefault = "from pip._internal.models.index import PyPI; print(PyPI.simple_url, PyPI.file_storage_domain)"

// pip returns the URLs of the package indexes in pip's settings, from a pip outside the workspace. An index
// that the user has configured is taken to serve the files itself; the built-in one has another server for
// them.
func pip(ctx context.Context, workspace string) (urls []string, err error) {
	out, err := settingsOf(ctx, workspace, "python3", "-I", "-m", "pip", "config", "list")
	if err != nil {
		return nil, err
	}
	builtin := true
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `'"`)
		if value == "" { // pip takes it for not set
			continue
		}
		switch key[strings.LastIndexByte(key, '.')+1:] {
		case "index-url":
			builtin = false
			fallthrough
		case "extra-index-url", "find-links":
			for _, text := range strings.Fields(strings.ReplaceAll(value, `\n`, " ")) {
				if strings.Contains(text, "://") && !strings.HasPrefix(text, "file:") {
					urls = append(urls, text)
				}
			}
		}
	}
	if builtin {
		out, err := settingsOf(ctx, workspace, "python3", "-I", "-c", pipDefault)
		if err != nil {
			return nil, err
		}
		urls = append(urls, strings.Fields(string(out))...)
	}
	return urls, nil
}

// golang returns the URLs of the servers from which the go command fetches modules (GOPROXY) and checksums
// (GOSUMDB). It runs a go outside the workspace.
func golang(ctx context.Context, workspace string) (urls []string, err error) {
	out, err := settingsOf(ctx, workspace, "go", "env", "-json", "GOPROXY", "GOSUMDB")
	if err != nil {
		return nil, err
	}
	var env struct{ GOPROXY, GOSUMDB string }
	if err := json.Unmarshal(out, &env); err != nil {
		return nil, errs.New("", "", errs.ErrInvalid, "go env -json: "+err.Error())
	}
	for _, text := range strings.FieldsFunc(env.GOPROXY, func(r rune) bool { return r == ',' || r == '|' }) {
		if strings.HasPrefix(text, "http") {
			urls = append(urls, text)
		}
	}
	switch sum := strings.Fields(env.GOSUMDB); {
	case len(sum) > 1: // a name and its URL
		urls = append(urls, sum[1])
	case len(sum) == 1 && sum[0] != "off":
		name, _, _ := strings.Cut(sum[0], "+") // the key follows
		urls = append(urls, name)
	}
	return urls, nil
}

// cargoConfig holds the parts of cargo's configuration file that name registries
// (https://doc.rust-lang.org/cargo/reference/config.html).
type cargoConfig struct {
	Source map[string]struct {
		ReplaceWith string `toml:"replace-with"`
		Registry    string
	}
	Registries map[string]struct{ Index string }
}

// cargo returns the URLs of the registries in cargo's configuration, and of those that cargo has fetched
// from: it stores for each the address of its files. No command of cargo prints the built-in one.
func cargo(context.Context, string) (urls []string, err error) {
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, errs.Wrap("", "", err)
		}
		home = filepath.Join(user, ".cargo")
	}
	for _, name := range []string{"config.toml", "config"} {
		var c cargoConfig
		data, err := os.ReadFile(filepath.Join(home, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = toml.Unmarshal(data, &c)
		}
		if err != nil {
			return nil, errs.Wrap("reading", filepath.Join(home, name), err)
		}
		for _, s := range c.Source {
			urls = append(urls, s.Registry)
		}
		for _, r := range c.Registries {
			urls = append(urls, r.Index)
		}
		break
	}
	fetched, err := filepath.Glob(filepath.Join(home, "registry/index/*/config.json"))
	if err != nil {
		return nil, errs.Wrap("", "", err)
	}
	for _, path := range fetched {
		var c struct{ DL, API string }
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &c)
		}
		if err != nil {
			return nil, errs.Wrap("reading", path, err)
		}
		index := filepath.Base(filepath.Dir(path)) // HOST-HASH
		urls = append(urls, index[:max(strings.LastIndexByte(index, '-'), 0)], c.DL, c.API)
	}
	urls = slices.DeleteFunc(urls, func(text string) bool { return text == "" || strings.HasPrefix(text, "file:") })
	for i, text := range urls {
		urls[i] = strings.TrimPrefix(text, "sparse+")
	}
	if len(urls) == 0 {
		return nil, &errs.Error{
			Path: home, Kind: errs.ErrNotFound, Err: errors.New("cargo has stored no registry yet: it has fetched no package"),
			Hints: []string{"cargo fetch   # in a project with a dependency; or list the servers in net"},
		}
	}
	return urls, nil
}
