package policy

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// mostExtends is the longest chain of profiles that extend one another. A longer one is an error, as is a
// profile that extends itself.
const mostExtends = 8

// An Origin says which profile file and line gives one setting its value. [Explain] shows it to the user.
type Origin struct {
	// Setting is the section and the key, such as limits.memory; Value is the value, or one
	// element of a list.
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// File is the path of a file, or the name of a built-in profile. Line counts from 1.
	File string `json:"file"`
	Line int    `json:"line"`
}

func (o Origin) String() string { return fmt.Sprintf("%s:%d", o.File, o.Line) }

// said notes that the profile file gives setting this value, so that the user can be shown where a value comes from.
// path is the path of the key in the file, by which the line is found.
func (r *reader) said(setting, value, path string) {
	r.origins = append(r.origins, Origin{Setting: setting, Value: value, File: r.bad.File, Line: r.line(path)})
}

// beforeSection stores one of the lines above the first section of a profile: the key name with the value v. It
// records mistakes in v at path, the key's path in the file.
func (r *reader) beforeSection(name, path string, v any) {
	switch name {
	case "extends":
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for i, v := range list {
			where := path
			if ok {
				where = fmt.Sprintf("%s.%d", path, i)
			}
			if text := r.text(name, where, v); text != "" {
				r.extends = append(r.extends, text)
				r.said("extends", text, where)
			}
		}
	case "about":
		r.about = printable(r.text(name, path, v))
	case "version":
		n, ok := v.(int64)
		if !ok || n < 1 || n > 1<<30 {
			r.wrong(path, "version: expected a whole number above 0", "write version = 1")
			return
		}
		r.version = int(n)
	}
}

// A chain is the list of profiles from the one that the user named to one that it extends, directly or
// through others. It detects cycles.
type chain struct {
	trust Trust
	// root is the directory beyond which a profile that was only found may extend nothing, or "".
	root  string
	names []string
}

// read reads the profile called name, or at this absolute path, and applies it to the settings of all
// profiles that it extends.
func (c chain) read(name string) (*Profile, error) {
	called, data, err := open(name, c.trust)
	if err != nil {
		var done *errs.Error
		if !errors.As(err, &done) {
			err = &errs.Error{Op: "reading the profile", Path: called, Kind: errs.KindOf(err), Err: cause(err)}
		}
		return nil, err
	}
	own, err := Parse(called, data)
	if err != nil {
		return nil, err
	}
	own.Digest = digest(called, data)
	if len(own.Extends) == 0 {
		return own, nil
	}
	c.names = append(slices.Clone(c.names), called)
	whole := &Profile{}
	for _, e := range own.Extends {
		other, err := c.extended(own, e)
		if err != nil {
			return nil, err
		}
		whole.add(other)
	}
	whole.add(own)
	own.Sandbox, own.Origins = whole.Sandbox, whole.Origins
	return own, nil
}

// extended reads a profile that the profile own extends. text is the name or path that own gives for it.
func (c chain) extended(own *Profile, text string) (*Profile, error) {
	at := own.origin("extends", text)
	wrong := func(what, mend string) error {
		return &Error{File: at.File, Mistakes: []Mistake{{Line: at.Line, Column: 1, What: "extends: " + what, Mend: mend}}}
	}
	name := text
	if !IsProfileName(name) {
		beneath, home := strings.CutPrefix(name, "~/")
		switch {
		case home:
			dir, err := os.UserHomeDir()
			if err != nil {
				return nil, wrong("no home directory: "+err.Error(), "write the full path")
			}
			name = filepath.Join(dir, beneath)
		case !filepath.IsAbs(own.Path) && !filepath.IsAbs(name): // a built-in profile has no directory
			return nil, wrong(fmt.Sprintf("%q is relative to no directory", text), "name a profile")
		case !filepath.IsAbs(name):
			name = filepath.Join(filepath.Dir(own.Path), name)
		}
		if real, err := filepath.EvalSymlinks(name); err == nil {
			name = real
		}
		if c.root != "" && !within(name, c.root) {
			return nil, wrong(fmt.Sprintf("%q is outside the directory of a profile that nobody named", text), "name a built-in profile or a file beside it, or name this profile with --profile")
		}
	}
	switch {
	case slices.Contains(c.names, name):
		return nil, wrong(fmt.Sprintf("%q extends itself", text), "remove one of the lines: "+strings.Join(append(c.names, name), " extends "))
	case len(c.names) == mostExtends:
		return nil, wrong(fmt.Sprintf("more than %d profiles extend one another", mostExtends), "put some into one file")
	}
	other, err := c.read(name)
	var bad *Error
	switch {
	case errors.As(err, &bad):
		return nil, err
	case err != nil:
		return nil, wrong(fmt.Sprintf("%q: %v", text, err), "snapfs profile list has the names")
	case len(other.Stages) > 0:
		return nil, wrong(fmt.Sprintf("%q has stages, whose commands run on the real machine", text), "write the stages in this file")
	}
	return other, nil
}

// origin returns the file and line that gives the setting this value, or the profile's first line if none is
// known.
func (p *Profile) origin(setting, value string) Origin {
	for _, o := range p.Origins {
		if o.Setting == setting && o.Value == value {
			return o
		}
	}
	return Origin{File: p.Path, Line: 1}
}

