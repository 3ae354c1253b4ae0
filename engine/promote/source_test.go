package promote_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestContentIsReadFromTheSource promotes a merged file, one that the sandbox has under
// another name, and an ordinary one.
func TestContentIsReadFromTheSource(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{do(treetest.Mkdir, "d", ""), file("d/merged", 1, 10), file("same", 2, 10)},
		treetest.Script{do(treetest.Unlink, "d/merged", ""), file("d/merged", 3, 10), file("its-name", 4, 9000), do(treetest.Unlink, "same", ""), file("same", 5, 10)})
	scratch := filepath.Join(w.top, "scratch")
	must(t, os.MkdirAll(scratch+"/d", 0o700))
	must(t, os.WriteFile(scratch+"/d/merged", []byte("what both sides have made of it"), 0o600))
	changes := w.changes(t, w.frozen())
	later := time.Unix(second+50, 0)
	for i := range changes {
		switch c := &changes[i]; c.Path {
		case "d/merged":
			n := *c.New
			n.Size, n.MTime, n.Mode = int64(len("what both sides have made of it")), later, 0o640
			c.New = &n
		case "its-name":
			n := *c.New
			n.MTime = later
			c.Path, c.New = "other-name", &n
		}
	}
	from := w.source()
	from.Built, from.In = treetest.Open(t, scratch), map[string]bool{"d/merged": true}
	from.From = map[string]string{"other-name": "its-name"}
	drifts, err := promote.Check(t.Context(), w.target(), from, changes, w.frozen())
	if err != nil || len(drifts) > 0 {
		t.Fatalf("drifts %v, %v", drifts, err)
	}
	r, err := promote.Apply(t.Context(), w.target(), from, changes, options(w.frozen()))
	must(t, err)
	for path, want := range map[string]string{
		"d/merged": scratch + "/d/merged", "other-name": w.sandbox.Name() + "/its-name", "same": w.sandbox.Name() + "/same",
	} {
		got, err := os.ReadFile(filepath.Join(w.real.Name(), path))
		must(t, err)
		expected, err := os.ReadFile(want)
		must(t, err)
		if string(got) != string(expected) {
			t.Errorf("%s holds %q", path, got)
		}
	}
	st, err := os.Lstat(w.real.Name() + "/d/merged")
	must(t, err)
	if !st.ModTime().Equal(later) || st.Mode() != 0o640 {
		t.Errorf("the merged file is %v of %v", st.Mode(), st.ModTime())
	}
	// The second time the content is compared with the source, and already there.
	b := w.frozen()
	b.Known = r.Stamps
	if r, err = promote.Apply(t.Context(), w.target(), from, changes, options(b)); err != nil || r.Applied != 0 || len(r.Already) != 3 {
		t.Errorf("again: %+v, %v", r, err)
	}
	w.clean(t)
}

func TestASourceThatChangesIsNoticedUnderAnotherNameToo(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, treetest.Script{file("its-name", 4, 10)})
	changes := w.changes(t, w.frozen())
	changes[0].Path = "other-name"
	from := w.source()
	from.From = map[string]string{"other-name": "its-name"}
	time.Sleep(diff.Racy)
	must(t, os.WriteFile(w.sandbox.Name()+"/its-name", []byte("ten bytes."), 0o644))
	if _, err := promote.Apply(t.Context(), w.target(), from, changes, options(w.frozen())); !errors.Is(err, errs.ErrConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(w.real.Name() + "/other-name"); err == nil {
		t.Error("it was carried all the same")
	}
	w.clean(t)
}
