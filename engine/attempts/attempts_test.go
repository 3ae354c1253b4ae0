package attempts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

func TestOnlyAPolicyThatNeedsItIsObserved(t *testing.T) {
	for _, p := range []catalog.Policy{
		{}, {Tools: &catalog.Tools{Hook: []string{"WebFetch"}}}, {Data: &catalog.Data{}}, {Hide: []string{"/srv"}},
	} {
		var spec isolate.Spec
		if l, _, _ := Attach(&catalog.Record{Policy: p}, &spec, nil); l != nil || spec.Observe != nil {
			t.Errorf("%+v is observed", p)
		}
	}
}

func TestHiddenFilesAndRefusedProgramsAreCounted(t *testing.T) {
	if !isolate.Observes() {
		treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
	}
	rec := &catalog.Record{Policy: catalog.Policy{
		Tools: &catalog.Tools{Allow: []string{"cat"}, Deny: []string{"id"}}, Result: []string{"out"}, Expose: []string{"/root/.netrc"},
	}}
	spec := isolate.Spec{Hide: []string{"/srv/key", "/srv/accounts"}, Redacted: []isolate.Redacted{{Path: "/srv/accounts"}}, NoExec: []string{"/usr/bin/id"}, Execute: []string{"/usr/bin/cat"}}
	l, note, err := Attach(rec, &spec, nil)
	if l == nil || note != nil || err != nil || !spec.Observe.Files || !spec.Observe.Programs || spec.Observe.Writes {
		t.Fatalf("not observed: %v", note)
	}
	for _, path := range []string{"/srv/key", "/srv/accounts", "/srv/key/below", "/srv/keys", "/root/.ssh/id_rsa", "/srv/key", "/root/.netrc", "/", "/root"} {
		spec.Observe.Call(isolate.Observed{PID: os.Getpid(), Act: isolate.ActLookup, Path: path})
	}
	for _, path := range []string{"/usr/bin/cat", "/usr/bin/id", "/usr/bin/ls"} {
		spec.Observe.Call(isolate.Observed{Act: isolate.ActExec, Path: path})
	}
	got := l.List()
	for i := range got {
		got[i].By = ""
	}
	want := []Attempt{
		{Hidden, "/srv/key", "", 3},
		{Hidden, "/root/.ssh/id_rsa", "", 1},
		{Program, "/usr/bin/id", "", 1},
		{Program, "/usr/bin/ls", "", 1},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"/usr/bin/cat"}, l.Programs()); d != "" {
		t.Error(d)
	}
}

