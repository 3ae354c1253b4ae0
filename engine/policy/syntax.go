package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A place is an offset in the profile's text, in bytes.
type place uint32

// A stage is a stage while the reader reads it, with the positions of its keys.
type stage struct {
	Stage
	at   place
	keys map[string]place
}

// A reader reads a profile. It works on the syntax tree, because a decoder into structs does not
// provide positions.
type reader struct {
	parser  unstable.Parser
	data    []byte
	dir     string // directory of the profile
	bad     Error
	sandbox Sandbox
	stages  []stage
	begun   map[string]place // by name: position of the first section
	part    *part            // current section; nil for an unknown one
	command Section
}

// A part is a section while the reader reads it.
type part struct {
	Section
	seen map[string]place
	take func(name string, v *unstable.Node, at place)
}

func newReader(path string, data []byte) *reader {
	r := &reader{data: data, dir: filepath.Dir(path), begun: map[string]place{}, command: commandSection()}
	r.bad.File = path
	return r
}

func (r *reader) line(at place) int {
	line, _ := position(r.data, uint32(at))
	return line
}

func (r *reader) wrong(at place, what, mend string) {
	line, column := position(r.data, uint32(at))
	r.bad.Mistakes = append(r.bad.Mistakes, Mistake{line, column, what, mend})
}

// read reads the file up to the first syntax error.
func (r *reader) read() {
	if !utf8.Valid(r.data) {
		r.bad.Mistakes = append(r.bad.Mistakes, Mistake{1, 1, "not UTF-8", "save it as UTF-8"})
		return
	}
	r.parser.Reset(r.data)
	for r.parser.NextExpression() {
		n := r.parser.Expression()
		switch n.Kind {
		case unstable.ArrayTable, unstable.Table:
			r.header(n)
		case unstable.KeyValue:
			r.keyValue(n)
		}
	}
	var broken *unstable.ParserError
	if err := r.parser.Error(); errors.As(err, &broken) {
		at := place(len(r.data))
		if len(broken.Highlight) > 0 {
			at = place(r.parser.Range(broken.Highlight).Offset)
		}
		r.wrong(at, "invalid TOML: "+broken.Message, "")
	} else if err != nil {
		r.wrong(0, err.Error(), "")
	}
}

// header starts a section.
func (r *reader) header(n *unstable.Node) {
	name, at := r.name(n.Key())
	r.part = nil
	list := n.Kind == unstable.ArrayTable
	first, twice := r.begun[name]
	switch {
	case name == "stage" && list:
		r.stages = append(r.stages, stage{at: at, keys: map[string]place{}})
		r.part = &part{stageSection(), r.stages[len(r.stages)-1].keys, r.stageLine}
	case name == "stage":
		r.wrong(at, "there may be several stages", "write [[stage]]")
	case name != "limits" && name != "sandbox":
		r.wrong(at, fmt.Sprintf("%s: unknown section", name), "sections are [limits], [sandbox] and [[stage]]")
	case list:
		r.wrong(at, "there is one section "+name, "write ["+name+"]")
	case twice:
		r.wrong(at, fmt.Sprintf("[%s] is already in line %d", name, r.line(first)), "merge them into one section")
	case name == "limits":
		r.part = &part{limitsSection(), map[string]place{}, r.limit}
	default:
		r.part = &part{sandboxSection(), map[string]place{}, r.setting}
	}
	r.begun[name] = at
}

// name joins a dotted key; at is its position.
func (r *reader) name(keys unstable.Iterator) (name string, at place) {
	var parts []string
	for keys.Next() {
		k := keys.Node()
		if len(parts) == 0 {
			at = place(k.Raw.Offset)
		}
		parts = append(parts, string(k.Data))
	}
	return printable(strings.Join(parts, ".")), at
}

func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, s)
}

// known reports whether a section has the key, and records a mistake if not, or if the key is
// repeated.
func (r *reader) known(s Section, seen map[string]place, name string, at place) bool {
	ok, meant := s.key(name)
	if !ok {
		var names []string
		for _, k := range s.Keys {
			names = append(names, k.Name)
		}
		mend := "keys are " + strings.Join(names, ", ")
		if meant != "" {
			mend = "did you mean " + meant + "?"
		}
		r.wrong(at, fmt.Sprintf("%s: unknown key in %s", name, s.Header), mend)
		return false
	}
	if first, twice := seen[name]; twice {
		r.wrong(at, fmt.Sprintf("%s is already in line %d", name, r.line(first)), "remove one of them")
		return false
	}
	seen[name] = at
	return true
}

func (r *reader) keyValue(n *unstable.Node) {
	name, at := r.name(n.Key())
	if r.part == nil {
		if len(r.begun) == 0 && len(r.bad.Mistakes) == 0 {
			r.wrong(at, name+": not in a section", "move it below [limits], [sandbox] or [[stage]]")
		}
		return
	}
	if r.known(r.part.Section, r.part.seen, name, at) {
		r.part.take(name, n.Value(), at)
	}
}

