package isolate

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Spec is the policy of a container: what its processes may see and do. It is a plain value; nothing happens
// until [Start].
type Spec struct {
	// Mounts are the trees of the container, in order; the first has the target "/". A target must exist as a
	// directory in the mounts before it. On top of them every container has its own /proc, /sys, /dev, /run and
	// /tmp.
	Mounts []Mount
	// Tmp is the host directory to use as /tmp, so that it outlives the container. Empty: a fresh tmpfs.
	Tmp string
	// Hide are absolute paths inside the container to mask: a directory with an empty read-only directory, a
	// file with an empty read-only file. Paths that do not exist are skipped. A symbolic link is resolved
	// inside the container and its target is masked.
	Hide []string
	// ReadOnly are absolute paths inside the container to make read-only, with everything below them, by the
	// same rules as Hide.
	ReadOnly []string
	// Hostname is the container's host name. Empty: the host's.
	Hostname string
	// Network is the container's network.
	Network Network
	// Edge are the addresses of [NetworkEdge], and nil for other networks.
	Edge *EdgeAddrs
	// Resolver is the only name server in the container's /etc/resolv.conf, which a read-only file covers. If
	// /etc/resolv.conf is a symbolic link, the link itself is covered. The file must exist. The zero value
	// leaves it unchanged.
	Resolver netip.Addr
	// IDs maps the users inside to users of the host.
	IDs IDs
	// Cgroups are open directories of cgroups (any number of v1 hierarchies, at most one of v2) that the
	// container enters before any command runs. The caller creates and closes them, and removes them after
	// Close.
	Cgroups []*os.File
	// Rlimits are the limits of every command, the first and those of Exec, but not of pid 1. Other limits are
	// inherited from the supervisor. A limit above the supervisor's own hard limit is an error.
	Rlimits []Rlimit
	// Shift mounts trees that cannot be id-mapped. Nil: such trees are errors.
	Shift Shifter
	// BestEffort continues without a protection that this host cannot give, and reports it in
	// [Container.Level]. Otherwise a missing protection is an error.
	BestEffort bool
}

// Shifter starts a process that serves the directory tree through the FUSE device dev, with user and group ids
// increased by base, as package isolate/idmap does. The caller closes both descriptors. The process ends when
// the last mount of its filesystem is gone.
type Shifter func(ctx context.Context, dev, tree *os.File, base uint32) error

// Mount is one tree of a container: exactly one of Overlay, Source, Skeleton and Served. Devices in it have no
// effect, nor, because of no_new_privs, have set-id bits.
type Mount struct {
	// Target is its absolute, clean path inside the container.
	Target string
	// Overlay is mounted at Target.
	Overlay *Overlay
	// Source is the host's directory or file that is bound at Target. Filesystems mounted below it are included
	// only under [Same], where the kernel insists on it.
	Source string
	// Skeleton is a host directory whose first level is copied into a fresh read-only tmpfs: directories empty,
	// symbolic links as they are, and, under [Same], files bound. It serves as "/" where the kernel refuses an
	// overlay of the real root.
	Skeleton string
	// Served mounts a tree that a FUSE server outside of the container serves.
	Served Served
	// ReadOnly forbids writes to the tree, but not to mounts in it.
	ReadOnly bool
	// MayVanish: other programs create and remove Source, or the lowest layer, at any time. If it does not
	// exist, the container has nothing at Target. For [Same] only.
	MayVanish bool
}

// Served is a tree that a FUSE server serves.
type Served interface {
	// Mount mounts the tree, detached, and returns a descriptor of its root.
	Mount(ctx context.Context, readOnly bool) (fd int, err error)
}

// Overlay is one mount of the kernel's overlayfs.
type Overlay struct {
	// Lower are the read-only layers, topmost first; at least one unless Base is set.
	Lower []string
	// Base are FUSE layers below all of Lower, topmost first. Together they are one tree; a single one of them
	// is not.
	Base []Served
	// Upper and Work are the writable layer and its work directory, or both empty for a read-only tree. Upper
	// lies in the parent of Work.
	Upper, Work string
	// UserXattr makes overlayfs store its records in user.* attributes. Kernels demand it under [Same], and it
	// excludes redirect_dir and metacopy.
	UserXattr bool
	// Nested: the last of Lower contains the other layers, which the kernel refuses. It is wrapped in an
	// overlay of its own.
	Nested bool
}

// alone returns the layer of a read-only overlay with only one layer, which is bound instead, or "".
func (o *Overlay) alone() string {
	if o.Upper == "" && len(o.Base) == 0 && len(o.Lower) == 1 {
		return o.Lower[0]
	}
	return ""
}

// Network is the network of a container.
type Network string

// Networks.
const (
	// NetworkNone is a loopback interface of the container's own, and nothing else.
	NetworkNone Network = "none"
	// NetworkHost is the host's network. Landlock denies the host's abstract unix sockets if it can (ABI 6,
	// Linux 6.12); otherwise Level.String reports them.
	NetworkHost Network = "host"
	// NetworkEdge is a network of the container's own, with a loopback interface and one other, snapfs0, whose
	// other end is [Container.Tun]: the reader of Tun, a proxy, decides what the container reaches. No process
	// in the container can change the interface, its addresses or its routes. The caller must be able to open
	// /dev/net/tun. Cost: 0.4 ms more than [NetworkNone].
	NetworkEdge Network = "edge"
)

// IDs maps the users of a container to users of the host.
type IDs struct{ base, size uint32 }

// Same maps only the caller's own user and group, to themselves; all other ids appear as nobody. It needs no
// privilege.
var Same = IDs{}

// Own maps the ids 0 to 65535 inside to 65536 ids of the host from base on, which no user should have. Files
// keep their real owners on disk, by id-mapped mounts or by Shift. Own needs root, and Linux 5.19 for overlays.
func Own(base uint32) IDs { return IDs{base: base, size: 1 << 16} }

func (i IDs) String() string {
	if i == Same {
		return "same"
	}
	return fmt.Sprintf("%d+%d", i.base, i.size)
}

// String describes the whole policy, one part on each line.
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
