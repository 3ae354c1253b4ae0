package hostfs

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// SecretPaths are the paths of a machine's secrets that a sandbox must not see: those in home directories
// (people) and those of the machine itself. missing are places that do not exist, each up to its first
// element that does not. unsure are other places that do not exist, and may be links to nothing. dirs are the
// directories that the search has found.
type SecretPaths struct {
	people, machine, unsure []string
	missing                 []absentNames
	dirs                    []string
}

// A Search collects the facts about the host that the start of a sandbox requires: the paths of secrets in the real
// trees, and the environment, which depends on the mounted filesystems. [SearchSecrets] makes it. It serves several
// starts.
type Search struct {
	secrets func() SecretPaths
	env     *Environment // nil: Host.Spec surveys the mounts
	began   time.Time
}

// SearchSecrets starts to search the real trees for secrets in the background, because the
// search takes a fifth of the time of creating a sandbox.
func SearchSecrets() *Search {
	began, answer := time.Now(), make(chan SecretPaths, 1)
	go func() { answer <- findSecrets(userHome(), func(path string) string { return path }) }()
	return &Search{secrets: sync.OnceValue(func() SecretPaths { return <-answer }), began: began}
}

// With returns s for a start in the environment env, for which the sandbox has just been made. With nil, and after the
// host's mounts have changed, the start surveys the mounts itself.
func (s *Search) With(env *Environment) *Search {
	return &Search{secrets: s.secrets, env: env, began: s.began}
}

// environment returns the environment for the start of a sandbox with this workspace, see [Survey].
func (s *Search) environment(workspace, state string) (*Environment, error) {
	if s.env != nil {
		return s.env, nil
	}
	return Survey(workspace, state, Privileged())
}

// findSecrets returns the paths of secrets that exist, and places where they may appear. home is the caller's
// home directory. at maps a path to where it can be read: in the real tree or in a sandbox's copy.
func findSecrets(home string, at func(string) string) SecretPaths {
	var s SecretPaths
	machine := placesOfMachine()
	found := search{at: at}
	all, people := homes(home)
	for i, h := range all {
		found.later = i < people // in the others nobody logs in
		found.look(h, places.Home)
	}
	s.people, found.found = found.found, nil
	found.later = true
	found.look("/", machine)
	s.missing, s.unsure, s.dirs = found.missing, found.unsure, found.dirs
	s.people = append(s.people, catalog.Others(slices.Concat(s.people, found.found), at)...)
	s.people = slices.DeleteFunc(s.people, func(p string) bool { return plainSettings(p, places.Settings, at) })
	s.machine = slices.DeleteFunc(found.found, func(p string) bool {
		return plainSettings(p, places.Settings, at) || !slices.Contains(machine, p[1:]) && !reads(at(p))
	})
	s.machine = append(s.machine, slices.DeleteFunc(logs(at), func(p string) bool { return !reads(at(p)) })...)
	return s
}

// reads reports whether the caller can read a file that may hold a secret, or enter a directory. A sandbox's
// commands have no more rights than the caller, so a path that they cannot reach needs no mask.
func reads(path string) bool {
	return Privileged() || unix.Access(path, unix.R_OK) == nil || unix.Access(path, unix.X_OK) == nil
}

// plainSettings reports whether path is one of the settings files that are hidden only if they hold a
// credential, and holds none. at maps a path to where it can be read.
func plainSettings(path string, settings []string, at func(string) string) bool {
	ends := func(end string) bool {
		dir, found := strings.CutSuffix(path, end)
		return found && strings.HasSuffix(dir, "/")
	}
	return slices.ContainsFunc(settings, ends) && plain(at(path))
}

// plain reports whether a settings file holds no credential, but for example the name of a registry or an
// author. It returns false for a file that it cannot read or does not understand.
func plain(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0) // os.NewFile would start the runtime's poller
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	const most = 64 << 10
	st, err := vfs.Lstat(fd, "")
	if err != nil || !st.IsRegular() || st.Size >= most {
		return false
	}
	data, err := vfs.ReadFD(fd, most)
	if err != nil || int64(len(data)) > st.Size || !utf8.Valid(data) { // it grows
		return false
	}
	marks := []string{"_auth", "password", "passwd", "token", "secret", "username", "key", "cert"}
	if strings.HasSuffix(path, "/.gitconfig") || strings.HasSuffix(path, "/git/config") { // has names of keys and users that are no secrets
		marks = []string{"password", "passwd", "token", "secret", "extraheader", "authorization", "cookie", "pass ", "pass=", "pass\t"}
	}
	for line := range strings.Lines(strings.ToLower(string(data))) {
		if credential(strings.TrimLeft(line, "#; \t"), marks) { // a comment may hold what was once in force
			return false
		}
	}
	return true
}

