// Package registry finds the package registries that a user's own programs fetch from.
//
// It asks npm, pip, go and cargo for their settings, so that a mirror which the user has configured is
// found, and no name of a registry stands in this program. It reads nothing of the current directory: a
// project's settings may have been written by a sandbox.
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

// patience is how long a package manager may take to print its settings: npm and pip need about a second.
const patience = 30 * time.Second

// Hosts returns the package registries from which a package manager, one of [Programs], fetches: each as
// "HOST:PORT", sorted. An empty result means that it is configured to fetch nothing.
//
// Cost: the program runs for 0.1 to 1 second in the directory /, with this process's environment; for cargo
// only files are read. Errors: errs.ErrNotFound (the program is not installed, or cargo has never fetched and
// so has not stored where its registry is), errs.ErrInvalid (its settings cannot be understood), those of
// [run.Run].
func Hosts(ctx context.Context, program string) ([]string, error) {
	ask, ok := map[string]func(context.Context) ([]string, error){"cargo": cargo, "go": golang, "npm": npm, "pip": pip}[program]
	if !ok {
		return nil, errs.New("finding the registry", program, errs.ErrInvalid, "the programs are "+strings.Join(Programs, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	urls, err := ask(ctx)
	if err != nil {
		return nil, errs.With("finding the registry of", program, err)
	}
	var hosts []string
	for _, text := range urls {
		host, err := hostOf(text)
		if err != nil {
			return nil, errs.With("finding the registry of", program, err)
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
		return "", errs.New("", "", errs.ErrInvalid, fmt.Sprintf("%q is no address of a server", text))
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

// ask runs a package manager in the root directory, where no project's settings apply, and returns its
// standard output: its settings.
func ask(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out strings.Builder
	err := run.Run(ctx, run.Program{Name: name, Args: args, Dir: "/", Env: append(os.Environ(), "LC_ALL=C", "GOTOOLCHAIN=local"), Stdout: &out})
	return []byte(out.String()), err
}

// npm returns the URLs of the registries in npm's settings: the general one, and those of single scopes
// (@NAME).
func npm(ctx context.Context) (urls []string, err error) {
	out, err := ask(ctx, "npm", "config", "list", "--json")
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

// pip returns the URLs of the package indexes in pip's settings. An index that the user has configured is
// taken to serve the files itself; the built-in one has another server for them.
func pip(ctx context.Context) (urls []string, err error) {
	out, err := ask(ctx, "python3", "-I", "-m", "pip", "config", "list")
	if err != nil {
		return nil, err
	}
	own := true
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `'"`)
		if value == "" { // pip takes it for not set
			continue
		}
		switch key[strings.LastIndexByte(key, '.')+1:] {
		case "index-url":
			own = false
			fallthrough
		case "extra-index-url", "find-links":
			for _, text := range strings.Fields(strings.ReplaceAll(value, `\n`, " ")) {
				if strings.Contains(text, "://") && !strings.HasPrefix(text, "file:") {
					urls = append(urls, text)
				}
			}
		}
	}
	if own {
		out, err := ask(ctx, "python3", "-I", "-c", pipDefault)
		if err != nil {
			return nil, err
		}
		urls = append(urls, strings.Fields(string(out))...)
	}
	return urls, nil
}

// golang returns the URLs of the module proxies (GOPROXY) and of the checksum database (GOSUMDB) that the go
// command uses.
func golang(ctx context.Context) (urls []string, err error) {
	out, err := ask(ctx, "go", "env", "-json", "GOPROXY", "GOSUMDB")
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
func cargo(context.Context) (urls []string, err error) {
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
			Path: home, Kind: errs.ErrNotFound, Err: errors.New("cargo has fetched no package yet, so its registry is not known"),
			Hints: []string{"cargo fetch   # once, in a project with a dependency; or name the servers with net"},
		}
	}
	return urls, nil
}
