package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// A stage is a [Stage], one destination of a promotion, while the profile with it is being read. path is its
// path in the file, for messages.
type stage struct {
	Stage
	path string
}

// A reader builds a profile from a file and records all its mistakes. It decodes the file into maps, because
// a decoder into structs ends at the first mistake.
type reader struct {
	data    []byte
	dir     string         // directory of the profile
	places  map[string]int // offsets by path, see scanner
	bad     Error
	sandbox Sandbox
	stages  []stage
	origins []Origin
	extends []string
	about   string
	version int
	site    bool   // the file is the site's policy
	profile string // of the site's policy: the default profile
}

// place returns the byte offset of a key's path, such as "stage.0.target", in the file. If the path has none,
// it is the offset of the nearest parent that has one.
func (r *reader) place(path string) int {
	at, ok := r.places[path]
	for end := len(path); !ok && end >= 0; end = strings.LastIndexByte(path[:end], '.') {
		at, ok = r.places[path[:end]]
	}
	return at
}

func (r *reader) line(path string) int {
	line, _ := position(r.data, r.place(path))
	return line
}

func (r *reader) wrong(path, what, mend string) { r.wrongAt(r.place(path), what, mend) }

func (r *reader) wrongAt(at int, what, mend string) {
	line, column := position(r.data, at)
	r.bad.Mistakes = append(r.bad.Mistakes, Mistake{line, column, what, mend})
}

// read parses the file r.data into the fields of r, and lists the mistakes in the order of the file. If the
// file is no TOML, the only mistake is the first syntax error.
func (r *reader) read() {
	if !utf8.Valid(r.data) {
		r.bad.Mistakes = append(r.bad.Mistakes, Mistake{1, 1, "not UTF-8", "save it as UTF-8"})
		return
	}
	var file map[string]any
	var broken *toml.DecodeError
	if err := toml.Unmarshal(r.data, &file); errors.As(err, &broken) {
		line, column := broken.Position()
		r.bad.Mistakes = append(r.bad.Mistakes, Mistake{line, column, "invalid TOML: " + strings.TrimPrefix(broken.Error(), "toml: "), ""})
		return
	} else if err != nil {
		r.wrong("", err.Error(), "")
		return
	}
	r.places = places(string(r.data))
	for name, v := range file {
		r.top(printable(name), name, v)
	}
	slices.SortStableFunc(r.bad.Mistakes, func(a, b Mistake) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
}

// top reads one top-level entry of the file, called name and with the value v: a line above the first section, a
// section or the list of [[stage]]. For any other entry it records a mistake at path, the entry's path in the file.
func (r *reader) top(name, path string, v any) {
	if first, take := r.first(); slices.ContainsFunc(first.Keys, func(k Key) bool { return k.Name == name }) {
		take(name, path, v)
		return
	}
	table, single := v.(map[string]any)
	list, several := v.([]any)
	for _, v := range list {
		_, ok := v.(map[string]any)
		several = several && ok
	}
	sections := map[string]func(){
		"limits":  func() { r.section(limitsSection(), path, table, r.limit) },
		"sandbox": func() { r.section(sandboxSection(), path, table, r.setting) },
		"tools":   func() { r.section(toolsSection(), path, table, r.tool) },
		"data":    func() { r.section(dataSection(), path, table, r.datum) },
		"secrets": func() { r.secrets(path, table) },
		"budget":  func() { r.section(budgetSection(), path, table, r.budget) },
		"prices":  func() { r.prices(path, table) },
		"result":  func() { r.section(resultSection(), path, table, r.outcome) },
		"direct":  func() { r.section(directSection(), path, table, r.direct) },
	}
	read, known := sections[name]
	switch {
	case !single && !several:
		r.wrong(path, name+": not in a section", "move it below [limits], [sandbox], [tools], [data], [secrets.NAME], [budget], [prices.NAME], [result], [direct] or [[stage]]")
	case name == "stage" && r.site:
		r.wrong(path, "the site's policy has no stages", "write them in a profile")
	case name == "secrets" && r.site:
		r.wrong(path, "the site's policy names no secrets", "write them in a profile")
	case name == "result" && r.site:
		r.wrong(path, "the site's policy selects no result", "write it in a profile")
	case name == "stage" && several:
		for i, v := range list {
			r.stages = append(r.stages, stage{path: fmt.Sprintf("%s.%d", path, i)})
			r.section(stageSection(), r.stages[i].path, v.(map[string]any), r.stageLine) //nolint:errcheck // checked above
		}
	case name == "stage":
		r.wrong(path, "there may be several stages", "write [[stage]]")
	case !known:
		mend := "sections are [limits], [sandbox], [tools], [data], [secrets.NAME], [budget], [prices.NAME], [result], [direct] and [[stage]]"
		if r.site {
			mend = "sections are [limits], [sandbox], [tools], [data], [budget], [prices.NAME] and [direct]"
		}
		r.wrong(path, name+": unknown section", mend)
	case several:
		r.wrong(path, "there is one section "+name, "write ["+name+"]")
	default:
		read()
	}
}

// first returns the description of the lines that the file may have above its first section, and the function
// that stores one of them. The file is a profile or the administrator's policy.toml, which have different
// lines there.
func (r *reader) first() (Section, func(name, path string, v any)) {
	if r.site {
		return siteSection(), r.siteLine
	}
	return profileSection(), r.beforeSection
}

func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, s)
}

