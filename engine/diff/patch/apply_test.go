package patch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// trio are three trees: old, new, and a copy of old.
type trio struct {
	t             *testing.T
	old, new, got string
}

func newTrio(t *testing.T) trio {
	dir := treetest.Dir(t)
	w := trio{t, filepath.Join(dir, "old"), filepath.Join(dir, "new"), filepath.Join(dir, "got")}
	for _, root := range []string{w.old, w.new, w.got} {
		w.do(os.Mkdir(root, 0o755))
	}
	return w
}

func (w trio) do(errs ...error) {
	w.t.Helper()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// patch writes one from old to new.
func (w trio) patch(renames bool) []byte {
	w.t.Helper()
	ctx := context.Background()
	old, new := treetest.Open(w.t, w.old), treetest.Open(w.t, w.new)
	changes, err := diff.Trees(ctx, old, new, diff.Options{})
	w.do(err)
	o := patch.Options{}
	if renames {
		o.Renames, err = diff.Renames(ctx, old, new, changes, diff.Options{})
		w.do(err)
	}
	var out bytes.Buffer
	w.do(patch.Write(ctx, &out, old, new, changes, o))
	return out.Bytes()
}

func (w trio) apply(ctx context.Context, text []byte) error {
	return patch.Apply(ctx, treetest.Open(w.t, w.got), bytes.NewReader(text))
}

func (w trio) manifest(root string) string { return treetest.Manifest(w.t, root, treetest.Options{}) }

func (w trio) becomesNew(what string, text []byte) {
	w.t.Helper()
	if err := w.apply(context.Background(), text); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if wrong := treetest.Lines(w.manifest(w.new), w.manifest(w.got)); len(wrong) > 0 {
		w.t.Fatalf("%s:\n%s", what, strings.Join(wrong, "\n"))
	}
}

func TestAppliedToACopyOfTheOldTreeItGivesExactlyTheNewOne(t *testing.T) {
	treetest.NeedRoot(t)
	for seed := range uint64(40) {
		w := newTrio(t)
		script := treetest.NewWriter(seed, treetest.Powers{Root: true})
		base := script.Script(60)
		if seed%8 == 0 {
			base = append(base, script.Deep()...)
		}
		more := script.Script(40)
		for _, root := range []string{w.old, w.new, w.got} {
			w.do(base.Play(treetest.Open(t, root)))
		}
		w.do(more.Play(treetest.Open(t, w.new)))
		before := w.manifest(w.got)
		text := w.patch(seed%2 == 0)
		w.becomesNew(fmt.Sprint("seed ", seed), text)
		if err := w.apply(context.Background(), text); seed > 0 && !errors.Is(err, snapshot.ErrDrifted) {
			t.Errorf("seed %d: applied again: %v", seed, err)
		}
		if after := w.manifest(w.got); after == before || after != w.manifest(w.new) {
			t.Errorf("seed %d: a refused patch has changed something", seed)
		}
		for _, root := range []string{w.old, w.new, w.got} {
			w.do(os.RemoveAll(root))
		}
	}
}

// put writes a file, with holes where content is far apart.
func put(root, name string, size int64, at map[int64]string) error {
	f, err := os.Create(filepath.Join(root, name))
	if err != nil {
		return err
	}
	for offset, text := range at {
		if _, err := f.WriteAt([]byte(text), offset); err != nil {
			return err
		}
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func TestAPatchCarriesTheExtentsOfHugeFilesOnly(t *testing.T) {
	w := newTrio(t)
	const size = 4 << 40 // reading it would take an hour
	noise := strings.Repeat("0123456789abcdef", 1<<12)
	for _, root := range []string{w.old, w.got} {
		w.do(put(root, "edited", size, map[int64]string{0: noise, size / 2: noise, size - 5: "tail!"}),
			put(root, "shorter", size, map[int64]string{7: "x", size - 1: "y"}), put(root, "gone", size, map[int64]string{size / 3: "z"}),
			put(root, "moved", size, map[int64]string{size / 7: "m"}), put(root, "small", 10, nil), put(root, "zeroed", 1<<30, map[int64]string{1 << 29: noise}))
	}
	w.do(put(w.new, "edited", size, map[int64]string{0: noise, size / 2: noise, size / 4: "new", size - 5: "TAIL!"}),
		put(w.new, "shorter", 1<<30, map[int64]string{7: "x"}), put(w.new, "came", size, map[int64]string{size / 5: "w"}),
		put(w.new, "went", size, map[int64]string{size / 7: "m"}), put(w.new, "small", size, map[int64]string{0: "grown"}), put(w.new, "zeroed", 1<<30, nil))
	text := w.patch(true)
	if len(text) > 32<<10 {
		t.Errorf("the patch has %d bytes", len(text))
	}
	w.do(w.apply(context.Background(), text))
	names, err := os.ReadDir(w.new)
	w.do(err)
	got, err := os.ReadDir(w.got)
	w.do(err)
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("there are %v, want %v", got, names)
	}
	changes, err := diff.Trees(context.Background(), treetest.Open(t, w.new), treetest.Open(t, w.got), diff.Options{})
	w.do(err)
	if len(changes) > 0 {
		t.Errorf("%+v differ", changes)
	}
	treetest.Holes(t, treetest.Open(t, w.new), treetest.Open(t, w.got), "edited", "shorter", "came", "went", "small")
}

func TestAPatchIsRefusedWholeWhereTheOldSideIsAnother(t *testing.T) {
	treetest.NeedRoot(t)
	at := func(w trio, name string) string { return filepath.Join(w.got, name) }
	for name, spoil := range map[string]func(w trio) error{
		"edited":                 func(w trio) error { return os.WriteFile(at(w, "edit"), []byte("mine\n"), 0o644) },
		"deleted with edits":     func(w trio) error { return os.WriteFile(at(w, "dir/gone"), []byte("mine\n"), 0o644) },
		"mode":                   func(w trio) error { return os.Chmod(at(w, "mode"), 0o640) },
		"owner":                  func(w trio) error { return os.Chown(at(w, "edit"), 5, 5) },
		"attribute":              func(w trio) error { return unix.Setxattr(at(w, "edit"), "user.k", []byte("v"), 0) },
		"gone":                   func(w trio) error { return os.Remove(at(w, "edit")) },
		"type":                   func(w trio) error { return errors.Join(os.Remove(at(w, "edit")), os.Symlink("x", at(w, "edit"))) },
		"target":                 func(w trio) error { return errors.Join(os.Remove(at(w, "link")), os.Symlink("x", at(w, "link"))) },
		"in the way":             func(w trio) error { return os.WriteFile(at(w, "came"), nil, 0o644) },
		"in a deleted directory": func(w trio) error { return os.WriteFile(at(w, "dir/mine"), nil, 0o644) },
		"a link on the way": func(w trio) error {
			return errors.Join(os.Rename(at(w, "sub"), w.got+"-elsewhere"), os.Symlink(w.got+"-elsewhere", at(w, "sub")))
		},
		"what it becomes a link of": func(w trio) error { return os.WriteFile(at(w, "anchor"), []byte("mine\n"), 0o644) },
		"huge":                      func(w trio) error { return put(w.got, "huge", 1<<40, map[int64]string{1 << 39: "mine"}) },
		"renamed from":              func(w trio) error { return os.WriteFile(at(w, "from"), []byte("mined\n"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrio(t)
			w.sampleSides()
			text := w.patch(true)
			w.do(spoil(w))
			before := w.manifestWithoutHuge(w.got)
			if err := w.apply(context.Background(), text); !errors.Is(err, snapshot.ErrDrifted) {
				t.Errorf("got %v, want ErrDrifted", err)
			}
			if after := w.manifestWithoutHuge(w.got); after != before {
				t.Errorf("something was touched:\n%s", strings.Join(treetest.Lines(before, after), "\n"))
			}
		})
	}
}

func (w trio) manifestWithoutHuge(root string) string {
	return treetest.Manifest(w.t, root, treetest.Options{NoContent: true}) +
		treetest.Manifest(w.t, root, treetest.Options{Skip: func(p string) bool { return p == "huge" }})
}

// sampleSides fills the trees with one of each thing that can happen.
func (w trio) sampleSides() {
	for _, root := range []string{w.old, w.got} {
		tree{
			"edit": "a\nb\nc\n", "dir/gone": "bye\n", "dir/sub/too": "bye\n", "mode": "m\n", "link": "->edit", "sub/deep": "1\n", "anchor": "anchored\n",
			"from": "moved\n", "type": "file\n", "bin": "\x00old",
		}.build(w.t, root)
		w.do(put(root, "huge", 1<<40, map[int64]string{1 << 39: "here"}))
	}
	tree{
		"edit": "a\nB\nc\n", "mode": "m\n", "link": "->mode", "sub/deep": "2\n", "came": "new\n", "anchor": "anchored\n", "to": "moved\n",
		"type/now": "dir\n", "bin": "\x00new",
	}.build(w.t, w.new)
	w.do(put(w.new, "huge", 1<<40, map[int64]string{1 << 39: "there"}), os.Chmod(filepath.Join(w.new, "mode"), 0o4755),
		os.Link(filepath.Join(w.new, "anchor"), filepath.Join(w.new, "linked")), unix.Mkfifo(filepath.Join(w.new, "pipe"), 0o600))
	for _, root := range []string{w.old, w.got, w.new} { // that the anchor differs in nothing but its links
		when := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}
		w.do(unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(root, "anchor"), when, 0))
	}
}

// Every step is the one that cannot be made, once: the tree is then what it was.
func TestAStepThatCannotBeMadeTakesAllOthersBack(t *testing.T) {
	treetest.NeedRoot(t)
	w := newTrio(t)
	w.sampleSides()
	text := w.patch(true)
	before := w.manifestWithoutHuge(w.got)
	steps := 0
	for n := 1; ; n++ {
		left, broken := n, errors.New("this step is not made")
		ctx := fault.With(context.Background(), func(string) error {
			if left--; left == 0 {
				return broken
			}
			return nil
		})
		err := w.apply(ctx, text)
		if err == nil {
			break
		}
		steps++
		if !errors.Is(err, broken) {
			t.Fatalf("step %d: %v", n, err)
		}
		if after := w.manifestWithoutHuge(w.got); after != before {
			t.Fatalf("step %d:\n%s", n, strings.Join(treetest.Lines(before, after), "\n"))
		}
	}
	if steps < 50 {
		t.Errorf("only %d steps", steps)
	}
	if wrong := treetest.Lines(w.manifestWithoutHuge(w.new), w.manifestWithoutHuge(w.got)); len(wrong) > 0 {
		t.Errorf("after all:\n%s", strings.Join(wrong, "\n"))
	}
}

// Whatever is done to a patch, it is refused or gives the new tree; nothing leaves
// the directory, and nothing is left in between.
func TestADamagedPatchIsRefusedWhole(t *testing.T) {
	treetest.NeedRoot(t)
	w := newTrio(t)
	w.sampleSides()
	w.do(os.RemoveAll(w.got), run.Run(context.Background(), run.Program{Name: "cp", Args: []string{"-a", w.old, w.got}}))
	text := w.patch(true)
	before, refused := w.manifestWithoutHuge(w.got), 0
	for i := 0; i < len(text); i += 17 {
		for _, bad := range [][]byte{text[:i], append(bytes.Clone(text[:i]), text[min(i+9, len(text)):]...)} {
			err := w.apply(context.Background(), bad)
			if err == nil { // a remark was damaged, or what only git reads
				if wrong := treetest.Lines(w.manifestWithoutHuge(w.new), w.manifestWithoutHuge(w.got)); len(wrong) > 0 {
					t.Fatalf("cut at %d, taken:\n%s", i, strings.Join(wrong, "\n"))
				}
				w.do(os.RemoveAll(w.got), run.Run(context.Background(), run.Program{Name: "cp", Args: []string{"-a", w.old, w.got}}))
				continue
			}
			refused++
			var typed *snapshot.Error
			if !errors.As(err, &typed) {
				t.Errorf("cut at %d: %v", i, err)
			}
			if after := w.manifestWithoutHuge(w.got); after != before {
				t.Fatalf("cut at %d, %v:\n%s", i, err, strings.Join(treetest.Lines(before, after), "\n"))
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d were refused", refused)
	}
}

// sealed makes the sum at the end of a patch right, as whoever forges one would.
func sealed(text string) string {
	from, to := strings.Index(text, "#snapfs 1"), strings.Index(text, "#snapfs end ")
	count, _, _ := strings.Cut(strings.TrimPrefix(text[to:], "#snapfs end "), " ")
	return fmt.Sprintf("%s#snapfs end %s %x\n", text[:to], count, sha256.Sum256([]byte(text[from:to])))
}

func TestAPatchCannotLeaveItsDirectory(t *testing.T) {
	w := newTrio(t)
	w.do(os.WriteFile(filepath.Join(w.new, "name"), []byte("x\n"), 0o644), os.WriteFile(filepath.Join(filepath.Dir(w.got), "victim"), []byte("v"), 0o600),
		os.Symlink("..", filepath.Join(w.got, "up")))
	text := string(w.patch(false))
	if sealed(text) != text {
		t.Fatal("the test seals patches in another way")
	}
	for _, path := range []string{"../victim", "/etc/snapfs-victim", "up/victim2", "a/../../victim", "", ".", "./name", "name/"} {
		bad := sealed(strings.ReplaceAll(text, `"path":"name"`, `"path":"`+path+`"`))
		if err := w.apply(context.Background(), []byte(bad)); err == nil {
			t.Errorf("%q was taken", path)
		}
	}
	list, err := os.ReadDir(filepath.Dir(w.got))
	w.do(err)
	if len(list) != 4 {
		t.Errorf("beside the directory: %v", list)
	}
	for _, other := range []string{"", "diff --git a/x b/x\n", text + text} {
		if err := patch.Apply(context.Background(), treetest.Open(t, w.got), io.MultiReader(strings.NewReader(other))); !errors.Is(err, snapshot.ErrNotSupported) {
			t.Errorf("a patch of another kind: %v", err)
		}
	}
}

// A file with a name outside the tree is replaced: its other name keeps what it had.
func TestAFileWithANameOutsideIsNotWrittenTo(t *testing.T) {
	w := newTrio(t)
	for _, root := range []string{w.old, w.got} {
		w.do(os.WriteFile(filepath.Join(root, "f"), []byte("old\n"), 0o644), os.WriteFile(filepath.Join(root, "m"), []byte("m\n"), 0o644))
	}
	outside := w.got + "-outside"
	w.do(os.Link(filepath.Join(w.got, "f"), outside), os.Link(filepath.Join(w.got, "m"), outside+"-m"))
	w.do(os.WriteFile(filepath.Join(w.new, "f"), []byte("new\n"), 0o600), os.WriteFile(filepath.Join(w.new, "m"), []byte("m\n"), 0o600))
	w.becomesNew("links outside", w.patch(false))
	content, err := os.ReadFile(outside)
	info, ierr := os.Stat(outside + "-m")
	w.do(err, ierr)
	if string(content) != "old\n" || info.Mode() != 0o644 {
		t.Errorf("outside is %q, %v", content, info.Mode())
	}
}