// credential reports whether a line of settings, in lower case, may hold a credential: one of the words marks, such
// as "token", or a user in a URL.
func credential(setting string, marks []string) bool {
	_, rest, _ := strings.Cut(setting, "://")
	if strings.HasPrefix(setting, "//") || strings.Contains(rest, "@") && !strings.HasPrefix(rest, "git@") || strings.Contains(setting, "\x00") {
		return true
	}
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(setting, mark) })
}

// userHome returns the caller's home directory, or "".
func userHome() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return home
}

// Masked returns the paths that the processes of a sandbox find empty, as of now: secrets that exist, and
// paths that the policy hides. snapfs's own directories are not in the list. hiddenLater is the number of
// places that do not exist yet and that live trees will hide.
func (hf *Host) Masked(ctx context.Context, rec *catalog.Record) (paths []string, hiddenLater int, err error) {
	env, err := Survey(rec.Workspace, hf.cat.Dir(), Privileged())
	if err != nil {
		return nil, 0, err
	}
	roots := map[string]string{}
	for _, t := range rec.Trees {
		if roots[t.Path] = ""; !t.Frozen || Vanished(t, rec.Workspace) {
			continue // the real tree is below it
		}
		b, err := hf.BackendOf(ctx, t)
		if err != nil {
			return nil, 0, err
		}
		f, err := b.LookupFork(ctx, t.Fork)
		if err != nil {
			return nil, 0, err
		}
		roots[t.Path] = f.View.Path
	}
	h := hiding{real: SearchSecrets().secrets(), also: rec.Policy.Hide, expose: exposed(rec.Policy.Expose), mounts: env.mounts, roots: roots}
	h.own = secretFiles(rec.Policy)
	if paths, err = hidden(h, userHome(), rec.Workspace); err != nil {
		return nil, 0, err
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == hf.cat.Dir() })
	slices.Sort(paths)
	if slices.ContainsFunc(rec.Trees, func(t catalog.Tree) bool { return !t.Frozen }) {
		for _, m := range later(h, rec.Workspace) {
			hiddenLater += len(m.names)
		}
	}
	return slices.Compact(paths), hiddenLater, nil
}

// Masks reports whether snapfs hides path from the processes of a sandbox, which find an empty file
// or directory there. Cost: a search of the host's home directories for secrets.
func (hf *Host) Masks(ctx context.Context, rec *catalog.Record, path string) (bool, error) {
	paths, _, err := hf.Masked(ctx, rec)
	return slices.ContainsFunc(paths, func(p string) bool { return Within(path, p) }), err
}

// A hiding holds the inputs of the function hidden, which computes the paths that are masked in a sandbox:
// secrets of the host, snapfs's own directories, and the policy's paths.
type hiding struct {
	// real are the secrets of the real trees.
	real SecretPaths
	// own are snapfs's state directories and the files of secrets that the sandbox's proxy has, which no policy
	// exposes; also and expose are the paths that the policy hides and exposes.
	own, also, expose []string
	// mounts are the host's mounts. roots are the sandbox's copies of its trees, "" for
	// overlays; a copy may hold files that the real tree no longer has.
	mounts []mount.Point
	roots  map[string]string
	// host looks up paths of the host; nil: hidden and later make their own.
	host *lookupCache
}

// lookupCache returns h.host, or a new lookupCache if that is nil.
func (h hiding) lookupCache() *lookupCache {
	if h.host == nil {
		return newLookupCache()
	}
	return h.host
}

// hidden returns the paths to mask in a sandbox: snapfs's state, secrets, and those that the policy hides. It leaves
// out exposed paths, except those in h.own. A directory that holds the workspace, such as ~/.codex with a worktree in
// it, it replaces by the other entries; see besides. home is the caller's home directory. hidden checks which paths
// exist before the mounts are made, which is much faster.
//
// A path that is a symbolic link on the host is also hidden at its target, because the sandbox could remove the link in
// its copy. Errors: that of listing a directory that holds the workspace.
func hidden(h hiding, home, workspace string) ([]string, error) {
	at := copies(h.roots)
	people, machine := h.real.people, h.real.machine
	if slices.ContainsFunc(slices.Collect(maps.Values(h.roots)), func(root string) bool { return root != "" }) {
		copied := findSecrets(home, at)
		people, machine = slices.Concat(people, copied.people), slices.Concat(machine, copied.machine)
	}
	paths := slices.Clone(people)
	for _, p := range machine {
		if at(p) == p || !empty(at(p)) { // an empty one of a copy stays empty, and a mask takes time
			paths = append(paths, p)
		}
	}
	host, others := h.lookupCache(), aliasesOf(h.mounts)
	everywhere := func(paths []string) []string {
		paths = host.followed(paths)
		return append(paths, others.of(paths...)...)
	}
	paths, beside, err := besides(everywhere(paths), home, workspace, at)
	for len(beside) > 0 && err == nil { // links among them lead elsewhere, even to another directory that holds the workspace
		paths = append(paths, beside...)
		targets := slices.DeleteFunc(everywhere(beside), func(p string) bool {
			return Within(p, workspace) || Within(home, p) || slices.Contains(paths, p)
		})
		targets, beside, err = besides(targets, home, workspace, at)
		paths = append(paths, targets...)
		beside = slices.DeleteFunc(beside, func(p string) bool { return slices.Contains(paths, p) })
	}
	if err != nil {
		return nil, err
	}
	asked := slices.Clone(h.also)
	for _, x := range h.expose {
		paths, asked = without(paths, x, at), without(asked, x, at)
	}
	paths = append(paths, everywhere(asked)...) // after the exposed paths, one of which may be the target of a link in asked
	paths = slices.DeleteFunc(paths, func(p string) bool { return slices.Contains(h.own, p) })
	paths = append(paths, everywhere(slices.Clone(h.own))...)
	return slices.DeleteFunc(paths, func(p string) bool { return Within(workspace, p) }), nil
}