// section calls take for each key of table, a decoded section, that the description s lists. It records a
// mistake for every other key.
func (r *reader) section(s Section, path string, table map[string]any, take func(name, path string, v any)) {
	for name, v := range table {
		ok, meant := s.key(name)
		if ok {
			take(name, path+"."+name, v)
			continue
		}
		mend := "did you mean " + meant + "?"
		if meant == "" {
			var names []string
			for _, k := range s.Keys {
				names = append(names, k.Name)
			}
			mend = "keys are " + strings.Join(names, ", ")
		}
		r.wrong(path+"."+name, fmt.Sprintf("%s: unknown key in %s", printable(name), s.Header), mend)
	}
}

// stageLine stores one key of a section [[stage]] of a profile, called name and with the value v, in the last of
// r.stages. If v is not valid it records a mistake at path, the key's path in the file.
func (r *reader) stageLine(name, path string, v any) {
	s := &r.stages[len(r.stages)-1]
	switch name {
	case "name":
		if s.Name = r.text(name, path, v); s.Name != "" && !isName(s.Name) {
			r.wrong(path, fmt.Sprintf("name: invalid name %q", s.Name), "use letters, digits, dots, hyphens and underscores, and start with a letter, digit or underscore")
		}
	case "target":
		s.Target = r.directory(path, v)
	case "deploy":
		s.Deploy = r.one(name, path, v)
	case "rollback":
		s.Rollback = r.one(name, path, v)
	case "before":
		s.Before = r.several(name, path, v)
	case "after":
		s.After = r.several(name, path, v)
	case "approval":
		if _, ok := v.(string); !ok {
			r.wrong(path, name+": expected a text, got "+kind(v), `use "auto" or "ask"`)
			return
		}
		s.Approval = Approval(r.text(name, path, v))
		if s.Approval != "" && s.Approval != Auto && s.Approval != Ask {
			r.wrong(path, fmt.Sprintf("approval: invalid value %q", s.Approval), `use "auto" or "ask"`)
		}
	case "timeout":
		s.Timeout = r.duration(path, v)
	}
}

