package engine_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
	"golang.org/x/sys/unix"
)

// A resident is a shell in a sandbox that stays while others change the real tree.
type resident struct {
	in, out *os.File
	process interface{ Close() error }
}

// resident starts a shell in the sandbox name. Its commands come from do.
func (b *bench) resident(name string) *resident {
	b.t.Helper()
	out, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	in, hold, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := b.Supervise.Exec(b.t.Context(), name, isolate.Command{
		Args: []string{"/bin/sh"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdin: in, Stdout: w, Stderr: os.Stderr,
	})
	w.Close()
	in.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	r := &resident{in: hold, out: out, process: p}
	b.t.Cleanup(r.end)
	return r
}

// do runs one line in the resident's own shell, and returns when it has ended.
func (r *resident) do(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintf(r.in, "%s\necho done\n", line); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("done\n"))
	if _, err := io.ReadFull(r.out, said); err != nil || string(said) != "done\n" {
		t.Fatalf("%s: %q, %v", line, said, err)
	}
}

func (r *resident) end() {
	r.in.Close()
	_ = r.process.Close()
	r.out.Close()
}

// staleBase is the text that a sandbox reads before the user edits it.
const staleBase = "one\n2\n3\n4\n5\nsix\n"

// staleEdits are the ways in which the user edits the real file, staleWrites those in which a sandbox writes what
// it has read, in $t.
var (
	staleEdits = map[string]string{
		"in place": "sed s/six/theirs/ text > ../edited; cat ../edited > text; rm ../edited",
		"replaced": "sed -i s/six/theirs/ text",
	}
	staleWrites = map[string]string{
		"truncated": `echo "$t" | sed s/one/mine/ > text`,
		"renamed":   `echo "$t" | sed s/one/mine/ > new; mv new text`,
	}
)

// A sandbox reads a file, the user edits the real one, and the sandbox writes the file from what it
// had read. The user's line is in neither. It stays: the promotion merges it, or conflicts.
func TestWhatTheUserWroteAfterTheSandboxReadIsNotLost(t *testing.T) {
	treetest.NeedRoot(t)
	places := append(modelPlaces()[:3], modelPlace{name: "fusecow", asks: "fusecow"})
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			if place.asks == "fusecow" {
				treetest.NeedDevice(t, "/dev/fuse")
			}
			work, state := place.disks(t, 0)
			n := 0
			for edit, edits := range staleEdits {
				for write, writes := range staleWrites {
					for process, later := range map[string]bool{"same process": false, "later process": true} {
						n++
						name := fmt.Sprint("s", n)
						t.Run(edit+", "+write+", "+process, func(t *testing.T) {
							b := benchIn(t, filepath.Join(work, name), filepath.Join(state, name))
							b.staleWrite(place.asks, edits, writes, later, func() {})
							_, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
							text := b.read("text")
							if !strings.Contains(text, "theirs") {
								t.Errorf("the user's line is lost: %q, %v", text, err)
							}
							if err == nil && !strings.Contains(text, "mine") || err != nil && !errors.Is(err, errs.ErrConflict) {
								t.Errorf("promoted: %q, %v", text, err)
							}
						})
					}
				}
			}
		})
	}
}

// The manifest of the workspace has what the sandbox read.
func TestWhatTheSandboxReadIsTheBaseWhereItIsKnown(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	b.staleWrite("fusecow", staleEdits["in place"], staleWrites["truncated"], false, func() {
		b.soon("a manifest", func() bool {
			list, err := filepath.Glob(filepath.Join(b.state, "manifests", "*", "manifest"))
			return err == nil && len(list) == 1
		})
	})
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
		t.Fatal(err)
	}
	if text := b.read("text"); text != "mine\n2\n3\n4\n5\ntheirs\n" {
		t.Errorf("merged: %q", text)
	}
}

// staleWrite makes the sandbox s read a text and, after the user has edited it, write it: by the process that has
// read it or by a later one. between runs before the edit.
func (b *bench) staleWrite(backend, edit, write string, later bool, between func()) {
	b.t.Helper()
	b.write("text", staleBase)
	tick()
	req := b.request()
	req.Name, req.Backend = "s", backend
	if _, err := b.New(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	b.removeLater("s")
	r := b.resident("s")
	defer r.end()
	r.do(b.t, "t=$(cat text)")
	between()
	user := exec.CommandContext(b.t.Context(), "/bin/sh", "-ec", edit)
	user.Dir = b.workspace
	if out, err := user.CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	tick() // what follows is later than the edit, by the clock of files
	if later {
		b.in("s", "t='"+strings.TrimSuffix(staleBase, "\n")+"'\n"+write)
	} else {
		r.do(b.t, write)
	}
}

// A promotion of the only sandbox records the names of what it replaces, the directory of the text among them. That
// says nothing of what else the directory held: where the user and the running sandbox edit another text, it merges.
func TestWhatThePromotionOfTheOnlySandboxReplacedIsNotTakenForAbsent(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", staleBase)
		b.write("promoted", staleBase)
		tick()
		b.new("s")
		r := b.resident("s")
		defer r.end()
		b.in("s", "sed -i s/one/mine/ promoted")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		user := exec.CommandContext(t.Context(), "/bin/sed", "-i", "s/six/theirs/", "text")
		user.Dir = b.workspace
		if out, err := user.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		tick()
		b.in("s", `t=$(sed s/one/mine/ text); echo "$t" > text`)
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		if text := b.read("text"); text != "mine\n2\n3\n4\n5\ntheirs\n" {
			t.Errorf("merged: %q", text)
		}
	})
}

