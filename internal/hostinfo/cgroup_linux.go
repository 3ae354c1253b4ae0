package hostinfo

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
)

// A CgroupRoot is a mounted hierarchy of control groups.
type CgroupRoot struct {
	// Path is where it is mounted.
	Path string
	// Version is 1 or 2.
	Version int
	// Controllers of a hierarchy of version 1: "memory", "pids", "freezer" and so
	// on; none for a named one. Those of version 2 are in cgroup.controllers.
	Controllers []string
}

// CgroupRoots lists the hierarchies that this mount namespace has, version 2
// first. Cost: that of [Mounts].
func CgroupRoots() ([]CgroupRoot, error) {
	mounts, err := mount.List()
	var roots []CgroupRoot
	for _, m := range mounts {
		switch m.Type {
		case "cgroup2":
			roots = slices.Insert(roots, 0, CgroupRoot{Path: m.Path, Version: 2})
		case "cgroup":
			roots = append(roots, CgroupRoot{Path: m.Path, Version: 1, Controllers: Controllers(m.SuperOptions)})
		}
	}
	return roots, err
}

// Controllers leaves of a hierarchy's mount options what is neither a flag nor a
// name.
func Controllers(options string) []string {
	var list []string
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "favordynmods":
		default:
			if !strings.Contains(option, "=") {
				list = append(list, option)
			}
		}
	}
	return list
}
