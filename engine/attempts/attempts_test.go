package attempts

import (
	"os"
	"strconv"
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
	spec := isolate.Spec{Writable: []string{"/usr", "/absent"}, ReadOnly: []string{"/usr/lib", dir + "/link"}}
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