// besides returns paths, the list of paths to mask, without the directories that hold the workspace, and in beside the
// other entries of these. It drops a directory that also holds home: a home directory is no secret as a whole. at maps a
// path to where it can be read. Errors: that of listing such a directory, which would be shown whole.
func besides(paths []string, home, workspace string, at func(string) string) (left, beside []string, err error) {
	left = make([]string, 0, len(paths))
	for _, p := range paths {
		switch {
		case !Within(workspace, p):
			left = append(left, p)
		case !Within(home, p):
			for _, other := range without([]string{p}, workspace, at) {
				if Within(workspace, other) { // without could not list it
					if _, err := os.ReadDir(at(other)); err != nil && !absent(err) {
						return nil, nil, errs.With("hiding what is beside the workspace "+workspace, other, err, "chmod u+r "+errs.Quoted(other), "move the workspace elsewhere")
					}
				}
				beside = append(beside, other)
			}
		}
	}
	return left, beside, nil
}

// without removes the path exposed, which the policy lets the sandbox see, and everything under it, from
// paths, the list of paths to mask. A masked directory that holds the exposed path is replaced by its other
// entries. at maps a path to where it can be read.
func without(paths []string, exposed string, at func(string) string) []string {
	var left []string
	for _, p := range paths {
		for p != exposed && Within(exposed, p) { // replace p by its entries, except the way to exposed
			rest := strings.TrimPrefix(exposed, strings.TrimSuffix(p, "/")+"/")
			next, _, _ := strings.Cut(rest, "/")
			entries, err := os.ReadDir(at(p))
			if err != nil {
				break
			}
			for _, e := range entries {
				if e.Name() != next {
					left = append(left, filepath.Join(p, e.Name()))
				}
			}
			p = filepath.Join(p, next)
		}
		if !Within(p, exposed) {
			left = append(left, p)
		}
	}
	return left
}

// empty reports whether a file or directory with a secret's path has no contents, so that a mask over it is
// not needed.
func empty(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return err == nil && info.Size() == 0
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// absent reports whether an error of looking up a secret's path says that the path does not exist.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// homes returns the home directories whose secrets are hidden: the caller's by HOME and by /etc/passwd, /root and
// those in /home, and for root those of all accounts. If /home cannot be listed, the sandbox's processes, which run
// as the caller, cannot enter the others either. The first people of found are of accounts that somebody can log in
// to, so that secrets may appear there later.
func homes(home string) (found []string, people int) {
	found = []string{"/root"}
	if entries, err := os.ReadDir("/home"); err == nil {
		for _, e := range entries {
			found = append(found, filepath.Join("/home", e.Name()))
		}
	}
	if home != "" && !slices.Contains(found, home) {
		found = append(found, home)
	}
	accounts, _ := vfs.ReadFile("/etc/passwd") // optional
	return accountHomes(found, string(accounts), strconv.Itoa(os.Geteuid()), Privileged())
}

// accountHomes adds to found, the home directories of people, those that accounts, a text as in passwd(5), has for the
// user id uid, and with all those of every account. people is as in [homes].
func accountHomes(found []string, accounts, uid string, all bool) (homes []string, people int) {
	people = len(found)
	for line := range strings.Lines(accounts) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 7 || !filepath.IsAbs(f[5]) || !all && f[2] != uid {
			continue
		}
		h := filepath.Clean(f[5])
		programs := all && (Within(h, "/usr") || h == "/bin" || h == "/sbin") // homes of system accounts with many entries and no secrets
		if h == "/" || programs || underReplaced(h) || slices.Contains(found, h) {
			continue
		}
		if all && noLogin(f[6]) {
			found = append(found, h)
		} else {
			found = slices.Insert(found, people, h)
			people++
		}
	}
	return found, people
}

// noLogin reports whether a shell in passwd(5) marks an account that nobody can log in to.
func noLogin(shell string) bool {
	return slices.Contains([]string{"nologin", "false", "sync", "halt", "shutdown"}, filepath.Base(shell))
}