// add applies the settings of the profile other to p. A single value of other replaces that of p; the entries
// of its lists are added to those of p.
func (p *Profile) add(other *Profile) {
	replaced := map[string]bool{}
	for _, o := range other.Origins {
		limit, isLimit := strings.CutPrefix(o.Setting, "limits.")
		if isLimit {
			_, _ = p.Sandbox.Limits.SetField(limit, o.Value) // the reader has parsed it
		}
		if isLimit || o.Setting == "sandbox.net" || o.Setting == "sandbox.ask" || strings.HasPrefix(o.Setting, "secrets.") || strings.HasPrefix(o.Setting, "prices.") || strings.HasPrefix(o.Setting, "budget.") && o.Setting != "budget.hosts" {
			replaced[o.Setting] = true
		}
	}
	replaced["sandbox.registries"] = replaced["sandbox.net"]
	p.Origins = slices.DeleteFunc(p.Origins, func(o Origin) bool { return replaced[o.Setting] })
	p.Origins = append(p.Origins, other.Origins...)
	s := &p.Sandbox
	if other.Sandbox.Net != "" { // replaces the whole network of p, whatever it allowed
		s.Net, s.Registries = other.Sandbox.Net, nil
	}
	if slices.ContainsFunc(other.Origins, func(o Origin) bool { return o.Setting == "sandbox.ask" }) {
		s.Ask = other.Sandbox.Ask
	}
	s.Registries = union(s.Registries, other.Sandbox.Registries)
	s.Evidence = s.Evidence || other.Sandbox.Evidence
	s.KeepEvidence = cmp.Or(other.Sandbox.KeepEvidence, s.KeepEvidence)
	s.addKeyPoints(&other.Sandbox.KeyPoints)
	s.addSecrets(other.Sandbox.Secrets)
	s.addBudget(other.Sandbox.Budget)
	s.Expose = union(s.Expose, other.Sandbox.Expose)
	s.Hide = union(s.Hide, other.Sandbox.Hide)
	s.Env = union(s.Env, other.Sandbox.Env)
	s.Tools.Allow = union(s.Tools.Allow, other.Sandbox.Tools.Allow)
	s.Tools.Deny = union(s.Tools.Deny, other.Sandbox.Tools.Deny)
	s.Tools.Hook = union(s.Tools.Hook, other.Sandbox.Tools.Hook)
	s.Data.Readable = union(s.Data.Readable, other.Sandbox.Data.Readable)
	s.Data.Recorded = union(s.Data.Recorded, other.Sandbox.Data.Recorded)
	s.Data.Writable = union(s.Data.Writable, other.Sandbox.Data.Writable)
	s.Data.ReadOnly = union(s.Data.ReadOnly, other.Sandbox.Data.ReadOnly)
	s.Data.Secret = union(s.Data.Secret, other.Sandbox.Data.Secret)
	s.Data.Private = union(s.Data.Private, other.Sandbox.Data.Private)
	s.Result = union(s.Result, other.Sandbox.Result)
	s.Tools.MCP = union(s.Tools.MCP, other.Sandbox.Tools.MCP)
	s.addDirect(other.Sandbox.Direct)
}

// addKeyPoints adds the key points (moments for automatic snapshots) of another profile to s. The other
// profile's bounds on the number and the age of snapshots replace those of s, where it sets them.
func (s *Sandbox) addKeyPoints(other *catalog.KeyPoints) {
	s.KeyPoints.At = union(s.KeyPoints.At, other.At)
	s.KeyPoints.Keep = cmp.Or(other.Keep, s.KeyPoints.Keep)
	s.KeyPoints.KeepFor = cmp.Or(other.KeepFor, s.KeyPoints.KeepFor)
	s.KeyPoints.KeepSize = cmp.Or(other.KeepSize, s.KeyPoints.KeepSize)
}

// addSecrets adds the secrets of another profile to s. A secret of s with the same name is replaced as a
// whole.
func (s *Sandbox) addSecrets(other []catalog.Secret) {
	for _, one := range other {
		s.Secrets = slices.DeleteFunc(slices.Clone(s.Secrets), func(mine catalog.Secret) bool { return mine.Name == one.Name })
		s.Secrets = append(s.Secrets, one)
	}
	slices.SortFunc(s.Secrets, func(a, b catalog.Secret) int { return strings.Compare(a.Name, b.Name) })
}

// addBudget adds the request budget of another profile, which may be nil, to s. The bounds that it sets
// replace those of s, and so do its prices of the same models; its hosts are added.
func (s *Sandbox) addBudget(other *catalog.Budget) {
	if other == nil {
		return
	}
	b := new(catalog.Budget)
	if s.Budget != nil {
		*b = *s.Budget
	}
	theirs := other.Ceilings()
	for name, mine := range b.Ceilings() {
		*mine = cmp.Or(*theirs[name], *mine)
	}
	b.Hosts = union(slices.Clip(b.Hosts), other.Hosts)
	for _, one := range other.Prices {
		b.Prices = slices.DeleteFunc(slices.Clone(b.Prices), func(mine catalog.ModelPrice) bool { return mine.Model == one.Model })
		b.Prices = append(b.Prices, one)
	}
	slices.SortFunc(b.Prices, func(a, b catalog.ModelPrice) int { return strings.Compare(a.Model, b.Model) })
	s.Budget = b
}

// union returns the entries of a, then those that only b has. It is nil only if both are nil, because nil
// means that a list is not set and an empty list allows nothing.
func union(a, b []string) []string {
	if a == nil && b != nil {
		a = []string{}
	}
	for _, one := range b {
		if !slices.Contains(a, one) {
			a = append(a, one)
		}
	}
	return a
}
