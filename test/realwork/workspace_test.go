package realwork

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestWorkspacesOfAnyKind does the same work in workspaces that are not a plain
// directory on the root's filesystem.
func TestWorkspacesOfAnyKind(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("root", func(t *testing.T) {
			kinds(t)
			onFilesystems(t)
		})
	}
	if os.Geteuid() == 0 && !treetest.Long(t) {
		return // the same as for root
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			kinds(t)
		}
	})
}

// commit is the work: git and a C program, in whatever directory this is.
const commit = `
[ -z "$(git status --porcelain)" ]
echo more >>file
printf 'int main(void) { return 3; }\n' >prog.c
printf 'prog: prog.c\n\tcc -o prog prog.c\n' >Makefile
make
st=0; ./prog || st=$?
[ $st = 3 ]
git add -A
git commit -q --no-gpg-sign -m more
git fsck
[ "$(git log --oneline | wc -l)" = 2 ]
echo works
`

func kinds(t *testing.T) {
	treetest.NeedProgram(t, "git", "make", "cc")
	for name, space := range map[string]string{
		"odd names":    "sp ace/new\nline/not utf8 \xff\xfe",
		"a long path":  strings.Repeat(strings.Repeat("d", 200)+"/", 12) + "w",
		"leading dash": "-rf",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.space = filepath.Join(b.dir, space)
			commitIn(b)
		})
	}
	t.Run("beneath tmp", func(t *testing.T) {
		dir, err := os.MkdirTemp("/tmp", "snapfs-realwork-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		b := newBench(t)
		b.space = dir
		commitIn(b)
	})
	t.Run("a linked worktree", linkedWorktree)
	t.Run("a submodule", submodule)
}

// onFilesystems has workspaces on filesystems that are mounted by themselves.
func onFilesystems(t *testing.T) {
	treetest.NeedFS(t, "btrfs", "ext4")
	for name, root := range map[string]string{
		"ext4 of its own": treetest.Ext4(t, 256<<20), "btrfs of its own": treetest.Btrfs(t), "tmpfs": treetest.Small(t, "tmpfs", 64<<20),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.space = filepath.Join(root, "w")
			commitIn(b)
		})
	}
}

// commitIn makes the workspace a repository and does the work in it.
func commitIn(b *bench) {
	b.t.Helper()
	if err := os.MkdirAll(b.space, 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.outside(git)
	b.works(commit, "/prog", b.space)
}

// works runs a script in a sandbox: it works, the report names a path, and the
// real directories are as they were.
func (b *bench) works(script, changes string, dirs ...string) {
	b.t.Helper()
	before := whole(b.t, dirs...)
	out, status, changed := b.inside(script)
	if status != 0 || !strings.HasSuffix(out, "works\n") {
		b.t.Errorf("status %d, and it said:\n%s", status, out)
	}
	if !names(changed, changes) {
		b.t.Errorf("the report does not name %q: %q", changes, changed)
	}
	before.equal(b.t, whole(b.t, dirs...))
	b.empty()
}

// A linked worktree's .git is a file with the path of the repository it is of.
// In a sandbox that path leads to the repository's copy: a commit lands there.
func linkedWorktree(t *testing.T) {
	b := newBench(t)
	parent := filepath.Join(b.dir, "parent")
	b.outside(`git init -q ../parent; cd ../parent` + strings.Replace(git, "git init -q", "", 1) + `
rmdir ../work
git worktree add -q -b linked ../work`)
	b.works(strings.Replace(commit, "echo works", `[ "$(git -C ../parent log --oneline linked | wc -l)" = 2 ]
git -C ../parent merge -q --no-edit linked
git worktree add -q -b third ../third
git gc -q --prune=now
echo works`, 1), "refs/heads/linked", b.space, parent)
	if got := b.outside("git -C ../parent log --oneline --all | wc -l"); strings.TrimSpace(got) != "1" {
		t.Errorf("the real repository has %s commits, want 1", got)
	}
}

// A submodule's .git is a file too, and so is its work tree's path in the
// repository's configuration.
func submodule(t *testing.T) {
	b := newBench(t)
	parent := filepath.Join(b.dir, "parent")
	b.outside(`git init -q ../sub; cd ../sub` + strings.Replace(git, "git init -q", "", 1) + `
git init -q ../parent
cd ../parent
git -c protocol.file.allow=always submodule --quiet add ../sub sub
git commit -q --no-gpg-sign -m sub`)
	b.space = filepath.Join(parent, "sub")
	b.works(commit, "/prog", parent, filepath.Join(b.dir, "sub"))
}