// stageLine reads a line of the last stage.
func (r *reader) stageLine(name string, v *unstable.Node, at place) {
	s := &r.stages[len(r.stages)-1]
	switch name {
	case "name":
		if s.Name = r.text(name, v, at); s.Name != "" && !isName(s.Name) {
			r.wrong(at, fmt.Sprintf("name: invalid name %q", s.Name), "use letters, digits, dots, hyphens and underscores, and start with a letter, digit or underscore")
		}
	case "target":
		s.Target = r.directory(v, at)
	case "deploy":
		s.Deploy = r.one(name, v, at)
	case "rollback":
		s.Rollback = r.one(name, v, at)
	case "before":
		s.Before = r.several(name, v, at)
	case "after":
		s.After = r.several(name, v, at)
	case "approval":
		if v.Kind != unstable.String {
			r.wrong(at, name+": expected a text, got "+kind(v), `use "auto" or "ask"`)
			return
		}
		s.Approval = Approval(r.text(name, v, at))
		if s.Approval != "" && s.Approval != Auto && s.Approval != Ask {
			r.wrong(at, fmt.Sprintf("approval: invalid value %q", s.Approval), `use "auto" or "ask"`)
		}
	case "timeout":
		s.Timeout = r.duration(v, at)
	}
}

// text reads a text that must not be empty.
func (r *reader) text(name string, v *unstable.Node, at place) string {
	if v.Kind != unstable.String {
		r.wrong(at, name+": expected a text, got "+kind(v), `put it in quotes: `+name+` = "…"`)
		return ""
	}
	if len(v.Data) == 0 {
		r.wrong(at, name+": empty", "remove the line, or give a value")
	}
	if slices.Contains(v.Data, 0) {
		r.wrong(at, name+": contains a NUL byte", "remove it: no file name can contain one")
	}
	return string(v.Data)
}

func (r *reader) directory(v *unstable.Node, at place) string {
	dir := r.text("target", v, at)
	switch {
	case dir == "":
		return ""
	case dir[0] == '~':
		r.wrong(at, "target: ~ is not expanded here", "write the full path")
		return ""
	case !filepath.IsAbs(dir):
		dir = filepath.Join(r.dir, dir)
	}
	if dir = filepath.Clean(dir); dir == "/" {
		r.wrong(at, "target: / is not allowed", "name another directory")
	}
	return dir
}

func (r *reader) duration(v *unstable.Node, at place) Duration {
	text := r.text("timeout", v, at)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.wrong(at, fmt.Sprintf("timeout: invalid duration %q", text), "write 90s, 5m or 1h30m")
	}
	return Duration(d)
}

// several reads a list of commands.
func (r *reader) several(name string, v *unstable.Node, at place) (all []Command) {
	if v.Kind != unstable.Array {
		r.wrong(at, name+": expected a list of commands, got "+kind(v), `put it in brackets: `+name+` = ["…"]`)
		return nil
	}
	for list := v.Children(); list.Next(); {
		n := list.Node()
		if n.Kind == unstable.Comment {
			continue
		}
		if c := r.one(name, n, r.where(n, at)); c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// where returns the position of a value; lists have none of their own.
func (r *reader) where(n *unstable.Node, otherwise place) place {
	if n.Kind == unstable.Array {
		if first := n.Child(); first.Valid() {
			return r.where(first, otherwise)
		}
		return otherwise
	}
	return place(n.Raw.Offset)
}

// one reads a command.
func (r *reader) one(name string, v *unstable.Node, at place) *Command {
	if v.Kind == unstable.InlineTable {
		return r.table(name, v, at)
	}
	return r.run(name, v, at)
}

func (r *reader) run(name string, v *unstable.Node, at place) *Command {
	switch v.Kind {
	case unstable.String:
		if text := r.text(name, v, at); strings.TrimSpace(text) != "" {
			c := shellCommand(text)
			return &c
		} else if text != "" {
			r.wrong(at, name+": the command is blank", "remove it, or name a command")
		}
		return nil
	case unstable.Array:
		var args []string
		for list := v.Children(); list.Next(); {
			switch n := list.Node(); {
			case n.Kind == unstable.Comment:
			case n.Kind != unstable.String || slices.Contains(n.Data, 0):
				r.wrong(r.where(n, at), name+": expected an argument, got "+kind(n), "put each argument in quotes")
				return nil
			default:
				args = append(args, string(n.Data))
			}
		}
		if len(args) == 0 || args[0] == "" {
			r.wrong(at, name+": the command is empty", `write ["program", "argument"], or remove it`)
			return nil
		}
		c := plainCommand(args)
		return &c
	}
	r.wrong(at, name+": expected a command, got "+kind(v), `write "make test", or ["program", "argument"]`)
	return nil
}

// table reads a command in table form.
func (r *reader) table(name string, v *unstable.Node, at place) *Command {
	seen := map[string]place{}
	var c *Command
	var called string
	var limit Duration
	for list := v.Children(); list.Next(); {
		n := list.Node()
		if n.Kind != unstable.KeyValue {
			continue
		}
		key, where := r.name(n.Key())
		if !r.known(r.command, seen, key, where) {
			continue
		}
		switch key {
		case "run":
			c = r.run("run", n.Value(), where)
		case "timeout":
			limit = r.duration(n.Value(), where)
		case "name":
			called = printable(r.text("name", n.Value(), where))
		}
	}
	if _, ok := seen["run"]; !ok {
		r.wrong(at, name+": the table has no run", `add run: { run = "make test" }`)
	}
	if c == nil {
		return nil
	}
	c.Timeout = limit
	if called != "" {
		c.Name = called
	}
	return c
}

// kind returns the type of a value in words.
func kind(v *unstable.Node) string {
	switch v.Kind {
	case unstable.String:
		return "a text"
	case unstable.Bool:
		return "true or false"
	case unstable.Integer, unstable.Float:
		return "a number"
	case unstable.Array:
		return "a list"
	case unstable.InlineTable:
		return "a table"
	}
	return "a date"
}
