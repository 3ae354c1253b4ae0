package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/registry"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
)

// A Sandbox is the policy that a profile gives to new sandboxes: limits, network, visible and writable paths,
// programs, secrets.
type Sandbox struct {
	Limits catalog.Limits `json:"limits,omitzero"`
	// Net is "none", "host", or "allow:" with rules; "" if the profile does not set it.
	Net string `json:"net,omitempty"`
	// Registries are programs of [registry.Programs], whose package servers may be reached in addition to Net.
	Registries []string `json:"registries,omitempty"`
	// Ask is how long a connection that no rule allows waits for a person; 0 means that it is refused at once.
	Ask time.Duration `json:"ask,omitempty"`
	// Expose and Hide are absolute, clean paths; Env are names of variables.
	Expose []string `json:"expose,omitempty"`
	Hide   []string `json:"hide,omitempty"`
	Env    []string `json:"env,omitempty"`
	// Evidence makes every act on the sandbox leave a signed record.
	Evidence bool `json:"evidence,omitempty"`
	// KeepEvidence says which of these records are removed when they are old. In the site's policy it is the least
	// that stays.
	KeepEvidence *catalog.KeepEvidence `json:"keep_evidence,omitempty"`
	// KeyPoints are the key points of the profile and how long their snapshots stay.
	KeyPoints catalog.KeyPoints `json:"snapshots,omitzero"`
	// Tools are the programs that may be executed.
	Tools catalog.Tools `json:"tools,omitzero"`
	// Secrets are in the order of their names.
	Secrets []catalog.Secret `json:"secrets,omitempty"`
	Budget  *catalog.Budget  `json:"budget,omitempty"`
	// Data are the paths that may be written.
	Data catalog.Data `json:"data,omitzero"`
	// Result are the only paths of the workspace that a promotion takes by itself; nil means all.
	Result []string `json:"result,omitempty"`
	// Direct says which jobs run without a sandbox; nil means none.
	Direct *catalog.Direct `json:"direct,omitempty"`
}

func limitsSection() Section {
	s := Section{
		Header: "[limits]",
		Text: "How much a sandbox may use: the limits that are flags of snapfs run and snapfs new, with the same names and values (snapfs help limits). " +
			`A number without a unit needs no quotes; "none" is no limit, and zero an error. ` +
			"A reached limit is an event (snapfs.limit.reached) and snapfs names it, but for cpus and the rates, which only slow down, and for files and inodes, whose refusal (EMFILE, ENOSPC) only the program sees.",
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
			{"net", "network, or list of rules", `"none"`, `The network: "none", "host", "allow:RULES", or a list of rules, as ["example.com:443", "*.example.org"]; snapfs net --help has their grammar. With rules, the first refusal of a destination is an event (snapfs.network.refused), the connection is refused, and snapfs net lists it. With "none" there is nothing to reach, and no event.`},
			{"registries", "list of programs", "", "Package managers whose servers may be reached in addition to net: " + strings.Join(registry.Programs, ", ") + ". snapfs reads the servers from this user's own settings of the program when it creates the sandbox, mirrors included. The flag --net replaces them."},
			{"ask", "duration", `"none"`, `How long a connection to a destination that no rule of net allows waits for a person, as "1m" (from 1s to 2m); "none" refuses it at once. The question is an event (snapfs.network.asked), and snapfs net answers it. It applies with rules only. With a label of [data] it is about the destination: each request there is searched all the same. A found profile cannot set it, and the site's policy sets the longest.`},
			{"expose", "list of paths", "", "Secrets that are shown all the same. A relative path starts at the directory of the profile, or with ~/ at the home directory."},
			{"hide", "list of paths", "", "More paths to hide: inside, files and directories are empty. A pattern with * or ? is refused, because a file that gets a matching name while the sandbox runs would be shown; readable in [data] takes patterns. With files observed by [result], opening one is an event, and each lookup takes longer; otherwise a failed command that names one gets a hint."},
			{"env", "list of variables", "", "Names of variables to pass besides those that always pass. No event reports the others."},
			{"evidence", "bool", "false", "Keep a signed record of what is done to the sandbox (snapfs evidence --help)."},
			{"keep-evidence", "rule", `"all"`, `Which of these records stay: "all", or bounds as in "records=1000000,for=90d,size=500M"; older ones are removed when one bound is reached, which the record says. In the site's policy it is the least that stays.`},
			{"snapshots", "list of key points", "", "When snapfs takes a snapshot by itself: " + strings.Join(catalog.KeyPointNames, ", ") + ". snapfs timeline lists the snapshots."},
			{"keep-snapshots", "number", strconv.Itoa(catalog.DefaultKeep), "How many of these snapshots stay, the newest; those of a promotion or a fork stay besides."},
			{"keep-snapshots-for", "duration", "", "How long these snapshots stay. With it alone, their number has no bound."},
			{"keep-snapshots-size", "size", "", "How much disk space these snapshots may hold that nothing else holds. With it alone, their number has no bound. Only root can have it measured on btrfs."},
		},
	}
}

