package merge_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
)

// acl grants reading to user 4; see acl(5), and linux/posix_acl_xattr.h for the format.
const acl = "\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\x04\x00\x00\x00" +
	"\x04\x00\x04\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x04\x00\xff\xff\xff\xff"

// The mask of an access control list is stored in the group permission bits.
func TestACLAndPermissionBitsMergeAsOne(t *testing.T) {
	w := trees(t, "f\n1\n;g\n1\n", "", "f mode=0600;g\nr\n")
	for _, name := range []string{"f", "g"} {
		must(t, unix.Setxattr(filepath.Join(w.mine, name), "system.posix_acl_access", []byte(acl), 0))
	}
	in := w.input()
	r := w.trees(in)
	if got := conflictLines(r.Conflicts); got != "mode f: permissions changed on both sides\n" {
		t.Errorf("conflicts:\n%s", got)
	}
	w.apply(in, r)
	buf := make([]byte, 100)
	n, err := unix.Getxattr(filepath.Join(w.target, "g"), "system.posix_acl_access", buf)
	if err != nil || string(buf[:n]) != acl {
		t.Errorf("the list of g has not come along: %v", err)
	}
	in = w.input()
	in.Choose = choose(merge.Mine)
	if r = w.trees(in); len(r.Conflicts) > 0 {
		t.Errorf("left:\n%s", conflictLines(r.Conflicts))
	}
}

// Attributes that security modules maintain are no user's change.
func TestSecurityLabelIsNoConflict(t *testing.T) {
	w := trees(t, "f\n1\n", "f\nm\n", "f mode=0600")
	in := w.input()
	for i, label := range []string{"m", "r"} {
		changes := in.Mine
		if i == 1 {
			changes = in.Real
		}
		for j := range changes {
			if changes[j].Path == "f" {
				changes[j].New.Xattrs = map[string]string{"security.selinux": label}
			}
		}
	}
	if r := w.trees(in); len(r.Conflicts) > 0 || brief(r.Changes) != "M \"f\" content,time\n" {
		t.Errorf("%s%s", brief(r.Changes), conflictLines(r.Conflicts))
	}
}

// A label that differs is no change either where nobody has changed the real tree.
func TestSecurityLabelAloneIsNoChange(t *testing.T) {
	w := trees(t, "f\n1\n", "f\nm\n", "")
	in := w.input()
	if len(in.Real) > 0 {
		t.Fatalf("real has\n%s", brief(in.Real))
	}
	for i := range in.Mine {
		if c := &in.Mine[i]; c.Path == "f" {
			labelled := *c.Old
			labelled.Xattrs = map[string]string{"security.selinux": "m"}
			c.What, c.New = diff.Xattrs, &labelled
		}
	}
	if r := w.trees(in); brief(r.Changes) != "" {
		t.Errorf("changes:\n%s", brief(r.Changes))
	}
}

func TestDirectoryTimeIsNoChangeWhereNamesChange(t *testing.T) {
	w := trees(t, "d/a\n1\n;e/a\n1\n", "d mode=0700 time=5;d/m\nm\n;e mode=0700 time=5", "d mode=0750 time=7;e mode=0750 time=7")
	in := w.input()
	in.Choose = choose(merge.Mine)
	if got := brief(w.trees(in).Changes); got != "M \"d\" mode\nA \"d/m\" \nM \"e\" mode\n" {
		t.Errorf("changes:\n%s", got)
	}
	for _, c := range w.trees(in).Changes {
		if timed := c.What&diff.Time != 0; timed != (c.Path == "e") {
			t.Errorf("%s: %s", c.Path, c.What)
		}
	}
}
