package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
)

// A Sandbox is the part of a profile about the resources, visibility and network of sandboxes.
type Sandbox struct {
	Limits catalog.Limits `json:"limits,omitzero"`
	// Net is "none", "host", or "allow:" with rules; "" if the profile does not set it.
	Net string `json:"net,omitempty"`
	// Expose and Hide are absolute, clean paths; Env are names of variables.
	Expose []string `json:"expose,omitempty"`
	Hide   []string `json:"hide,omitempty"`
	Env    []string `json:"env,omitempty"`
}

func limitsSection() Section {
	s := Section{
		Header: "[limits]",
		Text: "How much a sandbox may use: the limits that are flags of snapfs run and snapfs new, with the same names and values (snapfs help limits). " +
			`A number without a unit needs no quotes; "none" is no limit, and zero an error.`,
	}
	for _, f := range new(catalog.Limits).Fields() {
		s.Keys = append(s.Keys, Key{f.Name, f.Value.Type(), "", strings.ToUpper(f.Usage[:1]) + f.Usage[1:] + "."})
	}
	return s
}

func sandboxSection() Section {
	return Section{
		Header: "[sandbox]",
		Text:   "What a sandbox may see and reach, like the flags of these names. Lists add to the flags.",
		Keys: []Key{
			{"net", "network, or list of rules", `"none"`, `The network: "none", "host", "allow:RULES", or a list of rules, as ["example.com:443", "*.example.org"]; snapfs net --help has their grammar.`},
			{"expose", "list of paths", "", "Secrets that are shown all the same. A relative path starts at the directory of the profile, or with ~/ at the home directory."},
			{"hide", "list of paths", "", "More paths to hide."},
			{"env", "list of variables", "", "Variables to pass although they look like secrets."},
		},
	}
}

func isSwitch(limit string) bool {
	return slices.ContainsFunc(new(catalog.Limits).Fields(), func(f catalog.Limit) bool { return f.Name == limit && f.Value.Type() == "bool" })
}

// limit reads a line of [limits].
func (r *reader) limit(name string, v *unstable.Node, at place) {
	kinds := []unstable.Kind{unstable.String, unstable.Integer, unstable.Float}
	if isSwitch(name) {
		kinds = []unstable.Kind{unstable.Bool}
	}
	text := string(v.Data)
	if v.Kind == unstable.Integer || v.Kind == unstable.Float {
		text = strings.ReplaceAll(text, "_", "") // 1_000 is a number in TOML
	}
	switch {
	case slices.Contains(kinds, v.Kind):
		if _, err := r.sandbox.Limits.SetField(name, text); err != nil {
			r.wrong(r.where(v, at), err.Error(), "snapfs help limits says how it is written")
		}
	case isSwitch(name):
		r.wrong(at, name+": expected true or false, got "+kind(v), "write "+name+" = true")
	default:
		r.wrong(at, name+": expected a limit, got "+kind(v), `put it in quotes: `+name+` = "…"`)
	}
}

// setting reads a line of [sandbox].
func (r *reader) setting(name string, v *unstable.Node, at place) {
	switch name {
	case "net":
		r.sandbox.Net = r.net(v, at)
	case "expose":
		r.sandbox.Expose = r.paths(name, v, at)
	case "hide":
		r.sandbox.Hide = r.paths(name, v, at)
	case "env":
		r.texts(name, v, at, func(text string, where place) {
			if strings.ContainsAny(text, "= ") {
				r.wrong(where, fmt.Sprintf("env: invalid variable name %q", text), "give the name without a value")
			}
			r.sandbox.Env = append(r.sandbox.Env, text)
		})
	}
}

const allowed = "allow:"

// net reads the network setting.
func (r *reader) net(v *unstable.Node, at place) string {
	if v.Kind == unstable.Array {
		var list []string
		r.texts("net", v, at, func(text string, where place) {
			if strings.Contains(text, ",") {
				r.wrong(where, fmt.Sprintf("net: %q is more than one rule", text), "put each in quotes of its own")
			} else if r.rules(text, where+1) != "" {
				list = append(list, text)
			}
		})
		if list == nil {
			if v.Child() == nil {
				r.wrong(at, "net: the list is empty", `write net = "none"`)
			}
			return ""
		}
		return allowed + r.rules(strings.Join(list, ","), at)
	}
	text := r.text("net", v, at)
	rules, some := strings.CutPrefix(text, allowed)
	switch {
	case text == "", text == "none", text == "host":
		return text
	case some:
		if rules = r.rules(rules, r.where(v, at)+1+place(len(allowed))); rules == "" {
			return ""
		}
		return allowed + rules
	}
	r.wrong(r.where(v, at), fmt.Sprintf("net: invalid value %q", text), `use "none", "host", "allow:RULES" or a list of rules`)
	return ""
}

// rules parses rules and returns them in canonical form, or "" after a mistake; at is the
// position of their text.
func (r *reader) rules(text string, at place) string {
	rules, bad := network.Read(text)
	switch {
	case bad != nil:
		at = min(at+place(bad.Column-1), place(len(r.data)))
		r.wrong(at, fmt.Sprintf("net: rule %q: %s", bad.Rule, bad.Reason()), "snapfs net --help has the grammar of rules")
		return ""
	case rules.Empty():
		r.wrong(at, "net: no rule", `write net = "none"`)
		return ""
	}
	return rules.String()
}

// texts reads a non-empty list of texts, and calls each with every text and its position.
func (r *reader) texts(name string, v *unstable.Node, at place, each func(text string, where place)) {
	if v.Kind != unstable.Array {
		r.wrong(at, name+": expected a list, got "+kind(v), `put it in brackets: `+name+` = ["…"]`)
		return
	}
	for list := v.Children(); list.Next(); {
		n := list.Node()
		if n.Kind == unstable.Comment {
			continue
		}
		where := r.where(n, at)
		if text := r.text(name, n, where); text != "" {
			each(text, where)
		}
	}
}

// paths reads a list of paths.
func (r *reader) paths(name string, v *unstable.Node, at place) (all []string) {
	r.texts(name, v, at, func(text string, where place) {
		beneath, home := strings.CutPrefix(text, "~/")
		switch {
		case home:
			dir, err := os.UserHomeDir()
			if err != nil {
				r.wrong(where, name+": no home directory: "+err.Error(), "write the full path")
				return
			}
			text = filepath.Join(dir, beneath)
		case text[0] == '~':
			r.wrong(where, name+": ~NAME is not expanded here", "write the full path")
			return
		case !filepath.IsAbs(text):
			text = filepath.Join(r.dir, text)
		}
		if text = filepath.Clean(text); !slices.Contains(all, text) {
			all = append(all, text)
		}
	})
	return all
}
