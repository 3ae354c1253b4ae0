package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
)

func asItIs(p string) string { return p }

// mustHide returns what the function hidden returns, which is no error.
func mustHide(t *testing.T, h hiding, home, workspace string) []string {
	t.Helper()
	list, err := hidden(h, home, workspace)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Exposing one file shows nothing else of the directory that it is hidden in.
func TestWhatIsExposedShowsNothingBesideIt(t *testing.T) {
	home := realDir(t)
	for _, f := range []string{".ssh/known_hosts", ".ssh/id_rsa", ".ssh/more/key", ".ssh/more/shown"} {
		mustWrite(t, filepath.Join(home, f))
	}
	list := mustHide(t, hiding{
		real: findSecrets(home, asItIs), own: []string{filepath.Join(home, ".ssh/more/state")},
		expose: []string{filepath.Join(home, ".ssh/known_hosts"), filepath.Join(home, ".ssh/more/shown"), filepath.Join(home, ".ssh/more/state")},
	}, home, "/w")
	for f, want := range map[string]bool{".ssh": false, ".ssh/known_hosts": false, ".ssh/id_rsa": true, ".ssh/more": false, ".ssh/more/key": true, ".ssh/more/shown": false, ".ssh/more/state": true} {
		if got := slices.Contains(list, filepath.Join(home, f)); got != want {
			t.Errorf("%s is hidden: %v, want %v", f, got, want)
		}
	}
}

// In its copy a sandbox can remove the link that a secret is reached by.
func TestASecretIsHiddenWhereItsLinkLeads(t *testing.T) {
	home := realDir(t)
	mustWrite(t, filepath.Join(home, "dotfiles/ssh/id_rsa"))
	mustWrite(t, filepath.Join(home, "dotfiles/config/gh/hosts.yml"))
	for link, to := range map[string]string{".ssh": "dotfiles/ssh", ".config": "dotfiles/config"} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	copied := t.TempDir() // in which nothing of it is left
	for _, root := range []string{"", copied} {
		list := mustHide(t, hiding{real: findSecrets(home, asItIs), roots: map[string]string{"/": root}}, home, "/w")
		for _, want := range []string{"dotfiles/ssh", "dotfiles/config/gh"} {
			if !slices.Contains(list, filepath.Join(home, want)) {
				t.Errorf("%s is not hidden", want)
			}
		}
	}
}

// What a policy hides, and snapfs's own state, is hidden under both names of a link: a command can replace the link. A
// path that is exposed opens no link that the policy hides.
func TestAPolicysLinkIsHiddenAtBothEnds(t *testing.T) {
	dir := realDir(t)
	for _, name := range []string{"vault/key", "state/record", "key", "more/a", "more/b"} {
		mustWrite(t, filepath.Join(dir, name))
	}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	for link, to := range map[string]string{"keys": "vault", "own": "state", "secret": "key", "all": "more"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	h := hiding{also: in("keys", "all"), own: in("own", "secret"), expose: in("vault", "state", "key", "own", "secret", "all/a")}
	list := mustHide(t, h, "", "/w")
	for name, want := range map[string]bool{
		"keys": true, "vault": true, "own": true, "state": true, "secret": true, "key": true, "all/b": true, "more/b": true,
		"all/a": false, "more/a": false, "all": false, "more": false,
	} {
		if slices.Contains(list, filepath.Join(dir, name)) != want {
			t.Errorf("%s is hidden: %v, want %v", name, !want, want)
		}
	}
	// A link names a filesystem that is mounted a second time.
	h = hiding{own: in("own"), mounts: []mount.Point{
		{ID: 1, Path: "/", Root: "/", Dev: 7}, {ID: 2, Path: dir + "/state", Root: "/s", Dev: 8}, {ID: 3, Path: "/mnt/again", Root: "/s", Dev: 8},
	}}
	if list = mustHide(t, h, "", "/w"); !slices.Contains(list, "/mnt/again") {
		t.Errorf("hidden: %q, want /mnt/again too", list)
	}
}

// A user without HOME, or with another, has secrets in the home directory of the account.
func TestTheHomeOfTheAccountIsHidden(t *testing.T) {
	t.Parallel()
	const accounts = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/srv/ann/:/bin/sh\nbob:x:1001:1001::/srv/bob:/bin/sh\nmail:x:8:8::/srv/mail:/usr/sbin/nologin\n" +
		"ann2:x:1000:1000::/usr/ann:/bin/false\nroot2:x:1000:0::/:/bin/sh\nshort:x:1000\n"
	for _, c := range []struct {
		uid    string
		all    bool
		want   []string
		people int
	}{
		{"1000", false, []string{"/root", "/srv/ann", "/usr/ann"}, 3},
		{"8", false, []string{"/root", "/srv/mail"}, 2},
		{"100", false, []string{"/root"}, 1},
		{"0", true, []string{"/root", "/srv/ann", "/srv/bob", "/srv/mail"}, 3},
	} {
		got, people := accountHomes([]string{"/root"}, accounts, c.uid, c.all)
		if slices.Sort(got[:people]); !slices.Equal(got, c.want) || people != c.people {
			t.Errorf("for the user %s: %q, of which %d of people, want %q and %d", c.uid, got, people, c.want, c.people)
		}
	}
}

// What the host puts into an empty place after the start would show in a live tree, and never in a copy.
func TestAnEmptyPlaceIsMaskedUnlessItIsACopy(t *testing.T) {
	host, copied := realDir(t), realDir(t)
	dir, file, full := filepath.Join(host, "wireguard"), filepath.Join(host, "a.log"), filepath.Join(host, "b.log")
	mustWrite(t, full)
	mustWrite(t, filepath.Join(copied, full))
	for _, top := range []string{"", copied} {
		if err := errors.Join(os.MkdirAll(top+dir, 0o700), os.WriteFile(top+file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for root, want := range map[string][]string{"": {file, full, dir}, copied: {full}} {
		list := mustHide(t, hiding{real: SecretPaths{machine: []string{dir, file, full}}, roots: map[string]string{"/": root}}, host, "/w")
		list = slices.DeleteFunc(list, func(p string) bool { return !Within(p, host) })
		slices.Sort(list)
		if !slices.Equal(list, want) {
			t.Errorf("copy at %q: hidden are %q, want %q", root, list, want)
		}
	}
}

func TestASecretIsHiddenWhereItsFilesystemIsMountedAgain(t *testing.T) {
	mounts := []mount.Point{
		{ID: 1, Path: "/", Root: "/@", Dev: 7},
		{ID: 2, Parent: 1, Path: "/home", Root: "/@home", Dev: 7},
		{ID: 3, Parent: 1, Path: "/mnt/top", Root: "/", Dev: 7},
		{ID: 4, Parent: 1, Path: "/srv/me", Root: "/@home/me", Dev: 7},
		{ID: 5, Parent: 1, Path: "/srv/keys", Root: "/@home/me/.ssh", Dev: 7},
		{ID: 6, Parent: 1, Path: "/srv/project", Root: "/@home/me/.ssh/project", Dev: 7},
		{ID: 7, Parent: 1, Path: "/boot", Root: "/", Dev: 8},
	}
	got := aliasesOf(mounts).of("/home/me/.ssh", "/etc/wireguard", "/boot/key")
	want := []string{"/mnt/top/@home/me/.ssh", "/srv/me/.ssh", "/srv/keys", "/mnt/top/@/etc/wireguard"}
	if !slices.Equal(got, want) {
		t.Errorf("hidden besides: %q, want %q", got, want)
	}
}

// npm's configuration is hidden unless all of it is understood and none of it is a credential.
func TestAnNPMRCWithARegistryOnlyIsNoSecret(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                    false,
		"registry=https://npm.example.org/\n": false,
		"# ours\n@corp:registry = https://npm.example.org:8443/a/\nsave-exact=true": false,
		"//npm.example.org/:_authToken=x":                                           true,
		"registry=https://npm.example.org/\n//npm.example.org/:always-auth=true":    true,
		"_auth = eA==":                       true,
		"registry=https://me:pw@example.org": true,
		"registry=https://pw@example.org":    true,
		"; //npm.example.org/:_password=x":   true,
		"_PASSWORD=x":                        true,
		"key=\"x\"":                          true,
		"\xff\xfer\x00e\x00g":                true,
		strings.Repeat("registry=https://npm.example.org/\n", 1<<11): true,
	} {
		home := realDir(t)
		path := filepath.Join(home, ".npmrc")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(findSecrets(home, asItIs).people, path); got != want {
			t.Errorf("%.60q is hidden: %v, want %v", text, got, want)
		}
	}
	home := realDir(t)
	fifo := filepath.Join(home, ".npmrc")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(findSecrets(home, asItIs).people, fifo) {
		t.Error("a pipe is not hidden")
	}
}

// realDir is a directory whose path has no symbolic link.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustWrite(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}
