//go:build linux

package limits

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A hierarchy is a mounted tree of control groups (cgroups(7)) in which limits can be set, as this process
// sees it.
type hierarchy struct {
	version     int
	controllers []string // of version 1; for version 2 see enable
	mount       string   // where its root is mounted
	own         string   // the directory of this process's own group, or "" if it is not visible
}

// hierarchies returns the cgroup hierarchies with controllers that snapfs uses, version 1 first. If a
// hierarchy is mounted more than once, it prefers a mount that shows the caller's own group. Cost: two reads,
// and a statfs for each.
func hierarchies() ([]hierarchy, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := ownGroups(string(text))
	var found []hierarchy
	for _, m := range slices.Backward(mounts) { // a later mount hides an earlier one
		h, ok := readHierarchy(m)
		if !ok || !h.mounted() {
			continue
		}
		key := ""
		if h.version == 1 {
			key = h.controllers[0]
		}
		if path, ok := own[key]; ok {
			h.own = locate(m, path)
		}
		same := func(o hierarchy) bool { return o.version == h.version && slices.Equal(o.controllers, h.controllers) }
		switch i := slices.IndexFunc(found, same); {
		case i < 0:
			found = append(found, h)
		case found[i].own == "":
			found[i] = h
		}
	}
	slices.SortStableFunc(found, func(a, b hierarchy) int { return a.version - b.version })
	return found, nil
}

// ownGroups parses the text of /proc/PID/cgroup: it returns the path of the process's group by controller of
// cgroup version 1, and for version 2 under "".
func ownGroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own
}

// readHierarchy returns the cgroup hierarchy that is mounted as m; false for other mounts and for hierarchies
// without a controller that snapfs uses.
func readHierarchy(m mount.Point) (h hierarchy, ok bool) {
	h.mount = m.Path
	switch m.Type {
	case "cgroup2":
		h.version = 2
		return h, true
	case "cgroup":
		h.version = 1
		for option := range strings.SplitSeq(m.SuperOptions, ",") {
			switch option {
			case "cpu", "cpuacct", "memory", "pids", "blkio", "freezer":
				h.controllers = append(h.controllers, option)
			}
		}
	}
	return h, len(h.controllers) > 0
}

// mounted reports whether the hierarchy's control groups are visible at its mount point. Another mount may
// cover them.
func (h hierarchy) mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs(h.mount, &st) == nil &&
		(h.version == 2 && st.Type == unix.CGROUP2_SUPER_MAGIC || h.version == 1 && st.Type == unix.CGROUP_SUPER_MAGIC)
}

// locate returns the directory, below the mount m, of the control group that /proc/self/cgroup calls path.
// The mount may show only a part of the hierarchy, or more of it than this process's cgroup namespace does
// (cgroup_namespaces(7)). It returns "" if the mount does not show the group.
func locate(m mount.Point, path string) string {
	switch {
	case strings.HasPrefix(path, "/.."):
		return "" // outside of the namespace: the kernel hides the names on the way
	case strings.HasPrefix(m.Root, "/.."):
		return search(m, path)
	case m.Root == "/":
		return filepath.Join(m.Path, path)
	case path == m.Root || strings.HasPrefix(path, m.Root+"/"):
		return filepath.Join(m.Path, path[len(m.Root):])
	}
	return ""
}

// search returns the directory of the group path if the root of the mount m is above this process's cgroup
// namespace, by as many levels as m.Root says. It looks for the group that contains this process.
func search(m mount.Point, path string) string {
	levels := strings.Count(m.Root, "/..")
	candidates, err := filepath.Glob(m.Path + strings.Repeat("/*", levels) + strings.TrimSuffix(path, "/"))
	if err != nil {
		return ""
	}
	self := strconv.Itoa(os.Getpid())
	for _, dir := range candidates {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err == nil && slices.Contains(strings.Fields(string(procs)), self) {
			return dir
		}
	}
	return ""
}

// parent is the name of the directory of cgroup version 2 in which root creates the groups of containers.
// They need one, because a process cannot stay in a group that gives controllers to other groups
// (Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint").
const parent = "snapfs"

// candidates returns, best first, the directories in which a control group may be created. Each is the last
// of a list, after the directories above it in which controllers must be enabled. If no controllers are
// needed, a group may also be below one with processes.
func (h hierarchy) candidates(controllers bool) [][]string {
	if h.version == 1 {
		return nonEmpty(h.own)
	}
	var list [][]string
	if os.Geteuid() == 0 {
		list = append(list, []string{h.mount, filepath.Join(h.mount, parent)})
	}
	for dir := h.own; strings.HasPrefix(dir, h.mount); dir = filepath.Dir(dir) {
		if delegated(dir) && (!controllers || vacant(dir)) {
			list = append(list, []string{dir})
		}
	}
	return list
}

func nonEmpty(dir string) [][]string {
	if dir == "" {
		return nil
	}
	return [][]string{{dir}}
}

// delegated reports whether the control group (version 2) in dir was delegated to this user, who may then
// create groups in it. A group that systemd manages is not, independent of its owner (systemd,
// docs/CGROUP_DELEGATION.md).
func delegated(dir string) bool {
	if managed(dir) {
		return false
	}
	for _, file := range [...]string{"", "/cgroup.procs", "/cgroup.subtree_control"} {
		if unix.Faccessat(unix.AT_FDCWD, dir+file, unix.W_OK, unix.AT_EACCESS) != nil {
			return false
		}
	}
	return true
}

// vacant reports whether the control group in dir itself contains no process; groups below it do not count.
// Only such a group can give controllers to groups below it.
func vacant(dir string) bool {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && len(procs) == 0
}

// enable makes as many of the wanted cgroup controllers as possible available to the control groups below dir
// (version 2, file cgroup.subtree_control). given are the controllers that these groups then have; lacks says
// why others are missing.
func enable(dir string, wanted []string) (given []string, lacks, err error) {
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	list, err := os.ReadFile(control)
	if err != nil {
		return nil, nil, err
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, nil, err
	}
	given = strings.Fields(string(list))
	var errs []error
	var missing []string
	for _, c := range wanted {
		switch {
		case slices.Contains(given, c):
		case !slices.Contains(strings.Fields(string(available)), c):
			errs = append(errs, errors.New("controller "+c+" is not available in "+dir))
		default:
			missing = append(missing, "+"+c)
		}
	}
	// One write for all if possible: before Linux 6.0 each write takes 10 ms.
	if len(missing) > 0 && vfs.WriteFile(control, strings.Join(missing, " ")) != nil {
		missing = slices.DeleteFunc(missing, func(c string) bool {
			err := vfs.WriteFile(control, c)
			errs = append(errs, err)
			return err != nil
		})
	}
	for _, c := range missing {
		given = append(given, c[1:])
	}
	return given, errors.Join(errs...), nil
}
