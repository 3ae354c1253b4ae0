package mount

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestParseMountsUndoesTheEscapes(t *testing.T) {
	const info = `36 35 98:0 /a\040b /m\011\134n\012 rw,noatime shared:1 master:2 - ext3 /dev/ro\040ot rw,errors=continue
37 36 0:5 / /x rw - tmpfs none rw
broken line
`
	got := parseMounts([]byte(info))
	want := []Point{
		{
			ID: 36, Parent: 35, Dev: unix.Mkdev(98, 0), Root: "/a b", Path: "/m\t\\n\n", Options: "rw,noatime",
			SuperOptions: "rw,errors=continue", Shared: true, Type: "ext3", Source: "/dev/ro ot",
		},
		{
			ID: 37, Parent: 36, Dev: unix.Mkdev(0, 5), Root: "/", Path: "/x", Options: "rw", SuperOptions: "rw",
			Type: "tmpfs", Source: "none",
		},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v", got)
	}
}

func TestMountsAgreesWithStatx(t *testing.T) {
	mounts, err := List()
	if err != nil {
		t.Fatal(err)
	}
	root, err := vfs.Lstat(unix.AT_FDCWD, "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if uint64(m.ID) == root.Mount {
			if m.Path != "/" || !root.MountRoot {
				t.Errorf("the root is %+v", m)
			}
			return
		}
	}
	t.Errorf("mount %d of / is not among %d", root.Mount, len(mounts))
}

func BenchmarkMounts(b *testing.B) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(info)))
	for b.Loop() {
		if _, err := List(); err != nil {
			b.Fatal(err)
		}
	}
}