func isSwitch(limit string) bool {
	return slices.ContainsFunc(new(catalog.Limits).Fields(), func(f catalog.Limit) bool { return f.Name == limit && f.Value.Type() == "bool" })
}

// limit stores one key of the section [limits] of a profile, called name and with the value v, in r.sandbox. If v is
// not valid it records a mistake at path, the key's path in the file.
func (r *reader) limit(name, path string, v any) {
	var text string
	var ok bool
	switch v := v.(type) {
	case bool:
		text, ok = strconv.FormatBool(v), isSwitch(name)
	case string:
		text, ok = v, !isSwitch(name)
	case int64, float64:
		text, ok = fmt.Sprint(v), !isSwitch(name)
	}
	switch {
	case ok:
		if _, err := r.sandbox.Limits.SetField(name, text); err != nil {
			r.wrong(path+"=", err.Error(), "snapfs help limits says how it is written")
		} else {
			r.said("limits."+name, text, path)
		}
	case isSwitch(name):
		r.wrong(path, name+": expected true or false, got "+kind(v), "write "+name+" = true")
	default:
		r.wrong(path, name+": expected a limit, got "+kind(v), `put it in quotes: `+name+` = "…"`)
	}
}

// setting stores one key of the section [sandbox] of a profile, called name and with the value v, in r.sandbox. It
// records mistakes in v at path, the key's path in the file.
func (r *reader) setting(name, path string, v any) {
	switch name {
	case "net":
		if r.sandbox.Net = r.net(path, v); r.sandbox.Net != "" {
			r.said("sandbox.net", r.sandbox.Net, path)
		}
	case "registries":
		r.registries(name, path, v)
	case "ask":
		r.ask(path, v)
	case "expose":
		r.sandbox.Expose = r.paths(name, path, v)
	case "evidence":
		on, ok := v.(bool)
		if !ok {
			r.wrong(path, name+": expected true or false, got "+kind(v), "write "+name+" = true")
		}
		if r.sandbox.Evidence = on; on {
			r.said("sandbox.evidence", "true", path)
		}
	case "keep-evidence":
		rule, err := catalog.ParseKeepEvidence(r.text(name, path, v))
		if err != nil {
			r.wrong(path+"=", "keep-evidence: "+err.Error(), `write it as "for=90d"`)
			return
		}
		r.sandbox.KeepEvidence = &rule
		r.said("sandbox.keep-evidence", rule.String(), path)
	case "hide":
		r.hide(name, path, v)
	case "env":
		r.texts(name, path, v, func(text, path string) {
			if strings.ContainsAny(text, "= ") {
				r.wrong(path, fmt.Sprintf("env: invalid variable name %q", text), "give the name without a value")
			}
			r.sandbox.Env = append(r.sandbox.Env, text)
			r.said("sandbox.env", text, path)
		})
	default:
		r.keyPoints(name, path, v)
	}
}

// hide stores v, the value of the key hide of a profile, in r.sandbox. It records a mistake for a pattern: a file that
// gets a matching name while the sandbox runs could not be hidden.
func (r *reader) hide(name, path string, v any) {
	r.texts(name, path, v, func(text, path string) {
		if strings.ContainsAny(text, "*?") { // a [ is in many names
			r.wrong(path, fmt.Sprintf("hide: %q is a pattern, and a file that gets such a name later would be shown", text),
				"name the files or directories; readable in [data] takes patterns, and the flag --hide a name with a wildcard as it is")
		}
	})
	r.sandbox.Hide = r.paths(name, path, v)
}

// keyPoints stores one of the keys of [sandbox] about automatic snapshots, called name and with the value v, in
// r.sandbox. It records mistakes in v at path, the key's path in the file.
func (r *reader) keyPoints(name, path string, v any) {
	if r.site {
		r.wrong(path, name+": the site's policy sets no snapshots", "write it in a profile")
		return
	}
	points := &r.sandbox.KeyPoints
	switch name {
	case "snapshots":
		r.texts(name, path, v, func(text, path string) {
			if err := catalog.CheckKeyPoint(text); err != nil {
				r.wrong(path, "snapshots: "+err.Error(), "leave it out, or correct it")
			} else if !points.Has(text) {
				points.At = append(points.At, text)
				r.said("sandbox.snapshots", text, path)
			}
		})
	case "keep-snapshots":
		n, ok := v.(int64)
		if !ok || n < 1 || n > maxKeepSnapshots {
			r.wrong(path+"=", "keep-snapshots: expected a number from 1 to "+strconv.Itoa(maxKeepSnapshots), "leave it out for "+strconv.Itoa(catalog.DefaultKeep))
		}
		points.Keep = int(n)
		r.said("sandbox.keep-snapshots", strconv.Itoa(points.Keep), path)
	case "keep-snapshots-for":
		var err error
		if points.KeepFor, err = units.ParseDuration(r.text(name, path, v)); err != nil {
			r.wrong(path+"=", "keep-snapshots-for: "+err.Error(), `write it as "12h"`)
		}
		r.said("sandbox.keep-snapshots-for", units.FormatDuration(points.KeepFor), path)
	case "keep-snapshots-size":
		var err error
		if points.KeepSize, err = units.ParseSize(r.text(name, path, v)); err != nil {
			r.wrong(path+"=", "keep-snapshots-size: "+err.Error(), `write it as "2G"`)
		}
		r.said("sandbox.keep-snapshots-size", units.FormatSize(points.KeepSize), path)
	}
}

