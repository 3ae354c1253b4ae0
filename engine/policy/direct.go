package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
)

// The values of the key when of the section [direct]: which jobs get a sandbox, besides the commands that
// the section lists.
const (
	whenAlways = "always" // every job
	whenRisky  = "risky"  // a job whose submitter did not declare that it only reads
)

func directSection() Section {
	return Section{
		Header: "[direct]",
		Text: "Which jobs (snapfs job submit) run without a sandbox, because it is not worth one: in the real workspace, as you, with all your rights. " +
			"Nothing of them can be reviewed or undone, and limits and network rules do not hold for them. The job's record and an event say so. " +
			"A job with --check, --prove or --to has a sandbox all the same, and so has one of a client of snapfs serve. " +
			"A profile that was only found cannot set this. Where the site has a policy, only what its own [direct] lists runs so.",
		Keys: []Key{
			{"commands", "list of texts", "", `Commands without a shell: their words, separated by blanks, as "git fetch --all". A last word * stands for any further arguments.`},
			{"when", `"always" or "risky"`, `"always"`, "Which other jobs get a sandbox: always, or only risky ones. A job is not risky if it was submitted with --effects none: it only reads."},
		},
	}
}

// direct stores one key of the section [direct] of a profile, which says which jobs run without a sandbox, in
// r.sandbox: its name, and its value v. It records mistakes in v at path, the key's path in the file.
func (r *reader) direct(name, path string, v any) {
	if r.sandbox.Direct == nil {
		r.sandbox.Direct = new(catalog.Direct)
	}
	d := r.sandbox.Direct
	if name == "when" {
		switch text := r.text(name, path, v); text {
		case whenAlways, whenRisky:
			d.Risky = text == whenRisky
			r.said("direct.when", text, path)
		case "":
		default:
			r.wrong(path+"=", fmt.Sprintf("when: invalid value %q", text), `use "always" or "risky"`)
		}
		return
	}
	r.texts(name, path, v, func(text, path string) {
		words := strings.Fields(text)
		switch {
		case len(words) == 0 || words[0] == "*":
			r.wrong(path, "commands: no program is named", `write the program first: "git fetch *"`)
		case slices.Contains(words[:len(words)-1], "*"):
			r.wrong(path, "commands: only the last word can be *", "leave the words after it out")
		case slices.ContainsFunc(words, func(w string) bool { return w != "*" && strings.ContainsAny(w, "*?[") }):
			r.wrong(path, fmt.Sprintf("commands: %q has a pattern, and only a last word * is one", text), `write "make docs *"`)
		case strings.ContainsAny(text, "'\"`$|&;<>\\"):
			r.wrong(path, fmt.Sprintf("commands: %q needs a shell", text), "put it into a script, and name the script")
		default:
			if text = strings.Join(words, " "); !slices.Contains(d.Commands, text) {
				d.Commands = append(d.Commands, text)
				r.said("direct.commands", text, path)
			}
		}
	})
}

// addDirect adds to s the jobs that run without a sandbox by the settings of another profile, other, which may be
// nil.
func (s *Sandbox) addDirect(other *catalog.Direct) {
	if other == nil {
		return
	}
	d := new(catalog.Direct)
	if s.Direct != nil {
		*d = *s.Direct
	}
	d.Commands = union(slices.Clip(d.Commands), other.Commands)
	d.Risky = d.Risky || other.Risky
	s.Direct = d
}

// boundDirect removes from the policy p the jobs without a sandbox that the administrator's policy does not
// list. It passes a description of each change to note.
func (s *Site) boundDirect(p *catalog.Policy, note func(string, ...any)) {
	if p.Direct == nil {
		return
	}
	var site catalog.Direct
	if s.Sandbox.Direct != nil {
		site = *s.Sandbox.Direct
	}
	d := catalog.Direct{Risky: p.Direct.Risky && site.Risky}
	for _, c := range p.Direct.Commands {
		if slices.Contains(site.Commands, c) {
			d.Commands = append(d.Commands, c)
		} else {
			note("direct %s refused", c)
		}
	}
	if d.Risky != p.Direct.Risky {
		note("direct when risky refused")
	}
	if p.Direct = nil; d.Risky || len(d.Commands) > 0 {
		p.Direct = &d
	}
}
