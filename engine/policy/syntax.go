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

// A place is an offset in the file.
type place uint32

// A stage in the making.
type stage struct {
	Stage
	at   place
	keys map[string]place
}

// A reader takes a profile apart. It goes by the syntax tree rather than by a
// decoder into structs: only the tree knows where things stand.
type reader struct {
	parser  unstable.Parser
	data    []byte
	dir     string // of the profile
	bad     Error
	sandbox Sandbox
	stages  []stage
	begun   map[string]place // tables, which there may be one of
	part    *part            // that lines belong to; nil for those of a section that is none
	command Section
}

// A part of the file is read line by line.
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

// read goes through the file. Where its syntax is broken, the rest cannot be
// understood.
func (r *reader) read() {
	if !utf8.Valid(r.data) {
		r.bad.Mistakes = append(r.bad.Mistakes, Mistake{1, 1, "it is not UTF-8", "save it as UTF-8"})
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
		r.wrong(at, "the syntax of TOML is broken here: "+broken.Message, "")
	} else if err != nil {
		r.wrong(0, err.Error(), "")
	}
}

// header begins a section.
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
		r.wrong(at, fmt.Sprintf("%s: there is no such section", name), "there are [limits], [sandbox] and [[stage]]")
	case list:
		r.wrong(at, "there is one section "+name, "write ["+name+"]")
	case twice:
		r.wrong(at, fmt.Sprintf("[%s] stands in line %d already", name, r.line(first)), "make one of them")
	case name == "limits":
		r.part = &part{limitsSection(), map[string]place{}, r.limit}
	default:
		r.part = &part{sandboxSection(), map[string]place{}, r.setting}
	}
	r.begun[name] = at
}

// name joins a dotted key; at is where it begins.
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

// known reports a key that the section does not have, or that stood before.
func (r *reader) known(s Section, seen map[string]place, name string, at place) bool {
	ok, meant := s.key(name)
	if !ok {
		var names []string
		for _, k := range s.Keys {
			names = append(names, k.Name)
		}
		mend := "there are " + strings.Join(names, ", ")
		if meant != "" {
			mend = "did you mean " + meant + "?"
		}
		r.wrong(at, fmt.Sprintf("%s: there is no such key in %s", name, s.Header), mend)
		return false
	}
	if first, twice := seen[name]; twice {
		r.wrong(at, fmt.Sprintf("%s stands in line %d already", name, r.line(first)), "leave one of them out")
		return false
	}
	seen[name] = at
	return true
}

func (r *reader) keyValue(n *unstable.Node) {
	name, at := r.name(n.Key())
	if r.part == nil {
		if len(r.begun) == 0 && len(r.bad.Mistakes) == 0 {
			r.wrong(at, name+": it stands in no section", "put it below [limits], [sandbox] or [[stage]]")
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
			r.wrong(at, fmt.Sprintf("name: %q is none", s.Name), "letters, digits, dots, hyphens and underscores make one, and it begins with none of the marks but the last")
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
			r.wrong(at, name+": "+kind(v)+", where a text belongs", `there are "auto" and "ask"`)
			return
		}
		s.Approval = Approval(r.text(name, v, at))
		if s.Approval != "" && s.Approval != Auto && s.Approval != Ask {
			r.wrong(at, fmt.Sprintf("approval: %q is none", s.Approval), `there are "auto" and "ask"`)
		}
	case "timeout":
		s.Timeout = r.duration(v, at)
	}
}

// text reads a text that is not empty.
func (r *reader) text(name string, v *unstable.Node, at place) string {
	if v.Kind != unstable.String {
		r.wrong(at, name+": "+kind(v)+", where a text belongs", `put it in quotes: `+name+` = "…"`)
		return ""
	}
	if len(v.Data) == 0 {
		r.wrong(at, name+": it is empty", "leave the line out, or say something")
	}
	if slices.Contains(v.Data, 0) {
		r.wrong(at, name+": it holds a NUL", "no file and no program can have one in its name")
	}
	return string(v.Data)
}

func (r *reader) directory(v *unstable.Node, at place) string {
	dir := r.text("target", v, at)
	switch {
	case dir == "":
		return ""
	case dir[0] == '~':
		r.wrong(at, "target: ~ is the shell's, and means nothing here", "write the directory out")
		return ""
	case !filepath.IsAbs(dir):
		dir = filepath.Join(r.dir, dir)
	}
	if dir = filepath.Clean(dir); dir == "/" {
		r.wrong(at, "target: the whole machine is none", "name a directory")
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
		r.wrong(at, fmt.Sprintf("timeout: %q is no duration", text), "write 90s, 5m or 1h30m")
	}
	return Duration(d)
}

// several reads a list of commands.
func (r *reader) several(name string, v *unstable.Node, at place) (all []Command) {
	if v.Kind != unstable.Array {
		r.wrong(at, name+": "+kind(v)+", where a list of commands belongs", `put it in brackets: `+name+` = ["…"]`)
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

// where is the place of a value: lists have none of their own.
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
			r.wrong(at, name+": the command is blank", "leave it out, or say something")
		}
		return nil
	case unstable.Array:
		var args []string
		for list := v.Children(); list.Next(); {
			switch n := list.Node(); {
			case n.Kind == unstable.Comment:
			case n.Kind != unstable.String || slices.Contains(n.Data, 0):
				r.wrong(r.where(n, at), name+": "+kind(n)+", where an argument belongs", "put each argument in quotes")
				return nil
			default:
				args = append(args, string(n.Data))
			}
		}
		if len(args) == 0 || args[0] == "" {
			r.wrong(at, name+": the command is empty", `write ["program", "argument"], or leave it out`)
			return nil
		}
		c := plainCommand(args)
		return &c
	}
	r.wrong(at, name+": "+kind(v)+", where a command belongs", `write "make test", or ["program", "argument"]`)
	return nil
}

// table reads a command with more than its words.
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
		r.wrong(at, name+": the table has no run", `say what to run: { run = "make test" }`)
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

// kind is what a value is, in words.
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
