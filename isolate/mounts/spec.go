package mounts

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// Spec is the part of a container's policy that determines its file tree. The fields are those of
// isolate.Spec, which describes them.
type Spec struct {
	Mounts      []Mount
	Tmp         string
	TmpLimits   []string
	Hide        []string
	Redacted    []Redacted
	ReadOnly    []string
	NoExec      []string
	Resolver    netip.Addr
	IDs         IDs
	HostNetwork bool // whether the container has the host's network
	MapIDs      IDMapper
	Images      string
	Guarded     []string
	Stub        []byte // the program that covers those of Guarded
}

// A Redacted is a read-only file that a container shows in place of a hidden file of the host: a copy without the
// secrets in it, for programs that need the rest. /etc/shadow without the hashes of passwords is one.
type Redacted struct {
	// Path is the file's absolute path, one of [Spec.Hide].
	Path string
	// Text is the content to show. It must fit into the container's /dev, which stores it in memory.
	Text []byte
	// Mode has the permission bits. UID and GID are ids of the host, which appear as nobody's if the container does not
	// map them.
	Mode, UID, GID uint32
}

// MaxRedacted is how many files of a [Spec] can be shown redacted; a container with more does not start.
const MaxRedacted = len(underRedacted)

// underRedacted are the names in a container's /dev of the files that hold the texts of [Spec.Redacted]. A device
// covers each of them in the end, so that no process can write to the text.
var underRedacted = [...]string{"zero", "random"}

// IDMapper starts a process that serves the directory tree through the FUSE device dev, with user and group ids
// increased by base, as package isolate/idmap does. The caller closes both descriptors. The process ends when
// the last mount of its filesystem is gone.
type IDMapper func(ctx context.Context, dev, tree *os.File, base uint32) error

// A Mount is one tree of a container: exactly one of Overlay, Source, Skeleton and Served.
// Devices in it have no effect, nor, because of no_new_privs, do set-id bits.
type Mount struct {
	// Target is the tree's absolute, clean path inside the container.
	Target string
	// Overlay is the overlay to mount at Target.
	Overlay *Overlay
	// Source is the host's directory or file to bind at Target. Filesystems mounted below it
	// are included only under [Same], where the kernel requires that.
	Source string
	// Skeleton is a host directory whose first level is copied into a fresh read-only tmpfs: directories empty,
	// symbolic links as they are, and, under [Same], files bound. It serves as "/" where the kernel refuses an
	// overlay of the real root.
	Skeleton string
	// Served mounts the tree of a FUSE server outside of the container.
	Served Served
	// ReadOnly forbids writes to the tree, but not to mounts in it.
	ReadOnly bool
	// NoSockets keeps the container from the sockets that the host's programs listen at in Source, a directory:
	// the tree is a read-only overlay, in which a socket is another inode than on the host, so connect(2)
	// returns ECONNREFUSED. Filesystems mounted below Source are left out; under [Same] the kernel then refuses the
	// overlay.
	NoSockets bool
	// Hidden are entries of the host's tree that the container does not see, now or later. They need an Overlay, or
	// NoSockets; a Served tree hides them by itself, and its directories with such entries are pinned. Stand-ins have
	// an effect only in a writable overlay with redirects.
	Hidden []Hidden
	// MayVanish is set if other programs create and remove Source, or the lowest layer, at any
	// time. If it does not exist, the container has nothing at Target. For [Same] only.
	MayVanish bool
}

// A Hidden is a directory of a tree in which entries are hidden, by an additional layer directly above the host's tree.
// They are hidden by their path there, whatever the container has renamed. That needs no mount point, so it can hide
// names that the host does not have yet.
type Hidden struct {
	// Dir is relative to the tree, clean, and without symbolic links; "." is the tree itself.
	Dir string
	// Absent are names that the container does not find.
	Absent []string
	// StandIns are in place of entries of the host.
	StandIns []StandIn
	// All hides all entries that the host has in the directory, but not those that the container makes in it. It
	// needs a writable overlay with redirects, or a Served tree that hides them by itself.
	All bool
	// Except are directories, entries of Dir, that All does not hide, nor what is in them.
	Except []string
}

