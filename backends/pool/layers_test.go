//go:build linux

package pool_test

import (
	"os"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// The data of all forks is limited. The filesystem's top subvolume, which contains the user's
// trees, is not.
func TestTheReserveLimitsForksOnly(t *testing.T) {
	for _, c := range []struct {
		name string
		dir  func(layers string) error // in place of the subvolume
	}{
		{"as it is made", nil},
		{"lost", os.Remove},
		{"a directory", func(layers string) error {
			if err := os.Remove(layers); err != nil {
				return err
			}
			return os.Mkdir(layers, 0o700)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p, _ := made(t)
			if c.dir != nil {
				must(t, c.dir(p.Layers()))
			}
			err := p.Maintain(t.Context())
			if c.name != "a directory" {
				must(t, err)
				if st, err := vfs.Lstat(unix.AT_FDCWD, p.Layers()); err != nil || st.Ino != btrfs.RootInode {
					t.Errorf("the directory for layers has inode %d, %v", st.Ino, err)
				}
			}
			top := treetest.Open(t, p.Mount())
			in, err := btrfs.Members(int(top.Fd()), 5) // the top subvolume
			if err != nil || slices.Contains(in, qgroup.All) {
				t.Errorf("the top subvolume is in the groups %x, %v", in, err)
			}
		})
	}
}