// maxKeepSnapshots is the greatest number of automatic snapshots that the key keep-snapshots of a profile
// accepts.
const maxKeepSnapshots = 100_000

const allowed = "allow:"

// net returns the value v of the key net of a profile, a text or a list of network rules, in the form of
// [Sandbox.Net]. After a mistake, which it records at path, the key's path in the file, it returns "".
func (r *reader) net(path string, v any) string {
	if all, ok := v.([]any); ok {
		var list []string
		r.texts("net", path, v, func(text, path string) {
			if rules, bad := network.Read(text); strings.Contains(text, ",") && (bad != nil || rules.Len() != 1) {
				r.wrong(path, fmt.Sprintf("net: %q is more than one rule", text), "put each in quotes of its own")
			} else if r.rules(text, r.place(path)+1) != "" {
				list = append(list, text)
			}
		})
		if len(all) == 0 {
			r.wrong(path, "net: the list is empty", `write net = "none"`)
		}
		if list == nil {
			return ""
		}
		return allowed + r.rules(strings.Join(list, ","), r.place(path))
	}
	text := r.text("net", path, v)
	rules, some := strings.CutPrefix(text, allowed)
	switch {
	case text == "", text == "none", text == "host":
		return text
	case some:
		if rules = r.rules(rules, r.place(path+"=")+1+len(allowed)); rules == "" {
			return ""
		}
		return allowed + rules
	}
	r.wrong(path+"=", fmt.Sprintf("net: invalid value %q", text), `use "none", "host", "allow:RULES" or a list of rules`)
	return ""
}

// rules returns the network rules of text in canonical form. If text is not valid it records a mistake and
// returns "". at is the byte offset of text in the file.
func (r *reader) rules(text string, at int) string {
	rules, bad := network.Read(text)
	switch {
	case bad != nil:
		r.wrongAt(min(at+bad.Column-1, len(r.data)), fmt.Sprintf("net: rule %q: %s", bad.Rule, bad.Reason()), "snapfs net --help has the grammar of rules")
		return ""
	case rules.Empty():
		r.wrongAt(at, "net: no rule", `write net = "none"`)
		return ""
	}
	return rules.String()
}

// texts calls each with every text of the list v, the value of the key name of a profile, and the text's path
// in the file. It records a mistake for an empty text and for a v that is no list of texts.
func (r *reader) texts(name, path string, v any, each func(text, path string)) {
	list, ok := v.([]any)
	if !ok {
		r.wrong(path, name+": expected a list, got "+kind(v), `put it in brackets: `+name+` = ["…"]`)
	}
	if r.site && ok && len(list) == 0 { // nothing at all is a bound too
		r.said("sandbox."+name, "", path)
	}
	for i, v := range list {
		where := fmt.Sprintf("%s.%d", path, i)
		if text := r.text(name, where, v); text != "" {
			each(text, where)
		}
	}
}

// paths returns the file paths that the list v contains, the value of the key name in a profile's section
// [sandbox]: absolute, clean, each once. A relative path starts at the profile's directory, or with ~/ at the
// home directory. It records mistakes in v at path, the key's path in the file.
func (r *reader) paths(name, path string, v any) []string {
	return r.pathsOf("sandbox", name, path, v, func(dir, text string) string { return filepath.Join(dir, text) })
}

// pathsOf returns the file paths of the list v, the value of the key name of any section, in the form that
// [reader.paths] describes. join joins a directory and a relative path.
func (r *reader) pathsOf(section, name, path string, v any, join func(dir, text string) string) (all []string) {
	r.texts(name, path, v, func(text, path string) {
		beneath, home := strings.CutPrefix(text, "~/")
		switch {
		case home:
			dir, err := os.UserHomeDir()
			if err != nil {
				r.wrong(path, name+": no home directory: "+err.Error(), "write the full path")
				return
			}
			text = join(dir, "./"+beneath)
		case text[0] == '~':
			r.wrong(path, name+": ~NAME is not expanded here", "write the full path")
			return
		case !filepath.IsAbs(text):
			text = join(r.dir, text)
		}
		if text = filepath.Clean(text); !slices.Contains(all, text) {
			all = append(all, text)
			r.said(section+"."+name, text, path)
		}
	})
	return all
}
