package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
)

// ParseSecrets reads the values of the flag --secret, each of which describes one secret without a profile:
// NAME=env:VARIABLE@HOSTS, NAME=file:PATH@HOSTS or NAME=keyring:PLACE@HOSTS (PLACE as in a profile), or NAME@HOSTS for the
// variable NAME of the host. HOSTS are separated by commas, and NAME is also the variable inside with the placeholder.
// dir is the directory at which a relative PATH starts. The checks are those of a section [secrets.NAME] of a profile.
// The secrets are in the order of their names. The error has a line for each mistake of the first wrong value, and never the value of
// a secret that somebody wrote in place of a source.
func ParseSecrets(texts []string, dir string) (all []catalog.Secret, err error) {
	if len(texts) > maxSecrets {
		return nil, fmt.Errorf("more than %d secrets; remove some", maxSecrets)
	}
	for _, text := range texts {
		s, err := parseSecret(text, dir)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(other catalog.Secret) bool { return other.Name == s.Name }) {
			return nil, fmt.Errorf("secret %s: named twice; give it all its hosts at once, separated by commas", s.Name)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b catalog.Secret) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// parseSecret reads one value of the flag --secret, as [ParseSecrets] describes it.
func parseSecret(text, dir string) (s catalog.Secret, err error) {
	source, list, given := cutLast(text, "@") // a host has no @, and a path may have one
	name, from, set := strings.Cut(source, "=")
	if !given && !set && !isVariable(name) {
		return s, errors.New("a secret has no hosts; write NAME=env:VARIABLE@api.example.com")
	}
	if !given {
		return s, fmt.Errorf("secret %s: no hosts; write NAME=env:VARIABLE@api.example.com", printable(name))
	}
	kind, from, _ := strings.Cut(from, ":")
	switch {
	case !set && !isVariable(name): // it may be the value of a secret
		return s, errors.New("a secret without a source is the name of a variable in capitals, as API_KEY@api.example.com; a value is never given on the command line, where everybody reads it")
	case !set:
		kind, from = "env", name
	case kind != "env" && kind != "file" && kind != "keyring":
		return s, fmt.Errorf("secret %s: the source is none of env:VARIABLE, file:PATH and keyring:PLACE; a value is never given on the command line, where everybody reads it", printable(name))
	case kind == "file" && !filepath.IsAbs(from) && from != "":
		from = filepath.Join(dir, from) // the shell has expanded ~
	}
	var hosts []any
	for host := range strings.SplitSeq(list, ",") {
		hosts = append(hosts, host)
	}
	r := &reader{dir: dir, places: map[string]int{}}
	r.secrets("secrets", map[string]any{name: map[string]any{kind: from, "as": name, "hosts": hosts}})
	if len(r.bad.Mistakes) == 0 {
		return r.sandbox.Secrets[0], nil
	}
	lines := make([]string, len(r.bad.Mistakes))
	for i, m := range r.bad.Mistakes {
		lines[i] = "secret " + printable(name) + ": " + m.What + "; " + m.Mend
	}
	return s, errors.New(strings.Join(lines, "\n"))
}

// isVariable reports whether name has the usual form of the name of an environment variable with a secret: capitals,
// digits and underscores.
func isVariable(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && (name[0] < '0' || name[0] > '9')
}

// cutLast returns the parts of text before and after the last sep. found is false if text has none; before is
// then the whole text.
func cutLast(text, sep string) (before, after string, found bool) {
	if at := strings.LastIndex(text, sep); at >= 0 {
		return text[:at], text[at+len(sep):], true
	}
	return text, "", false
}
