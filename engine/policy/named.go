package policy

import (
	"cmp"
	"embed"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

//go:embed builtin/*.toml
var builtin embed.FS

// SiteDir is the directory with the site's profiles and its policy, which the host's administrator writes. It
// is a variable of the program and not a setting, because a user who can set it can loosen the policy. Tests
// build their program with another one.
var SiteDir = "/etc/snapfs"

// A NamedProfile is a line of `snapfs profile list`: a profile that --profile and extends find by its name.
type NamedProfile struct {
	Name string `json:"name"`
	// Source is "built in" or the path of the site's file.
	Source string `json:"source"`
	// Version is the version that the profile gives itself, 0 for none.
	Version int    `json:"version"`
	About   string `json:"about"`
}

// IsProfileName reports whether text is the name of a profile, rather than the path of a file. A path has a
// slash or ends with .toml.
func IsProfileName(text string) bool { return isName(text) && !strings.HasSuffix(text, ".toml") }

// List returns all profiles that have a name, sorted by name. A profile that the host's administrator
// provides in /etc/snapfs replaces a built-in one with the same name. Errors: those of [Read] for such a
// profile.
func List() ([]NamedProfile, error) {
	var list []NamedProfile
	names, err := names()
	for _, name := range names {
		path, data, one := open(name, Named)
		var p *Profile
		if one == nil {
			p, one = Parse(path, data)
		}
		if one != nil {
			err = errors.Join(err, one)
			continue
		}
		source := "built in"
		if filepath.IsAbs(path) {
			source = path
		}
		list = append(list, NamedProfile{name, source, p.Version, p.About})
	}
	return list, err
}

// names returns the names of all profiles that are built in or that the host's administrator provides,
// sorted.
func names() ([]string, error) {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadDir(filepath.Join(SiteDir, "profiles"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	var all []string
	for _, e := range append(entries, own...) {
		if name, ok := strings.CutSuffix(e.Name(), ".toml"); ok && IsProfileName(name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// Text returns the TOML text of the profile called name, built in or the administrator's, or of the file at
// this absolute path. A profile holds limits and rules for sandboxes. Errors: those of [Read].
func Text(name string) ([]byte, error) {
	_, data, err := open(name, Named)
	return data, err
}

// open returns the content of the profile called name, or of the file at this absolute path. It checks the
// file's owner and permissions as trust requires. called is the name of a built-in profile, and otherwise the
// path of the file.
func open(name string, trust Trust) (called string, data []byte, err error) {
	if !IsProfileName(name) {
		data, err = load(name, trust)
		return name, data, err
	}
	site := filepath.Join(SiteDir, "profiles", name+".toml")
	data, err = load(site, Named)
	if !errors.Is(err, os.ErrNotExist) {
		return site, data, err
	}
	if data, err = builtin.ReadFile("builtin/" + name + ".toml"); err == nil {
		return name, data, nil
	}
	e := &errs.Error{
		Op: "reading the profile", Subject: name, Kind: errs.ErrNotFound, Err: errors.New("no profile has this name"),
		Hints: []string{"snapfs profile list"},
	}
	if near := nearest(name); near != "" {
		e.Hints = append(e.Hints, "snapfs profile show "+errs.Quoted(near))
	}
	if _, err := os.Stat(name); err == nil {
		e.Hints = append(e.Hints, "snapfs run --profile "+errs.Quoted("./"+name)+" …   # the file")
	}
	return name, nil, e
}

// nearest returns the profile name most similar to name, for a hint, or "" if none is similar.
func nearest(name string) string {
	all, _ := names() // only for a hint
	near := func(a, b string) int { return distance(a, name) - distance(b, name) }
	if len(all) == 0 {
		return ""
	}
	if best := slices.MinFunc(all, func(a, b string) int { return cmp.Or(near(a, b), strings.Compare(a, b)) }); distance(best, name) < 4 {
		return best
	}
	return ""
}
