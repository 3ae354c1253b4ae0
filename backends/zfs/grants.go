//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

// needed lists the zfs-allow(8) permissions that an ordinary user needs for making a snapshot with snapfs's
// user property, and for holding, releasing and destroying it. Destroying needs the permission mount too.
var needed = []string{"snapshot", "userprop", "hold", "release", "destroy", "mount"}

// delegated returns the reason why this ordinary user cannot make and destroy snapshots of the
// tree's dataset, or nil.
func delegated(ctx context.Context, tree string) error {
	src, err := findSource(tree)
	if err == nil {
		err = checkName(src)
	}
	if err != nil {
		return err
	}
	refused := &errs.Error{Kind: errs.ErrNotSupported, Path: tree}
	switch err := unix.Access("/dev/zfs", unix.R_OK|unix.W_OK); {
	case os.Geteuid() == 0:
		refused.Err, refused.Hints = errors.New("this backend is for ordinary users; root uses clones"), []string{"snapfs … --backend zfs"}
		return refused
	case err != nil:
		refused.Err = errors.New("zfs(8) cannot open /dev/zfs: " + err.Error())
		refused.Hints = []string{"sudo modprobe zfs && sudo chmod 666 /dev/zfs"}
		return refused
	}
	if _, err := run.Look("zfs"); err != nil {
		return noProgram(err)
	}
	if _, err := rootOf(src.dataset); err != nil {
		return err
	}
	said, err := zfsCmd(ctx, "allow", src.dataset)
	if err != nil {
		return err
	}
	has := granted(said, src.dataset, itself())
	missing := slices.DeleteFunc(slices.Clone(needed), func(g string) bool { return has[g] })
	if len(missing) == 0 {
		return nil
	}
	refused.Err = errors.New("root has not granted " + strings.Join(missing, ", ") + " on " + src.dataset)
	refused.Hints = []string{"sudo zfs allow " + login() + " " + strings.Join(missing, ",") + " " + src.dataset}
	return refused
}

// login returns the name by which zfs(8) calls the user of this process, to find the permissions that root
// has granted to the user, and for the hint that names the missing ones.
func login() string {
	id := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// itself returns a function that reports whether a zfs-allow(8) grant includes this process: one to a user or
// group, as kind says, called name, or to everyone. zfs(8) prints names, and numbers for ids without a name.
func itself() func(kind, name string) bool {
	groups, _ := os.Getgroups() // it never fails
	names := map[string]bool{}
	for _, gid := range append(groups, os.Getegid()) {
		id := strconv.Itoa(gid)
		names[id] = true
		if g, err := user.LookupGroupId(id); err == nil {
			names[g.Name] = true
		}
	}
	self, id := login(), strconv.Itoa(os.Geteuid())
	return func(kind, name string) bool {
		switch kind {
		case "user":
			return name == self || name == id
		case "group":
			return names[name]
		}
		return kind == "everyone"
	}
}

// granted parses said, the output of `zfs allow DATASET`, and returns the set of permissions granted to users
// and groups for which to returns true. The output lists, for the dataset and each parent, permission sets
// and the grants on that dataset, on its descendants, or both (print_fs_perms of cmd/zfs/zfs_main.c).
func granted(said, dataset string, to func(kind, name string) bool) map[string]bool {
	has, sets := map[string]bool{}, map[string][]string{}
	at, section := "", ""
	for line := range strings.Lines(said) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "---- Permissions on "); ok {
			at, section = strings.TrimSuffix(strings.TrimRight(name, "-"), " "), ""
			continue
		}
		row, ok := strings.CutPrefix(line, "\t")
		if !ok {
			section = line
			continue
		}
		end := strings.LastIndexByte(row, ' ')
		if end < 0 {
			continue
		}
		kind, name, _ := strings.Cut(row[:end], " ")
		what := strings.Split(row[end+1:], ",")
		switch section {
		case "Permission sets:":
			sets[kind] = append(sets[kind], what...)
			continue
		case "Local permissions:":
			ok = at == dataset
		case "Descendent permissions:":
			ok = at != dataset
		case "Local+Descendent permissions:":
		default:
			ok = false
		}
		for _, g := range what {
			has[g] = has[g] || ok && to(kind, name)
		}
	}
	for grown := true; grown; { // a set may contain other sets
		grown = false
		for set, what := range sets {
			for _, g := range what {
				if has[set] && !has[g] {
					has[g], grown = true, true
				}
			}
		}
	}
	return has
}
