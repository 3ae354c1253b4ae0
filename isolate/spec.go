package isolate

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// A Spec is a policy: what the processes of a box may see and do. It is a
// plain value; nothing happens until [Start].
type Spec struct {
	// Mounts are the trees of the box, in order; the first has the target "/".
	// A target must exist as a directory in what was mounted before it.
	// On top of them every box has a /proc, /sys, /dev, /run and /tmp of its own.
	Mounts []Mount
	// Tmp is the host's directory to use as /tmp, so that it outlives the box.
	// Empty: a fresh tmpfs.
	Tmp string
	// Hide are absolute paths inside the box to mask: a directory by an empty
	// one, a file by an empty one, both read-only. What does not exist is
	// skipped. A symbolic link is followed inside the box and what it leads to
	// is masked.
	Hide []string
	// ReadOnly are absolute paths inside the box that are made read-only, with
	// everything beneath them, by the same rules as Hide.
	ReadOnly []string
	// Hostname is the box's own host name. Empty: the host's.
	Hostname string
	// Network is what the box is connected to.
	Network Network
	// Edge are the addresses of [NetworkEdge], and nil for other networks.
	Edge *EdgeAddrs
	// Resolver is the only name server in the box's /etc/resolv.conf, which is
	// covered by a read-only file that says so; where it is a symbolic link, the
	// link itself is, wherever it leads. The file must be there. The zero value
	// leaves it as it is.
	Resolver netip.Addr
	// IDs says which users of the host the users inside are.
	IDs IDs
	// Cgroups are open directories of cgroups (any number of v1 hierarchies, at
	// most one of v2) which the box enters before anything runs in it. They stay
	// the caller's: to make, to close, and to remove after Close.
	Cgroups []*os.File
	// Rlimits is what every command begins with, the first and those of Exec; pid
	// 1 is not hurt by them. The others are as they are for the keeper. More than
	// the keeper's own hard limit is an error.
	Rlimits []Rlimit
	// Shift shows trees that cannot be id-mapped; nil: they are refused.
	Shift Shifter
	// BestEffort: where this host cannot give a protection, go on without it,
	// and say so in [Box.Level]. Otherwise a missing protection is an error.
	BestEffort bool
}

// A Shifter starts a process that shows the directory tree by the FUSE filesystem
// whose device dev is, with users and groups whose numbers are higher by base, as
// package isolate/shift does. Both descriptors stay the caller's. The process ends by
// itself when the last mount of that filesystem has gone.
type Shifter func(ctx context.Context, dev, tree *os.File, base uint32) error

// A Mount is one tree of a box: exactly one of Overlay, Source, Skeleton and Served.
// Devices and, by no_new_privs, set-id bits in it have no effect.
type Mount struct {
	// Target is its absolute, clean path inside the box.
	Target string
	// Overlay is mounted at Target.
	Overlay *Overlay
	// Source is the host's directory or file that is bound at Target. Other
	// filesystems mounted beneath it come along only under [Same], where the
	// kernel insists on it.
	Source string
	// Skeleton is a host directory whose first level is copied into a fresh
	// tmpfs: directories empty, symbolic links as they are, under [Same] files
	// bound. Used as "/" where the kernel refuses to overlay the real one. All of
	// it is read-only.
	Skeleton string
	// Served mounts a tree that this process, or another one that is no part of the
	// box, answers for.
	Served Served
	// ReadOnly forbids writes to the tree, and to it alone.
	ReadOnly bool
	// MayVanish: others make and remove Source, or the lowest layer, at any time.
	// Where it has gone by now, the box has nothing at Target. For [Same] only.
	MayVanish bool
}

// Served is a tree that a process answers for.
type Served interface {
	// Mount mounts it, detached, and answers with a descriptor of its root.
	Mount(ctx context.Context, readOnly bool) (fd int, err error)
}

// An Overlay is one mount of the kernel's overlayfs.
type Overlay struct {
	// Lower are the read-only layers, the topmost first; at least one, unless there is a Base.
	Lower []string
	// Base is beneath all of them, the topmost first: a tree that a process answers for, in
	// one part or several, of which none is the tree without the others.
	Base []Served
	// Upper and Work are the writable layer and its work directory, or both
	// empty for a tree that is only read. Upper lies in the parent of Work.
	Upper, Work string
	// UserXattr keeps overlayfs's records in user.* attributes. Kernels demand
	// it under [Same], and it excludes redirect_dir and metacopy.
	UserXattr bool
	// Nested: the last of Lower contains the other layers, which the kernel
	// refuses. It is wrapped in an overlay of its own.
	Nested bool
}

// alone is the one layer that a tree is, mounted as it is, or "".
func (o *Overlay) alone() string {
	if o.Upper == "" && len(o.Base) == 0 && len(o.Lower) == 1 {
		return o.Lower[0]
	}
	return ""
}

// Network is what a box is connected to.
type Network string

// The networks.
const (
	// NetworkNone is a loopback interface of the box's own, and nothing else.
	NetworkNone Network = "none"
	// NetworkHost is the host's network as it is. The host's abstract unix
	// sockets are kept out of reach where Landlock can (ABI 6, Linux 6.12); where it
	// cannot, the level says so.
	NetworkHost Network = "host"
	// NetworkEdge is a network of the box's own, with a loopback interface and
	// one other, snapfs0, whose other end is [Box.Tun]: whoever reads that decides
	// what the box reaches. Nothing in the box can change the interface, its
	// addresses or its routes. Needs /dev/net/tun, which the caller must be able
	// to open. Cost: 0.4 ms more than [NetworkNone].
	NetworkEdge Network = "edge"
)

// IDs says which users of the host the users of a box are.
type IDs struct{ base, size uint32 }

// Same is the mapping where the users inside are those outside, and only the caller's own user and
// group exist; all others look like nobody. Needs no privilege.
var Same = IDs{}

// Own maps the ids 0 to 65535 inside to 65536 ids of the host from base on,
// which should belong to nobody. Files keep their real owners on disk, by
// id-mapped mounts, or by Shift. Needs root, and Linux 5.19 for overlays.
func Own(base uint32) IDs { return IDs{base: base, size: 1 << 16} }

func (i IDs) String() string {
	if i == Same {
		return "same"
	}
	return fmt.Sprintf("%d+%d", i.base, i.size)
}

// String describes the whole policy, a line for each part that matters.
func (s Spec) String() string {
	var b strings.Builder
	for _, m := range s.Mounts {
		fmt.Fprintln(&b, "mount", m)
	}
	if s.Tmp != "" {
		fmt.Fprintln(&b, "tmp", s.Tmp)
	}
	for _, p := range s.ReadOnly {
		fmt.Fprintln(&b, "read-only", p)
	}
	for _, p := range s.Hide {
		fmt.Fprintln(&b, "hide", p)
	}
	if s.Hostname != "" {
		fmt.Fprintln(&b, "hostname", s.Hostname)
	}
	fmt.Fprintln(&b, "network", s.Network)
	if s.Edge != nil {
		fmt.Fprintln(&b, "edge", s.Edge)
	}
	if s.Resolver.IsValid() {
		fmt.Fprintln(&b, "resolver", s.Resolver)
	}
	fmt.Fprintln(&b, "ids", s.IDs)
	for _, r := range s.Rlimits {
		fmt.Fprintln(&b, "limit", r)
	}
	if s.BestEffort {
		fmt.Fprintln(&b, "best effort")
	}
	return b.String()
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
	if m.MayVanish {
		b.WriteString(" if it is there")
	}
	return b.String()
}
