package realwork

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestRealWorkLeavesTheMachineAlone does each work as root and as an ordinary user, all of
// them beside each other, then compares the whole machine. Where root started the user,
// root compares it for both, and sees more.
func TestRealWorkLeavesTheMachineAlone(t *testing.T) {
	treetest.Leaks(t)
	compared := func() machine {
		if os.Getenv(asUser) != "" {
			return nil
		}
		return manifest(t)
	}
	// Each command of snapfs lists its state directory there, where that is an unusual one.
	if home, err := os.UserHomeDir(); err == nil {
		if err := os.MkdirAll(filepath.Join(home, catalog.Registry), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := compared()
	t.Run("as", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Run("root", func(t *testing.T) {
				t.Parallel()
				all(t, onlyRoot, everybody)
				if treetest.Long(t) {
					all(t, profiles)
				}
			})
		}
		t.Run("user", func(t *testing.T) {
			if os.Geteuid() == 0 {
				t.Parallel()
				treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithEnv(asUser+"=1"))
				return
			}
			all(t, onlyUser, everybody)
		})
	})
	before.equal(t, compared())
}

const asUser = "SNAPFS_REALWORK_USER"

// all does each work of lists. make test leaves out the heavy ones, and those marked once for root.
func all(t *testing.T, lists ...[]work) {
	long := treetest.Long(t)
	for _, list := range lists {
		for _, w := range list {
			if (long || !w.heavy && (!w.once || os.Geteuid() != 0)) && (!testing.Short() || !w.online) {
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					do(t, w)
				})
			}
		}
	}
}

// git makes the workspace a repository with one commit.
const git = `
git init -q
echo real > file
git add file
git commit -q --no-gpg-sign -m real`

var everybody = []work{
	{
		name: "npm", needs: []string{"npm", "node"}, online: true, once: true,
		changes: []string{"/work/node_modules/is-number/index.js", "/work/package-lock.json"},
	},
	{name: "pip", needs: []string{"python3"}, online: true, heavy: true, changes: []string{"/work/venv/pyvenv.cfg", "/six.py"}},
	{name: "venv", needs: []string{"python3"}, once: true, changes: []string{"/work/venv/pyvenv.cfg"}},
	{
		name: "go", needs: []string{"go"}, heavy: true, changes: []string{"/work/program"},
		outside: `cp -r "$BUILT/program/." .; mkdir -p ../home/go/pkg; cp -r "$BUILT/mod" ../home/go/pkg/mod`,
	},
	{name: "git", needs: []string{"git"}, outside: git, changes: []string{"refs/heads/side", "/work/file"}},
	{
		name: "clone", needs: []string{"git"}, heavy: true, changes: []string{"/by-link/.git/packed-refs"},
		outside: `cp -r "$BUILT/repo/." .`,
	},
	{name: "make", needs: []string{"make", "cc"}, once: true, outside: "mkdir src", changes: []string{"/work/src/greet"}},
	{name: "copies", needs: []string{"tar"}, once: true, outside: `cp -r "$BUILT/repo/internal" .; ln -s internal link`, changes: []string{"/work/by-tar", "/work/by-cp"}},
	{
		name: "sqlite", needs: []string{"sqlite3"}, once: true, changes: []string{"/work/real.db"},
		outside: `sqlite3 real.db 'pragma journal_mode=wal; create table t (n); insert into t values (1);'`,
	},
	{name: "remake", outside: `mkdir -p d/deep; echo real > d/deep/file; echo real > d/top`, changes: []string{"/work/d/deep/file"}},
	{name: "rename", needs: []string{"python3"}, outside: `mkdir -p d/deep; echo real > d/deep/file; ln -s file d/deep/link`, changes: []string{"/work/e"}},
	{name: "links", outside: `echo real > a; ln a b`, changes: []string{"/work/a", "/work/c"}},
	{name: "daemon", outside: `:`, changes: []string{"/work/ticks"}, after: noDaemon},
	{
		name: "tmp", outside: `touch /tmp/outside-$(basename "$BENCH")`,
		after: func(b *bench) {
			name := filepath.Base(b.dir)
			if err := os.Remove("/tmp/outside-" + name); err != nil {
				b.t.Error(err)
			}
			for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
				if _, err := os.Lstat(dir + "/inside-" + name); err == nil {
					b.t.Errorf("%s/inside-%s is there", dir, name)
				}
			}
		},
	},
}

var onlyRoot = []work{
	{name: "apt", needs: []string{"apt-get"}, online: true, heavy: true, changes: []string{"/usr/bin/hello", "/var/lib/dpkg/status"}},
	{name: "postgres-root", needs: []string{"pg_createcluster", "psql"}, heavy: true, changes: []string{"/realwork/postmaster.opts", "/realwork/postgresql.conf"}},
	{name: "system", needs: []string{"useradd"}, flags: []string{"--expose", "/etc/shadow"}, changes: []string{"/etc/hosts", "/etc/passwd", "/usr/share/doc", "/var/lib/dpkg.away"}},
	{name: "su-root", needs: []string{"su", "setpriv"}},
}

// profiles are works under the built-in profile for them.
var profiles = []work{
	{name: "npm-install", script: "npm", profile: "npm-install", needs: []string{"npm", "node"}, online: true, changes: []string{"/work/node_modules/is-number/index.js"}},
	{name: "pip-install", script: "pip", profile: "pip-install", needs: []string{"python3"}, online: true, changes: []string{"/six.py"}},
	{name: "cargo-build", profile: "cargo-build", needs: []string{"cargo"}, online: true, changes: []string{"/work/target/debug/profiled"}},
	{name: "go-build", profile: "go-build", needs: []string{"go"}, online: true, changes: []string{"/work/profiled"}},
}

var onlyUser = []work{
	{name: "apt-user", needs: []string{"apt-get"}},
	{name: "postgres-user", needs: []string{"pg_createcluster", "psql"}, changes: []string{"/work/data/postmaster.opts"}},
	{name: "su-user", needs: []string{"su"}},
}