// A StandIn is an empty directory or file, or a symbolic link, that the container sees in place of an entry
// of the host's directory.
type StandIn struct {
	Name string
	Kind StandInKind
	// Link is the target of a symbolic link.
	Link string
}

// StandInKind is the file type of a [StandIn], an entry that a container sees in place of one of the host's.
type StandInKind uint8

// The file types that a [StandIn], an entry in place of one of the host's, can have.
const (
	EmptyDir StandInKind = iota
	EmptyFile
	Link
)

// A Served is a directory tree that a FUSE server process shows. The backend provides it; the planner mounts
// it in a container.
type Served interface {
	// Mount mounts the tree that the FUSE server shows, detached and read-only if readOnly is set, and
	// returns a descriptor of its root, which the caller closes.
	Mount(ctx context.Context, readOnly bool) (fd int, err error)
}

// An Overlay describes one mount of the kernel's overlayfs in a container: a fork's tree, made of its layers.
// The backend fills it.
type Overlay struct {
	// Lower are the read-only layers, topmost first; at least one unless Base is set.
	Lower []string
	// Base are FUSE layers below all of Lower, topmost first. Only all of them together show
	// the tree.
	Base []Served
	// Upper and Work are the writable layer and its work directory, or both empty for a read-only tree. Upper
	// lies in the parent of Work.
	Upper, Work string
	// UserXattr makes overlayfs store its records in user.* attributes. Kernels demand it under [Same], and it
	// excludes redirect_dir and metacopy.
	UserXattr bool
	// Metacopy lets a file's upper hold metadata alone, with the content below. Layers that were written
	// with it need it.
	Metacopy bool
	// Nested is set if the last of Lower contains the other layers, which the kernel refuses;
	// it is then wrapped in an overlay of its own.
	Nested bool
	// OneFilesystem is set if all layers are on one filesystem. The layer of [Mount.Hidden] is not, and inode numbers
	// and the device number would change without an option.
	OneFilesystem bool
}

// Alone returns the only layer of a read-only overlay, which can be bind-mounted instead; "" if there are
// more layers or an upper.
func (o *Overlay) Alone() string {
	if o.Upper == "" && len(o.Base) == 0 && len(o.Lower) == 1 {
		return o.Lower[0]
	}
	return ""
}

// IDs maps the user and group ids 0 to Size-1 of a container to Size ids of the host from Base on. The zero
// value is [Same].
type IDs struct {
	Base, Size uint32
	// Further are ids of Size or more that are mapped, too: number i to Base+Size+i. 0 means none.
	Further [MaxFurther]uint32
}

// MaxFurther is how many ids beyond the range 0 to Size-1 a container can have; see [IDs]. Files of other
// owners beyond the range appear as nobody's.
const MaxFurther = 4

// Same maps only the user and group of the calling process, to themselves; all other ids appear as nobody in
// the container. It needs no privilege.
var Same = IDs{}

// Own returns a mapping of the ids 0 to 65535 inside to 65536 ids of the host from base on,
// which no user should have. Files keep their real owners on disk, by id-mapped mounts or by
// MapIDs. Own needs root, and Linux 5.19 for overlays.
func Own(base uint32) IDs { return IDs{Base: base, Size: 1 << 16} }

// With returns the mapping i with the container's id as a further one, if id is beyond the mapped range and
// fewer than MaxFurther were added; else i itself, as for [Same]. Trees whose ids MapIDs maps show that id as
// nobody.
func (i IDs) With(id uint32) IDs {
	if i == Same || i.Has(id) {
		return i
	}
	for k := range i.Further {
		if i.Further[k] == 0 {
			i.Further[k] = id
			break
		}
	}
	return i
}

// Has reports whether the user or group id of the container is mapped to an id of the host, so that it can
// own files.
func (i IDs) Has(id uint32) bool { return id < i.Size || slices.Contains(i.Further[:], id) }

// orNobody returns id, an id of the host, if it is mapped, else the id of nobody.
func (i IDs) orNobody(id uint32) uint32 {
	const nobody = 65534
	if i.Has(id) {
		return id
	}
	return nobody
}