// On fusecow a file of which a sandbox changed only attributes has its content in the real file. Where the user
// overwrites or replaces that, this path alone is a conflict, which --theirs answers, and the other changes arrive.
func TestAnOverwrittenRestOfAFileIsOneConflict(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for edit, edits := range staleEdits {
		t.Run(edit, func(t *testing.T) {
			b := newBench(t)
			b.write("text", staleBase)
			b.write("other", "old")
			tick()
			req := b.request()
			req.Name, req.Backend = "s", "fusecow"
			if _, err := b.New(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			b.removeLater("s")
			b.in("s", "chmod 600 text; echo mine > other")
			tick()
			user := exec.CommandContext(t.Context(), "/bin/sh", "-ec", edits)
			user.Dir = b.workspace
			if out, err := user.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			tick()
			if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) || !strings.Contains(err.Error(), "/text: ") {
				t.Errorf("the promotion: %v", err)
			}
			if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Theirs: []string{"text"}}); err != nil {
				t.Errorf("the promotion with an answer: %v", err)
			}
			if text, other := b.read("text"), b.read("other"); !strings.Contains(text, "theirs") || other != "mine\n" {
				t.Errorf("promoted: %q and %q", text, other)
			}
		})
	}
}

// A sandbox looks files up, the user changes the real ones, and only then the sandbox changes its own: with the size
// and the attributes from its lookup. A promotion keeps what the user has changed, or is refused.
func TestWhatTheUserChangedAfterALookupIsNotLost(t *testing.T) {
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		const text = "one\ntwo\nthree\n"
		at := func(name string) string { return filepath.Join(b.workspace, name) }
		for _, name := range []string{"appended", "edited", "mode"} {
			b.write(name, text)
		}
		err := os.Chmod(at("mode"), 0o600)
		tick()
		req := b.request()
		req.Name, req.Backend = "s", backend
		_, newErr := b.New(t.Context(), req)
		if err = errors.Join(err, newErr); err != nil {
			t.Fatal(err)
		}
		b.removeLater("s")
		began := time.Now()
		r := b.resident("s")
		r.do(t, "stat appended edited mode > /dev/null")
		b.listed(began)
		tick()
		for _, name := range []string{"appended", "edited"} {
			b.write(name, text+"theirs\n") // in place
		}
		if err := os.Chmod(at("mode"), 0o755); err != nil {
			t.Fatal(err)
		}
		r.do(t, "echo mine >> appended; sed -i s/one/ONE/ edited; echo mine >> mode")
		some := reconcile.PlanOptions{Only: []string{"edited", "mode"}}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{PlanOptions: some}); err != nil {
			t.Error(err)
		}
		if got, want := b.read("edited"), "ONE\ntwo\nthree\ntheirs\n"; got != want {
			t.Errorf("the edited file has %q, want %q", got, want)
		}
		st, err := os.Stat(at("mode"))
		if err != nil || st.Mode().Perm() != 0o755 || b.read("mode") != text+"mine\n" {
			t.Errorf("the file with other permissions has %v and %q, %v", st.Mode(), b.read("mode"), err)
		}
		_, err = b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
		if got := b.read("appended"); !strings.Contains(got, "theirs\n") || err != nil && !errors.Is(err, errs.ErrConflict) {
			t.Errorf("the file that both appended to has %q, %v", got, err)
		}
	})
}

// The owner, the group and the attributes of a file that the user changes after a sandbox has looked the file up stay
// when a promotion writes the sandbox's content.
func TestTheOwnerChangedAfterALookupIsNotLost(t *testing.T) {
	onLiveBases(t, func(t *testing.T, b *bench, backend string) {
		at := func(name string) string { return filepath.Join(b.workspace, name) }
		names := []string{"owner", "group", "attribute"}
		for _, name := range names {
			b.write(name, "text\n")
		}
		tick()
		req := b.request()
		req.Name, req.Backend = "s", backend
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		b.removeLater("s")
		began := time.Now()
		r := b.resident("s")
		r.do(t, "stat owner group attribute > /dev/null")
		b.listed(began)
		tick()
		if err := errors.Join(os.Chown(at("owner"), 1, 0), os.Chown(at("group"), 0, 1), unix.Setxattr(at("attribute"), "user.theirs", []byte("x"), 0)); err != nil {
			t.Fatal(err)
		}
		tick()
		r.do(t, "for f in owner group attribute; do echo mine >> $f; done")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Error(err)
		}
		want := map[string][2]uint32{"owner": {1, 0}, "group": {0, 1}, "attribute": {0, 0}}
		for _, name := range names {
			var st unix.Stat_t
			err := unix.Stat(at(name), &st)
			if got := [2]uint32{st.Uid, st.Gid}; err != nil || got != want[name] || b.read(name) != "text\nmine\n" {
				t.Errorf("%s has owner and group %v, want %v, and %q; %v", name, got, want[name], b.read(name), err)
			}
		}
		value := make([]byte, 8)
		if n, err := unix.Getxattr(at("attribute"), "user.theirs", value); err != nil || string(value[:n]) != "x" {
			t.Errorf("the attribute: %q, %v", value[:max(n, 0)], err)
		}
	})
}
