//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A sandbox of which a part on disk is damaged is not shown as if nothing were: whoever
// asks for it is told what mends it, and then it is there but for what the part told of,
// whose content is put aside.
func TestWhatIsDamagedIsToldAndMended(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		treetest.NeedDevice(t, "/dev/fuse")
		damagedAndMended(t)
	})
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		treetest.NeedDevice(t, "/dev/fuse")
		damagedAndMended(t)
	})
}

func damagedAndMended(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "--backend", "fusecow", "s").want(0)
	for _, name := range []string{"kept", "lost"} {
		b.snapfs("exec", "s", "--", "sh", "-c", "echo of "+name+" > "+name+"; sync "+name).want(0)
	}
	b.snapfs("stop", "s").want(0)
	b.snapfs("doctor", "s").want(0)
	log := b.damage("lost")
	const hint = "snapfs doctor SANDBOX --repair"
	if o := b.snapfs("diff", "s").want(8); !strings.Contains(o.all, hint) {
		t.Errorf("comparing it says %q", o.all)
	}
	if o := b.snapfs("exec", "s", "--", "true").want(125); !strings.Contains(o.all, hint) {
		t.Errorf("entering it says %q", o.all)
	}
	if o := b.snapfs("doctor", "s").want(8); !strings.Contains(o.stdout, "the log is damaged from byte") || !strings.Contains(o.stdout, "hint: snapfs doctor s --repair") {
		t.Errorf("looking at it says %q", o.all)
	}
	o := b.snapfs("doctor", "s", "--repair", "--json").want(0)
	var d checkDocument
	err := json.Unmarshal([]byte(o.stdout), &d)
	var problems []problemFound
	for _, tree := range d.Trees {
		problems = append(problems, tree.Problems...)
	}
	if err != nil || !d.Sound || len(problems) != 1 || !problems[0].Mended {
		t.Errorf("mending it says %q", o.all)
	}
	b.snapfs("doctor", "s").want(0)
	if o := b.snapfs("exec", "s", "--", "sh", "-c", "cat kept; ls").want(0); o.stdout != "of kept\nkept\nreal\n" {
		t.Errorf("afterwards there is %q", o.stdout)
	}
	found, _ := filepath.Glob(filepath.Dir(log) + "/found/*")
	if len(found) != 1 {
		t.Fatalf("put aside is %q", found)
	}
	if text, err := os.ReadFile(found[0]); err != nil || string(text) != "of lost\n" {
		t.Errorf("put aside is %q: %v", text, err)
	}
	b.snapfs("rm", "s").want(0)
	b.snapfs("gc").want(0)
	if _, err := os.Stat(filepath.Dir(log)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the layer is there when the sandbox has been removed: %v", err)
	}
	b.removedWithout()
	b.real()
}

// removedWithout damages a sandbox that was killed, too, and removes it without mending it.
func (b *desk) removedWithout() {
	b.t.Helper()
	b.snapfs("new", "--backend", "fusecow", "s").want(0)
	b.snapfs("exec", "s", "--", "sh", "-c", "echo of first > first; sync first").want(0)
	b.kill("s", "while cat real; do sleep 0.01; done")
	b.damage("first")
	b.snapfs("doctor", "s").want(8)
	if o := b.snapfs("ls").want(8); !strings.Contains(o.all, "the log is damaged") {
		b.t.Errorf("listing it says %q", o.all)
	}
	b.snapfs("rm", "s").want(0)
	b.snapfs("gc").want(0)
	if left, err := os.ReadDir(b.state + "/data/fusecow/layers"); err != nil || len(left) > 0 {
		b.t.Errorf("left are %v, %v", left, err)
	}
}

// damage spoils a byte of a name where the log of a layer tells of it, and answers with
// which log.
func (b *desk) damage(name string) (path string) {
	b.t.Helper()
	logs, err := filepath.Glob(b.state + "/data/fusecow/layers/*/log")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, path = range logs {
		log, err := os.ReadFile(path)
		if at := bytes.Index(log, []byte(name)); err == nil && at >= 0 {
			log[at] ^= 0x55
			if err := os.WriteFile(path, log, 0o600); err != nil {
				b.t.Fatal(err)
			}
			return path
		}
	}
	b.t.Fatalf("none of %q tells of %s", logs, name)
	return ""
}

// A sandbox whose record is damaged keeps no other from being removed, and is itself removed as soon as the
// supervisor that its last command left has ended.
func TestADamagedRecordHoldsUpNoRemoval(t *testing.T) {
	treetest.NeedRoot(t)
	b := newDesk(t)
	var o outcome
	for end := time.Now().Add(time.Minute); ; { // until the supervisor has not written the record anew after the damage
		for _, name := range []string{"sound", "damaged"} {
			b.snapfs("new", name).want(0)
		}
		b.snapfs("exec", "damaged", "--", "true").want(0)
		if err := os.Truncate(filepath.Join(b.state, "sandboxes", "damaged", "record.json"), 10); err != nil {
			t.Fatal(err)
		}
		if o = b.snapfs("rm", "--all", "--yes"); o.status != 0 || time.Now().After(end) {
			break
		}
	}
	if o.want(8); o.stdout != "sound\n" || !strings.Contains(o.all, "snapfs rm damaged") {
		t.Errorf("removing all says %q", o.all)
	}
	b.snapfs("rm", "damaged").want(0)
	if o := b.snapfs("ls", "--json").want(0); strings.TrimSpace(o.stdout) != "[]" {
		t.Errorf("left are %q", o.stdout)
	}
	b.snapfs("gc").want(0)
	b.real()
}

