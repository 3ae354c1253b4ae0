package merge

import (
	"io/fs"
	"maps"

	"github.com/snapfs/snapfs/engine/diff"
)

// differ returns the aspects, except hard links, in which two versions of a file in a merge differ; only
// diff.Type if their file types differ. content says whether the content of regular files differs.
func differ(a, b *diff.Node, content bool) (what diff.Aspect) {
	if a.Mode.Type() != b.Mode.Type() {
		return diff.Type
	}
	for _, x := range []struct {
		aspect  diff.Aspect
		differs bool
	}{
		{diff.Content, a.Mode.IsRegular() && content},
		{diff.Mode, a.Mode != b.Mode},
		{diff.Owner, a.UID != b.UID || a.GID != b.GID},
		{diff.Time, !a.MTime.Equal(b.MTime)},
		{diff.Target, a.Target != b.Target},
		{diff.Device, a.Rdev != b.Rdev},
		{diff.Xattrs, !maps.Equal(a.Xattrs, b.Xattrs)},
	} {
		if x.differs {
			what |= x.aspect
		}
	}
	return what
}

// pick merges one value, which is b in the base, m in the sandbox and r in the real tree. It returns the
// value of the side that changed it. ok is false if both changed it, to different values; value is then m.
func pick[T comparable](b, m, r T) (value T, ok bool) {
	switch {
	case m == r, m == b:
		return r, true
	case r == b:
		return m, true
	}
	return m, false
}

// The extended attributes with access control lists. The merge treats them and the permission bits as one
// value, because an ACL's mask is stored in the group bits.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

type rights struct {
	mode            fs.FileMode
	access, inherit string
}

func rightsOf(n *diff.Node) rights {
	return rights{n.Mode, n.Xattrs[aclAccess], n.Xattrs[aclDefault]}
}

// metadata merges everything but the content of a file, given as its nodes in the base (b), the sandbox (m)
// and the real tree (r). It returns a changed copy of r. For a conflict it takes m's value and adds the kind
// to bad. If b is nil, m and r must agree.
func metadata(b, m, r *diff.Node) (n *diff.Node, bad []Kind) {
	merged := *r
	n = &merged
	note := func(kind Kind, ok bool) {
		if !ok && (len(bad) == 0 || bad[len(bad)-1] != kind) {
			bad = append(bad, kind)
		}
	}
	if b == nil { // a value that neither side can have: every difference then counts
		b = &diff.Node{Mode: fs.ModeIrregular, UID: nobody, GID: nobody, Target: "\x00", Rdev: ^uint64(0)}
	}
	might, ok := pick(rightsOf(b), rightsOf(m), rightsOf(r))
	note(Mode, ok)
	n.Mode = might.mode
	n.UID, ok = pick(b.UID, m.UID, r.UID)
	note(Owner, ok)
	n.GID, ok = pick(b.GID, m.GID, r.GID)
	note(Owner, ok)
	n.Target, ok = pick(b.Target, m.Target, r.Target)
	note(Target, ok)
	n.Size = r.Size
	if n.Target != r.Target {
		n.Size = int64(len(n.Target))
	}
	n.Rdev, ok = pick(b.Rdev, m.Rdev, r.Rdev)
	note(Device, ok)
	n.Xattrs, ok = attributes(b, m, r)
	note(Xattrs, ok)
	return n, bad
}

// nobody is a user or group id that no file has. It stands for the owner of a missing base.
const nobody = ^uint32(0)

// attributes merges the extended attributes of a file, each separately. b, m and r are the file in the base,
// the sandbox and the real tree. ok is false if one is in conflict.
func attributes(b, m, r *diff.Node) (all map[string]string, ok bool) {
	ok = true
	names := maps.Clone(b.Xattrs)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, m.Xattrs)
	maps.Copy(names, r.Xattrs)
	type value struct {
		text string
		set  bool
	}
	of := func(n *diff.Node, name string) value {
		text, set := n.Xattrs[name]
		return value{text, set}
	}
	for name := range names {
		v := of(r, name)
		if !diff.SystemXattr(name) {
			picked, fine := pick(of(b, name), of(m, name), v)
			v, ok = picked, ok && fine
		}
		if v.set {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = v.text
		}
	}
	return all, ok
}
