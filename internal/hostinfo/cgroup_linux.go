package hostinfo

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
)

// A CgroupRoot is a mounted hierarchy of control groups (cgroups): its mount point and its version. Callers
// look in it for groups to read or to make.
type CgroupRoot struct {
	// Path is the mount point.
	Path string
	// Version is the version of control groups, 1 or 2.
	Version int
	// Controllers lists the controllers of a hierarchy of version 1: "memory", "pids",
	// "freezer" and so on; none for a named one. For version 2 see the file
	// cgroup.controllers.
	Controllers []string
}

// CgroupRoots returns the cgroup hierarchies mounted in this mount namespace, version 2 first. Cost: reading
// the list of mounts.
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

// Controllers returns the controllers, such as "memory", that the mount options of a cgroup hierarchy of
// version 1 name.
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