// A power loss may leave a record empty. Only that sandbox's commands fail, and doctor makes the record again from its
// copy, with the files of the sandbox and its snapshots.
func TestADamagedRecordIsRepaired(t *testing.T) {
	treetest.NeedRoot(t)
	b := newDesk(t)
	for _, name := range []string{"sound", "damaged"} {
		b.snapfs("new", name).want(0)
		b.snapfs("exec", name, "--", "sh", "-c", "echo mine > mine").want(0)
		b.snapfs("snapshot", name, "before").want(0)
		b.snapfs("stop", name).want(0)
	}
	if err := os.Truncate(filepath.Join(b.state, "sandboxes", "damaged", "record.json"), 0); err != nil {
		t.Fatal(err)
	}
	if o := b.snapfs("exec", "damaged", "--", "true").want(125); !strings.Contains(o.all, "hint: snapfs doctor damaged --repair") {
		t.Errorf("entering it says %q", o.all)
	}
	b.snapfs("doctor", "damaged").want(8)
	b.snapfs("exec", "sound", "--", "cat", "mine").want(0)
	b.snapfs("run", "--discard", "--", "true").want(0)
	if o := b.snapfs("ls").want(8); !strings.Contains(o.stdout, "sound") {
		t.Errorf("listing both says %q", o.all)
	}
	b.snapfs("gc")
	if o := b.snapfs("doctor", "damaged", "--repair").want(0); !strings.Contains(o.stdout, "repaired: ") || !strings.Contains(o.stdout, "record.json") || !strings.Contains(o.stdout, "with the policy that this has (snapfs show damaged)") {
		t.Errorf("repairing it says %q", o.all)
	}
	b.snapfs("doctor", "damaged").want(0)
	if o := b.snapfs("exec", "damaged", "--", "cat", "mine").want(0); o.stdout != "mine\n" {
		t.Errorf("afterwards there is %q", o.all)
	}
	b.snapfs("snapshot", "damaged", "after").want(0)
	b.snapfs("rollback", "damaged", "before").want(0)
	b.snapfs("rm", "damaged", "sound").want(0)
	b.snapfs("gc").want(0)
	b.real()
}

// The file by which the overlay backend finds a fork's layers may be garbage. Only that sandbox is damaged, and doctor
// writes the file again, with the files of the sandbox; not where snapshots have made several layers of them.
func TestAGarbageForkIsRepaired(t *testing.T) {
	treetest.NeedRoot(t)
	b := newDesk(t)
	for _, name := range []string{"sound", "damaged", "layered"} {
		b.snapfs("new", "--backend", "overlay", name).want(0)
		b.snapfs("exec", name, "--", "sh", "-c", "echo mine > mine").want(0)
		if name == "layered" {
			b.snapfs("snapshot", name, "before").want(0)
		}
		b.snapfs("stop", name).want(0)
	}
	before := map[string][]byte{}
	for _, name := range []string{"damaged", "layered"} {
		text, err := os.ReadFile(filepath.Join(b.state, "sandboxes", name, "record.json"))
		var r struct{ Trees []struct{ Fork string } }
		if err = errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			t.Fatal(err)
		}
		for _, tree := range r.Trees {
			path := filepath.Join(b.state, "data", "overlay", "forks", tree.Fork)
			if before[path], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("garbage\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.snapfs("exec", "sound", "--", "cat", "mine").want(0)
	b.snapfs("doctor", "sound").want(0)
	if o := b.snapfs("doctor", "damaged").want(8); !strings.Contains(o.stdout, "does not carry the mark of this backend") || !strings.Contains(o.stdout, "hint: snapfs doctor damaged --repair") {
		t.Errorf("checking it says %q", o.all)
	}
	if o := b.snapfs("doctor", "damaged", "--repair").want(0); !strings.Contains(o.stdout, "repaired: ") {
		t.Errorf("repairing it says %q", o.all)
	}
	b.snapfs("doctor", "damaged").want(0)
	if o := b.snapfs("exec", "damaged", "--", "cat", "mine").want(0); o.stdout != "mine\n" {
		t.Errorf("afterwards there is %q", o.all)
	}
	if o := b.snapfs("doctor", "layered", "--repair").want(8); !strings.Contains(o.stdout, "several layers") {
		t.Errorf("repairing one with snapshots says %q", o.all)
	}
	b.snapfs("gc") // which removes no layer
	for path, text := range before {
		if now, err := os.ReadFile(path); err == nil && string(now) == "garbage\n" {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.snapfs("doctor", "layered").want(0)
	if o := b.snapfs("exec", "layered", "--", "cat", "mine").want(0); o.stdout != "mine\n" {
		t.Errorf("its files are lost: %q", o.all)
	}
	b.snapfs("rm", "sound", "damaged", "layered").want(0)
	b.snapfs("gc").want(0)
	b.real()
}