// text returns v, the value of the key name of a profile, if it is a text. It records a mistake at path, the key's
// path in the file, and returns v or "" all the same, if v is no text, is empty or has a NUL byte.
func (r *reader) text(name, path string, v any) string {
	text, ok := v.(string)
	switch {
	case !ok:
		r.wrong(path, name+": expected a text, got "+kind(v), `put it in quotes: `+name+` = "…"`)
	case text == "":
		r.wrong(path, name+": empty", "remove the line, or give a value")
	case strings.Contains(text, "\x00"):
		r.wrong(path, name+": contains a NUL byte", "remove it: no file name can contain one")
	}
	return text
}

func (r *reader) directory(path string, v any) string {
	dir := r.text("target", path, v)
	switch {
	case dir == "":
		return ""
	case dir[0] == '~':
		r.wrong(path, "target: ~ is not expanded here", "write the full path")
		return ""
	case !filepath.IsAbs(dir):
		dir = filepath.Join(r.dir, dir)
	}
	if dir = filepath.Clean(dir); dir == "/" {
		r.wrong(path, "target: / is not allowed", "name another directory")
	}
	return dir
}

func (r *reader) duration(path string, v any) Duration {
	text := r.text("timeout", path, v)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.wrong(path, fmt.Sprintf("timeout: invalid duration %q", text), "write 90s, 5m or 1h30m")
	}
	return Duration(d)
}

// several returns the commands in the list v, the value of the key name of a profile. It records a mistake for each
// malformed one, at its path below path in the file, and leaves that out.
func (r *reader) several(name, path string, v any) (all []Command) {
	list, ok := v.([]any)
	if !ok {
		r.wrong(path, name+": expected a list of commands, got "+kind(v), `put it in brackets: `+name+` = ["…"]`)
	}
	for i, v := range list {
		if c := r.one(name, fmt.Sprintf("%s.%d", path, i), v); c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// one returns the command that v, the value of the key name in a profile, gives as a text, a list of arguments or a
// table; nil after a mistake, which it records at path, the value's path in the file.
func (r *reader) one(name, path string, v any) *Command {
	if table, ok := v.(map[string]any); ok {
		return r.table(name, path, table)
	}
	return r.run(name, path, v)
}

func (r *reader) run(name, path string, v any) *Command {
	switch v := v.(type) {
	case string:
		if text := r.text(name, path, v); strings.TrimSpace(text) != "" {
			c := shellCommand(text)
			return &c
		} else if text != "" {
			r.wrong(path, name+": the command is blank", "remove it, or name a command")
		}
		return nil
	case []any:
		var args []string
		for i, v := range v {
			arg, ok := v.(string)
			if !ok || strings.Contains(arg, "\x00") {
				r.wrong(fmt.Sprintf("%s.%d", path, i), name+": expected an argument, got "+kind(v), "put each argument in quotes")
				return nil
			}
			args = append(args, arg)
		}
		if len(args) == 0 || args[0] == "" {
			r.wrong(path, name+": the command is empty", `write ["program", "argument"], or remove it`)
			return nil
		}
		c := plainCommand(args)
		return &c
	}
	r.wrong(path, name+": expected a command, got "+kind(v), `write "make test", or ["program", "argument"]`)
	return nil
}

// table returns the command that table, the value of the key name of a profile, describes by its keys run, name and
// timeout, the last two optional; nil after a mistake in run. It records mistakes at path, the table's path in the
// file.
func (r *reader) table(name, path string, table map[string]any) *Command {
	var c *Command
	var called string
	var limit Duration
	r.section(commandSection(), path, table, func(key, path string, v any) {
		switch key {
		case "run":
			c = r.run("run", path, v)
		case "timeout":
			limit = r.duration(path, v)
		case "name":
			called = printable(r.text("name", path, v))
		}
	})
	if _, ok := table["run"]; !ok {
		r.wrong(path, name+": the table has no run", `add run: { run = "make test" }`)
	}
	if c == nil {
		return nil
	}
	c.Timeout = limit
	c.Name = cmp.Or(called, c.Name)
	return c
}

// kind returns the TOML type of a value in words for a message, such as "a list".
func kind(v any) string {
	switch v.(type) {
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date"
}
