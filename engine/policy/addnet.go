package policy

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network"
)

// A NetEdit is a change of the key net in the file of a profile. [AddNet] computes it, and [NetEdit.Write] makes it.
type NetEdit struct {
	// Path is the path of the file, with symbolic links resolved.
	Path string
	// Line is the number of the changed line, from 1, and Old and New are its texts; Old is "" for a new line.
	Line     int
	Old, New string
	// OnHost are the commands of the profile that run on the real machine. A user who trusted the file must trust it
	// again before they run.
	OnHost []HostCommand

	before, after []byte
}

// AddNet returns the change that adds network rules to the key net of the profile in the file at path. The key may be
// a text, a list, or missing. AddNet changes nothing; [NetEdit.Write] does. Line is 0 if the file has the rules
// already. Errors: those of [Read]; errs.ErrNotSupported if the key is "none" or "host", or if it may come from a
// profile that this one extends.
func AddNet(path string, rules network.Rules) (*NetEdit, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, &errs.Error{Op: "reading the profile", Path: path, Kind: errs.KindOf(err), Err: cause(err)}
	}
	if _, err := Read(real, Named); err != nil { // with all that it extends
		return nil, err
	}
	data, err := load(real, Named)
	if err != nil {
		return nil, err
	}
	own, err := Parse(real, data)
	if err != nil {
		return nil, err
	}
	e := &NetEdit{Path: real, OnHost: OnHost(own.Stages), before: data}
	refuse := func(why string) error {
		return &errs.Error{
			Op: "adding to the profile", Path: path, Kind: errs.ErrNotSupported, Err: errors.New(why),
			Hints: []string{"net = " + tomlList(rules) + "   # the line to write in its section [sandbox]"},
		}
	}
	list, isList := strings.CutPrefix(own.Sandbox.Net, allowed)
	switch {
	case own.Sandbox.Net != "" && !isList:
		return nil, refuse(`its net is "` + own.Sandbox.Net + `"`)
	case !isList && len(own.Extends) > 0:
		return nil, refuse("its net may come from a profile that it extends")
	}
	all := rules
	if isList {
		listed, err := network.Parse(list)
		if err != nil {
			return nil, err
		}
		if all, err = listed.With(rules); err != nil {
			return nil, err
		}
	}
	if all.String() == list {
		return e, nil
	}
	at, text := insertion(string(data), rules)
	e.after = []byte(string(data[:at]) + text + string(data[at:]))
	want := own.Sandbox
	want.Net = allowed + all.String()
	if now, err := Parse(real, e.after); err != nil || !reflect.DeepEqual(now.Sandbox, want) {
		return nil, refuse("its net has a form that snapfs does not change")
	}
	e.Line, _ = position(e.after, at+max(strings.Index(text, "net = "), 0))
	e.New = lineOf(e.after, e.Line)
	if !strings.Contains(text, "\n") {
		e.Old = lineOf(data, e.Line)
	}
	return e, nil
}

func lineOf(text []byte, line int) string { return strings.Split(string(text), "\n")[line-1] }

// insertion returns the text that adds network rules to document, a profile, and the byte offset at which to insert it.
func insertion(document string, rules network.Rules) (at int, text string) {
	found := places(document)
	last := -1
	for i := 0; ; i++ {
		place, ok := found["sandbox.net."+strconv.Itoa(i)]
		if !ok {
			break
		}
		last = place
	}
	value, has := found["sandbox.net="]
	section, begun := found["sandbox"]
	switch {
	case last >= 0: // net is a list: after its last text
		s := scanner{text: document + "\n", at: last}
		s.quoted()
		return s.at, ", " + strings.Trim(tomlList(rules), "[]")
	case has && value < len(document): // net is a text: before its closing quote
		s := scanner{text: document + "\n", at: value}
		s.quoted()
		return s.at - 1, "," + rules.String()
	case begun && section > 0 && document[section-1] == '[':
		end := section + strings.IndexByte(document[section:]+"\n", '\n')
		return end, "\nnet = " + tomlList(rules)
	}
	gap := "\n"
	if document == "" || strings.HasSuffix(document, "\n") {
		gap = ""
	}
	return len(document), gap + "\n[sandbox]\nnet = " + tomlList(rules) + "\n"
}

// tomlList returns the network rules as a list of texts in TOML.
func tomlList(rules network.Rules) string {
	var list []string
	for _, one := range rules.Texts() {
		list = append(list, strconv.Quote(one))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// Write makes the change: it replaces the file atomically and keeps its owner and permissions. After an error the file
// is as before. Errors: errs.ErrBusy if another program has changed the file since [AddNet].
func (e *NetEdit) Write() error {
	wrap := func(err error) error {
		return &errs.Error{Op: "writing the profile", Path: e.Path, Kind: errs.KindOf(err), Err: cause(err)}
	}
	if e.Line == 0 {
		return nil
	}
	info, err := os.Lstat(e.Path)
	if err != nil {
		return wrap(err)
	}
	now, err := load(e.Path, Named)
	if err != nil {
		return err
	}
	if string(now) != string(e.before) {
		return &errs.Error{Op: "writing the profile", Path: e.Path, Kind: errs.ErrBusy, Err: errors.New("another program changed it")}
	}
	f, err := os.CreateTemp(filepath.Dir(e.Path), "."+filepath.Base(e.Path)+".*")
	if err != nil {
		return wrap(err)
	}
	_, err = f.Write(e.after)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		err = errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)))
	}
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), e.Path)
	}
	if err != nil {
		return wrap(errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
