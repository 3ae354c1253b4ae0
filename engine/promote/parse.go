package promote

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/vfs"
)

var errTorn = errors.New("damaged line in the journal")

// readJournal reads the journal of a promotion. It ignores a torn last line, because the steps that it
// describes never began. Errors: ErrCorrupt for a damaged line before whole ones; ErrNotSupported for a newer
// format.
func readJournal(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, at(path, err)
	}
	r := &record{}
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		text, ok := checked(line)
		b = rest
		if !whole || !ok {
			r.torn = true
			continue
		}
		if r.torn {
			return nil, corrupt(path, errTorn)
		}
		if err := r.parse(text); err != nil {
			return nil, corrupt(path, err)
		}
	}
	return r, nil
}

var errNewer = errors.New("written by a newer version of snapfs")

func checked(line []byte) (string, bool) {
	if len(line) < 9 || line[8] != ' ' {
		return "", false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	return string(line[9:]), err == nil && uint32(sum) == checksum(line[9:])
}

// parse parses one line of a promotion's journal, without its checksum, into r.
func (r *record) parse(text string) error {
	f := fields{rest: text}
	switch word := f.word(); word {
	case "snapfs-promotion":
		r.version = f.word()
		if r.version != journalVersion && r.version != firstVersion {
			return errNewer
		}
		r.id = f.word()
		r.group, r.retain = r.id, retainNone
	case "made":
		r.made, r.count, r.retain, r.group = f.time(f.word()).Time(), int(f.number(10)), retention(f.word()), f.quoted()
	case "undone":
		r.undone = f.time(f.word()).Time()
	case "sandbox":
		r.sandbox = f.quoted()
	case "target":
		r.path, r.ino = f.quoted(), f.number(10)
	case "stage":
		r.stages = append(r.stages, &stage{beside: f.word() == "beside", where: f.quoted(), name: f.quoted()})
	case "place":
		r.dirs = append(r.dirs, &changedDir{
			path: f.quoted(), ino: f.number(10), mode: uint32(f.number(8)), mtime: f.time(f.word()),
			names: f.word() == "true", widen: f.word() == "true",
		})
	case "ready":
		r.ready = true
	case "commit":
		r.commit = true
	case "stamp":
		if r.stamps == nil {
			r.stamps = map[string]Stamp{}
		}
		r.stamps[f.quoted()] = Stamp{f.number(10), f.time(f.word()).Time()}
	default:
		if !r.parseOp(word, &f) {
			return errTorn
		}
	}
	if f.bad || f.rest != "" {
		return errTorn
	}
	return nil
}

// parseOp parses a journal line about a step of the promotion, which begins with word, into r. It returns
// false if the line is not one.
func (r *record) parseOp(word string, f *fields) bool {
	since := func(read func()) {
		if r.version != firstVersion {
			read()
		}
	}
	switch word {
	case string(put), string(swap), string(drop):
		o := &op{verb: verb(word), path: f.quoted(), stage: int(f.number(10)), name: f.quoted(), old: f.ident(), new: f.ident(), newTree: map[string]nodes.Ident{}}
		since(func() { o.oldCTime = f.time(f.word()) })
		r.ops = append(r.ops, o)
		return o.stage < len(r.stages)
	case "alter":
		o := &op{verb: alter, path: f.quoted(), old: f.ident()}
		o.before = nodes.Meta{
			What: diff.Aspect(f.number(10)), Mode: uint32(f.number(8)), UID: uint32(f.number(10)), GID: uint32(f.number(10)),
			MTime: f.time(f.word()), Xattrs: map[string]string{},
		}
		o.after = nodes.Meta{What: diff.Aspect(f.number(10)), MTime: f.time(f.word())}
		since(func() {
			o.after.Mode, o.after.UID, o.after.GID = uint32(f.number(8)), uint32(f.number(10)), uint32(f.number(10))
			o.after.Xattrs, o.oldCTime = map[string]string{}, f.time(f.word())
		})
		r.ops = append(r.ops, o)
		return true
	case "in", "attr", "to":
		if len(r.ops) == 0 {
			return false
		}
		last := r.ops[len(r.ops)-1]
		switch {
		case word == "in" && last.newTree != nil:
			last.newTree[f.quoted()] = f.ident()
		case word == "attr" && last.before.Xattrs != nil:
			name := f.quoted()
			last.before.Xattrs[name] = f.quoted()
		case word == "to" && last.after.Xattrs != nil:
			name := f.quoted()
			last.after.Xattrs[name] = f.quoted()
		default:
			return false
		}
		return true
	}
	return false
}

// A fields splits a line of a promotion's journal into its fields. The first malformed field sets bad, which
// stays set.
type fields struct {
	rest string
	bad  bool
}

func (f *fields) word() string {
	var w string
	w, f.rest, _ = strings.Cut(f.rest, " ")
	f.bad = f.bad || w == ""
	return w
}

func (f *fields) quoted() string {
	q, err := strconv.QuotedPrefix(f.rest)
	if err != nil {
		f.bad = true
		return ""
	}
	f.rest = strings.TrimPrefix(f.rest[len(q):], " ")
	s, err := strconv.Unquote(q)
	f.bad = f.bad || err != nil
	return s
}

func (f *fields) number(base int) uint64 { return f.parse(f.word(), base) }

func (f *fields) parse(s string, base int) uint64 {
	n, err := strconv.ParseUint(s, base, 64)
	f.bad = f.bad || err != nil
	return n
}

func (f *fields) time(s string) vfs.Timestamp {
	a, b, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(a, 10, 64)
	f.bad = f.bad || err != nil
	return vfs.Timestamp{Sec: sec, Nsec: uint32(f.parse(b, 10))}
}

func (f *fields) ident() nodes.Ident {
	w := f.word()
	if w == "-" {
		return nodes.Ident{}
	}
	p := strings.Split(w, "/")
	if len(p) != 7 {
		f.bad = true
		return nodes.Ident{}
	}
	return nodes.Ident{
		Ino: f.parse(p[0], 10), BTime: f.time(p[1]), MTime: f.time(p[2]), Mode: uint32(f.parse(p[3], 8)),
		UID: uint32(f.parse(p[4], 10)), GID: uint32(f.parse(p[5], 10)), Size: int64(f.parse(p[6], 10)),
	}
}
