package promote

import (
	"bytes"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
)

var errTorn = errors.New("damaged line in the journal")

// readJournal reads the journal of a promotion. It ignores a torn last line, because the steps that it describes never
// began. Errors: ErrCorrupt for a damaged line before whole ones; ErrNotSupported for a newer format.
func readJournal(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, at(path, err)
	}
	r := &record{}
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		text, ok := journalfile.Text(line)
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

// parse parses one line of a promotion's journal, without its checksum, into r.
func (r *record) parse(text string) error {
	f := journalfile.Fields{Rest: text}
	switch word := f.Word(); word {
	case "snapfs-promotion":
		r.version = f.Word()
		if r.version != journalVersion && r.version != firstVersion {
			return errNewer
		}
		r.id = f.Word()
		r.group, r.retain = r.id, retainNone
	case "made":
		r.made, r.count, r.retain, r.group = f.Time(f.Word()).Time(), int(f.Number(10)), retention(f.Word()), f.Quoted()
	case "undone":
		r.undone = f.Time(f.Word()).Time()
	case "sandbox":
		r.sandbox = f.Quoted()
	case "target":
		r.path, r.ino = f.Quoted(), f.Number(10)
	case "stage":
		r.stages = append(r.stages, &stage{beside: f.Word() == "beside", where: f.Quoted(), name: f.Quoted()})
	case "place":
		r.dirs = append(r.dirs, &nodes.ChangedDir{
			Path: f.Quoted(), Ino: f.Number(10), Mode: uint32(f.Number(8)), MTime: f.Time(f.Word()),
			Names: f.Word() == "true", Widen: f.Word() == "true",
		})
	case "ready":
		r.ready = true
	case "commit":
		r.commit = true
	case "stamp":
		if r.stamps == nil {
			r.stamps = map[string]Stamp{}
		}
		r.stamps[f.Quoted()] = Stamp{f.Number(10), f.Time(f.Word()).Time()}
	default:
		if !r.parseOp(word, &f) {
			return errTorn
		}
	}
	if f.Bad || f.Rest != "" {
		return errTorn
	}
	return nil
}

// parseOp parses a journal line about a step of the promotion, which begins with word, into r. It returns
// false if the line is not one.
func (r *record) parseOp(word string, f *journalfile.Fields) bool {
	since := func(read func()) {
		if r.version != firstVersion {
			read()
		}
	}
	switch word {
	case string(put), string(swap), string(drop):
		o := &op{verb: verb(word), path: f.Quoted(), stage: int(f.Number(10)), name: f.Quoted(), old: f.Ident(), new: f.Ident(), newTree: map[string]nodes.Ident{}}
		since(func() { o.oldCTime = f.Time(f.Word()) })
		r.ops = append(r.ops, o)
		return o.stage < len(r.stages)
	case "alter":
		o := &op{verb: alter, path: f.Quoted(), old: f.Ident()}
		o.before = nodes.Meta{
			What: diff.Aspect(f.Number(10)), Mode: uint32(f.Number(8)), UID: uint32(f.Number(10)), GID: uint32(f.Number(10)),
			MTime: f.Time(f.Word()), Xattrs: map[string]string{},
		}
		o.after = nodes.Meta{What: diff.Aspect(f.Number(10)), MTime: f.Time(f.Word())}
		since(func() {
			o.after.Mode, o.after.UID, o.after.GID = uint32(f.Number(8)), uint32(f.Number(10)), uint32(f.Number(10))
			o.after.Xattrs, o.oldCTime = map[string]string{}, f.Time(f.Word())
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
			last.newTree[f.Quoted()] = f.Ident()
		case word == "attr" && last.before.Xattrs != nil:
			name := f.Quoted()
			last.before.Xattrs[name] = f.Quoted()
		case word == "to" && last.after.Xattrs != nil:
			name := f.Quoted()
			last.after.Xattrs[name] = f.Quoted()
		default:
			return false
		}
		return true
	}
	return false
}