func TestWritesThatTheProfileForbidsAreCounted(t *testing.T) {
	if !isolate.Observes() {
		treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
	}
	dir := treetest.Dir(t)
	if err := os.Symlink(dir, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	spec := isolate.Spec{Writable: []string{"/usr", "/absent"}, ReadOnly: []string{"/usr/lib", dir + "/link", dir}} // as [hostfs.Host.Spec] follows it
	rec := &catalog.Record{Policy: catalog.Policy{Data: &catalog.Data{Writable: spec.Writable, ReadOnly: spec.ReadOnly}}}
	l, note, err := Attach(rec, &spec, nil)
	if l == nil || note != nil || err != nil || spec.Observe.Files || spec.Observe.Programs || !spec.Observe.Writes {
		t.Fatalf("not observed, or too much: %v", note)
	}
	for _, path := range []string{"/usr/x", "/usr/lib/x", "/tmp/x", "/srv/x", "/usr/lib/x", dir + "/x"} {
		spec.Observe.Call(isolate.Observed{Act: isolate.ActWrite, Path: path})
	}
	for _, path := range []string{"/usr/x", "/usr/lib", "/srv/mode"} {
		spec.Observe.Call(isolate.Observed{Act: isolate.ActSetAttr, Path: path})
	}
	want := []Attempt{{Write, "/usr/lib/x", "", 2}, {Write, "/srv/x", "", 1}, {Write, dir + "/x", "", 1}, {Write, "/usr/lib", "", 1}}
	if d := cmp.Diff(want, l.List()); d != "" {
		t.Error(d)
	}
	for i, want := range []string{"data: read-only /usr/lib", "data: not in writable", "data: read-only " + dir} {
		if got := l.why(l.List()[i]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheListIsBounded(t *testing.T) {
	l := &Log{
		rec: &catalog.Record{Policy: catalog.Policy{Tools: &catalog.Tools{Deny: []string{"/d/*"}}}}, deny: []string{"/d"}, readOnly: []string{"/r"}, refusals: map[string]int{},
		at: map[string]int{}, programs: map[string]bool{}, secrets: map[string]bool{"/k": true, "/other": true},
	}
	l.exist = map[string]bool{"/d": true, "/r": true}
	for i := range 2 * maxAttempts {
		l.observe(isolate.Observed{Act: isolate.ActLookup, Path: "/k/" + strconv.Itoa(i)})
		l.observe(isolate.Observed{Act: isolate.ActExec, Path: "/d/" + strconv.Itoa(i)})
		l.observe(isolate.Observed{Act: isolate.ActWrite, Path: "/r/" + strconv.Itoa(i)})
	}
	l.observe(isolate.Observed{Act: isolate.ActLookup, Path: "/other"}) // which nothing before it crowds out
	list := l.List()
	if last := list[len(list)-1]; len(list) != 2*maxAttempts+2 || last.Path != "/other" || list[0].Times != 2*maxAttempts {
		t.Errorf("%d attempts are listed, the last is %+v", len(list), last)
	}
	if (*Log)(nil).List() != nil || (*Log)(nil).Programs() != nil {
		t.Error("nothing has attempts")
	}
}

func TestAnAttemptOfAnyKindHasAText(t *testing.T) {
	for kind, want := range map[string]string{
		Hidden: "looked for a hidden file: /x (by sh)", Program: "may not be executed: /x (by sh)", Write: "may not be written: /x (by sh)", "other": "other: /x (by sh)",
	} {
		if got := (Attempt{Kind: kind, Path: "/x", By: "sh"}).Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestReadsOutsideTheListAreCounted has reads and executions in a sandbox that may read only some paths.
func TestReadsOutsideTheListAreCounted(t *testing.T) {
	if !isolate.Observes() {
		treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
	}
	dir := treetest.Dir(t)
	spec := isolate.Spec{Readable: []string{dir}, Writable: []string{"/srv"}}
	rec := &catalog.Record{Policy: catalog.Policy{Data: &catalog.Data{Readable: spec.Readable, Writable: spec.Writable}}}
	l, note, err := Attach(rec, &spec, nil)
	if o := spec.Observe; l == nil || note != nil || err != nil || !o.Reads || !o.Programs || !o.Writes || o.Moves || o.Files {
		t.Fatalf("not observed, or too much: %v, %v", note, err)
	}
	for _, path := range []string{dir + "/x", "/srv/x", "/usr/lib/x", "/tmp", "/home/x", "/home/x"} {
		spec.Observe.Call(isolate.Observed{Act: isolate.ActRead, Path: path})
	}
	for _, path := range []string{"/usr/bin/cat", "/home/program"} {
		spec.Observe.Call(isolate.Observed{Act: isolate.ActExec, Path: path})
	}
	if d := cmp.Diff([]Attempt{{Read, "/home/x", "", 2}, {Read, "/home/program", "", 1}}, l.List()); d != "" {
		t.Error(d)
	}
}

// TestTheFirstReadIsRecorded gives files other names, in moves that the recorder does not know to have succeeded.
func TestTheFirstReadIsRecorded(t *testing.T) {
	dir := treetest.Dir(t)
	for _, name := range []string{"a", "b.env", "d/c"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		moves string
		read  string
		want  string
	}{
		{"", "a", "a"},
		{"", "d/c", "d/c"},
		{"", "x", ""},
		{"", "new.env", "new.env"}, // made later
		{"a x", "x", "a"},
		{"a x,x y", "y", "a"},
		{"d e", "e/c", "d/c"},
		{"d e,e/c y", "y", "d/c"},
		{"a b.env", "b.env", "b.env a"}, // it may have failed
		{"a x,x a", "a", "a"},
		{"other x", "x", ""},
	} {
		r, err := newRecorder([]string{dir + "/a", dir + "/d", dir + "/*.env"})
		if err != nil {
			t.Fatal(err)
		}
		for move := range strings.SplitSeq(c.moves, ",") {
			if from, to, ok := strings.Cut(move, " "); ok && !r.move(filepath.Join(dir, from), filepath.Join(dir, to)) {
				t.Errorf("%s: refused", move)
			}
		}
		want := []string{}
		for name := range strings.FieldsSeq(c.want) {
			want = append(want, filepath.Join(dir, name))
		}
		if got := r.of(filepath.Join(dir, c.read)); !slices.Equal(got, want) {
			t.Errorf("moves %q: a read of %s is one of %q, want %q", c.moves, c.read, got, want)
		}
	}
}

// TestNothingIsReadUnrecorded: a read whose record fails, and one beyond the bounds, must fail; a recorded one is not
// recorded again.
func TestNothingIsReadUnrecorded(t *testing.T) {
	r := &recorder{paths: []string{"/d"}, done: map[string]bool{}}
	failing := errors.New("no space")
	if r.read("/d/a", func() error { return failing }) || !r.read("/d/a", func() error { return nil }) || !r.read("/d/a", func() error { return failing }) {
		t.Error("a read whose record fails was allowed, or one that is recorded was not")
	}
	for i := range maxRecorded - 1 {
		r.done[strconv.Itoa(i)] = true
	}
	if r.read("/d/b", func() error { return nil }) {
		t.Error("a read beyond the bound was allowed")
	}
	for i := range maxMoves {
		if !r.move("/d/a", "/x"+strconv.Itoa(i)) {
			t.Fatalf("move %d was refused", i)
		}
	}
	if r.move("/d/a", "/y") || !r.move("/d/a", "/x0") || !r.move("/other", "/y") {
		t.Error("a move beyond the bound was allowed, or another was not")
	}
	var none *recorder
	if !none.move("/d/a", "/y") || none.of("/d/a") != nil {
		t.Error("nothing is recorded, and something is")
	}
}