// lines returns the mapping of ids in the form in which /proc/PID/uid_map and gid_map are written.
func (i IDs) lines() string {
	lines := fmt.Sprintf("0 %d %d\n", i.Base, i.Size)
	for k, id := range i.Further {
		if id != 0 {
			lines += fmt.Sprintf("%d %d 1\n", id, int(i.Base+i.Size)+k)
		}
	}
	return lines
}

func (i IDs) String() string {
	if i == Same {
		return "same"
	}
	return fmt.Sprintf("%d+%d", i.Base, i.Size)
}

func (m Mount) String() string {
	var b strings.Builder
	b.WriteString(m.Target)
	switch {
	case m.Overlay != nil:
		b.WriteString(" overlay " + strings.Join(m.Overlay.Lower, ":"))
		if len(m.Overlay.Base) > 0 {
			b.WriteString(" above what is served")
		}
		if m.Overlay.Upper != "" {
			b.WriteString(" upper " + m.Overlay.Upper)
		}
	case m.Source != "":
		b.WriteString(" bind " + m.Source)
	case m.Skeleton != "":
		b.WriteString(" skeleton " + m.Skeleton)
	case m.Served != nil:
		b.WriteString(" served")
	}
	if m.ReadOnly {
		b.WriteString(" read-only")
	}
	if m.NoSockets {
		b.WriteString(" without sockets")
	}
	if len(m.Hidden) > 0 {
		n := 0
		for _, h := range m.Hidden {
			n += len(h.Absent) + len(h.StandIns)
			if h.All {
				n++
			}
		}
		fmt.Fprintf(&b, " without %d entries", n)
	}
	if m.MayVanish {
		b.WriteString(" if it is there")
	}
	return b.String()
}

// Check returns an error of kind ErrInvalid if the fields of the mount m of a container contradict each other
// or one is missing.
func (m Mount) Check() error {
	if err := CheckPath(m.Target); err != nil {
		return err
	}
	kinds := 0
	for _, p := range []string{m.Source, m.Skeleton} {
		if p == "" {
			continue
		}
		if err := CheckPath(p); err != nil {
			return err
		}
		kinds++
	}
	if m.Overlay != nil {
		kinds++
		if err := m.Overlay.check(); err != nil {
			return err
		}
	}
	if m.Served != nil {
		kinds++
	}
	if kinds != 1 {
		return Invalid("%s: a mount is one of overlay, bind, skeleton and served", m.Target)
	}
	for _, h := range m.Hidden {
		if path.Clean("/"+h.Dir) != "/"+h.Dir && h.Dir != "." || h.Dir == "" {
			return Invalid("%s: hidden entries in %q, which is not a clean path in it", m.Target, h.Dir)
		}
	}
	if m.NoSockets && (m.Source == "" || !m.ReadOnly) {
		return Invalid("%s: only a directory that is bound read-only is one without sockets", m.Target)
	}
	return nil
}

func (o *Overlay) check() error {
	if len(o.Lower) == 0 && (len(o.Base) == 0 || o.Upper == "") {
		return Invalid("an overlay without a lower layer")
	}
	if len(o.Base) > 0 && o.Nested {
		return Invalid("an overlay of what is served has no layer that contains others")
	}
	if (o.Upper == "") != (o.Work == "") {
		return Invalid("an overlay with only one of upper and work directory")
	}
	for _, p := range o.Lower {
		if err := CheckPath(p); err != nil {
			return err
		}
	}
	if o.Upper == "" {
		return nil
	}
	if err := CheckPath(o.Upper); err != nil {
		return err
	}
	if !strings.HasPrefix(o.Upper, path.Dir(o.Work)+"/") {
		return Invalid("upper directory %s does not lie beside the work directory %s, nor in what does", o.Upper, o.Work)
	}
	return CheckPath(o.Work)
}

// CheckPath returns an error unless p, a path in a [Spec], is absolute and clean.
func CheckPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return Invalid("path %q is not absolute and clean", p)
	}
	return nil
}

// Invalid returns an error of kind ErrInvalid with a formatted text. Checks return it for a Spec (the policy
// of a container) that contradicts itself or is incomplete.
func Invalid(format string, args ...any) error {
	return &errs.Error{Op: "checking the policy", Kind: errs.ErrInvalid, Err: fmt.Errorf(format, args...)}
}
