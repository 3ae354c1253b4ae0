package hostfs

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/internal/mount"
)

// A SecretPaths is for the secrets of a machine: where they lie, those of people and
// those of the machine itself.
type SecretPaths struct{ people, machine []string }

// SearchSecrets looks for secrets in the real trees, beside whatever comes before the
// answer is wanted: it takes as long as a fifth of making a sandbox.
func SearchSecrets() func() SecretPaths {
	answer := make(chan SecretPaths, 1)
	go func() { answer <- findSecrets(userHome(), func(path string) string { return path }) }()
	return sync.OnceValue(func() SecretPaths { return <-answer })
}

// searched looks for secrets. at says where a path can be looked at.
func findSecrets(home string, at func(string) string) SecretPaths {
	var s SecretPaths
	for _, h := range homes(home) {
		s.people = append(s.people, present(h, secretsOfHome(), at)...)
	}
	s.machine = present("/etc", secretsOfEtc(), at)
	for _, p := range secretsOfSystem() {
		if _, err := os.Lstat(at(p)); !absent(err) {
			s.machine = append(s.machine, p)
		}
	}
	return s
}

// userHome is the caller's home directory, or "".
func userHome() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return home
}

// A hiding is what decides of what a sandbox sees nothing.
type hiding struct {
	// real is what was found in the real trees.
	real SecretPaths
	// own is snapfs's state; also and expose are asked for by the user.
	own, also, expose []string
	// mounts are those of the machine, roots the sandbox's copies of its trees, ""
	// for overlays: in a copy there can be what is not in the real tree any more.
	mounts []mount.Point
	roots  map[string]string
}

// hidden lists what a sandbox sees nothing of: snapfs's state, secrets, and what
// is to be hidden besides. Of the last two what is exposed is left out; of all,
// what holds the workspace, which was asked for by name. What is not there needs
// no mask, and looking for it beforehand is much cheaper than in a filesystem that
// was just mounted.
//
// A secret that is a symbolic link on the real machine is hidden where it leads
// to as well: in its copy the sandbox can remove the link.
func hidden(h hiding, home, workspace string) []string {
	at := copies(h.roots)
	people, machine := h.real.people, h.real.machine
	if slices.ContainsFunc(slices.Collect(maps.Values(h.roots)), func(root string) bool { return root != "" }) {
		copied := findSecrets(home, at)
		people, machine = slices.Concat(people, copied.people), slices.Concat(machine, copied.machine)
	}
	paths := slices.Clone(people)
	for _, p := range machine {
		if !empty(at(p)) { // a mask costs time
			paths = append(paths, p)
		}
	}
	paths = append(slices.Clone(h.also), followed(paths)...)
	paths = append(paths, otherPaths(paths, h.mounts)...)
	for _, x := range h.expose {
		paths = without(paths, x, at)
	}
	paths = append(paths, h.own...)
	paths = append(paths, otherPaths(h.own, h.mounts)...)
	return slices.DeleteFunc(paths, func(p string) bool { return Within(workspace, p) })
}

// followed adds where the real paths among those lead to, when they, or a
// directory above them, are symbolic links. None is listed twice.
func followed(paths []string) []string {
	slices.Sort(paths)
	paths = slices.Compact(paths)
	real := map[string]string{} // where the directories lead to
	for _, p := range paths[:len(paths):len(paths)] {
		dir, name := filepath.Split(p)
		to, ok := real[dir]
		if !ok {
			if to, _ = filepath.EvalSymlinks(dir); to == "" {
				to = filepath.Clean(dir)
			}
			real[dir] = to
		}
		path := filepath.Join(to, name)
		if _, err := os.Readlink(path); err == nil {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				continue
			}
		}
		if path != p && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// without takes what is exposed out of the list: it, all beneath it, and where it
// lies in a hidden directory nothing else of that directory.
func without(paths []string, exposed string, at func(string) string) []string {
	var left []string
	for _, p := range paths {
		for p != exposed && Within(exposed, p) { // all of it but the way to what is exposed
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

// elsewhere lists the other paths by which what lies at paths can be reached,
// because the same filesystem, or a part of it, is mounted twice.
func otherPaths(paths []string, mounts []mount.Point) []string {
	count := map[uint64]int{}
	for _, m := range mounts {
		count[m.Dev]++
	}
	s := surveyor{mounts: mounts}
	var others []string
	for _, p := range paths {
		on := s.holding(p)
		if on == nil || count[on.Dev] < 2 {
			continue
		}
		place := filepath.Join(on.Root, strings.TrimPrefix(p, on.Path))
		for i := range mounts {
			m := &mounts[i]
			if m != on && m.Dev == on.Dev && Within(place, m.Root) {
				others = append(others, filepath.Join(m.Path, strings.TrimPrefix(place, m.Root)))
			}
		}
	}
	return others
}

// present picks what of names, relative to dir, is there: by one listing of dir,
// and of each directory in it of which several names are looked for.
func present(dir string, names []string, at func(string) string) []string {
	if len(names) == 1 {
		path := filepath.Join(dir, names[0])
		if _, err := os.Lstat(at(path)); absent(err) {
			return nil
		}
		return []string{path}
	}
	d, err := os.Open(at(dir))
	if absent(err) || err != nil && !Privileged() && !enterable(at(dir)) { // nor can a command, which runs as this user
		return nil
	}
	var entries []string
	if err == nil {
		entries, err = d.Readdirnames(-1)
		d.Close()
	}
	listed := err == nil
	slices.Sort(entries)
	var found []string
	deeper := map[string][]string{}
	for _, name := range names {
		first, rest, deep := strings.Cut(name, "/")
		if _, there := slices.BinarySearch(entries, first); listed && !there {
			continue
		}
		if deep {
			deeper[first] = append(deeper[first], rest)
		} else {
			found = append(found, filepath.Join(dir, name))
		}
	}
	for first, rest := range deeper {
		found = append(found, present(filepath.Join(dir, first), rest, at)...)
	}
	return found
}

// empty: there is nothing to hide in a file or directory.
func empty(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return err == nil && info.Size() == 0
	}
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// absent: the error says that there is no such path.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// homes are the home directories whose secrets are hidden: that of the caller,
// those beneath /home and /root, and, for root, who can read them, those of all
// accounts of the machine. Where /home cannot be listed, nobody who runs as the
// caller can enter the others either.
func homes(home string) []string {
	found := []string{"/root"}
	if entries, err := os.ReadDir("/home"); err == nil {
		for _, e := range entries {
			found = append(found, filepath.Join("/home", e.Name()))
		}
	}
	if home != "" && !slices.Contains(found, home) {
		found = append(found, home)
	}
	if !Privileged() {
		return found
	}
	accounts, _ := os.ReadFile("/etc/passwd") // a machine may have none
	for line := range strings.Lines(string(accounts)) {
		f := strings.Split(line, ":")
		if len(f) < 7 || !filepath.IsAbs(f[5]) {
			continue
		}
		h := filepath.Clean(f[5])
		programs := Within(h, "/usr") || h == "/bin" || h == "/sbin" // many entries, and nobody's home
		if h != "/" && !programs && !underReplaced(h) && !slices.Contains(found, h) {
			found = append(found, h)
		}
	}
	return found
}

// Environ filters the variables a command gets: what looks like a secret, or
// leads to an agent or a daemon of the real machine, is left out, unless it is
// named in pass. The order is kept.
func Environ(env, pass []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return secretVariable(name, value) && !slices.Contains(pass, name)
	})
}

func secretVariable(name, value string) bool {
	name = strings.ToUpper(name)
	switch name {
	case "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS",
		"XAUTHORITY", "DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "SWAYSOCK", "I3SOCK", "HYPRLAND_INSTANCE_SIGNATURE",
		"PULSE_SERVER", "PIPEWIRE_REMOTE", "GNOME_KEYRING_CONTROL", "LPASS_AGENTSOCK", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID",
		"TMUX", "STY", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET", "NVIM", "NVIM_LISTEN_ADDRESS",
		"VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "VSCODE_GIT_IPC_AUTH_TOKEN",
		"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST", "KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS",
		"KRB5CCNAME", "NETRC", "PGPASSFILE", "VAULT_ADDR", "BW_SESSION", "REDISCLI_AUTH", "SSHPASS", "JWT",
		"SUDO_ASKPASS", "SSH_ASKPASS", "GIT_ASKPASS", "SNAPFS_HOME":
		return true
	}
	for _, mark := range []string{
		"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "PRIVATE_KEY",
		"ACCESS_KEY", "AUTH_KEY", "SESSION_KEY", "_PAT", "COOKIE", "_PASS", "_PWD", "_KEY", "_AUTH", "_DSN", "_JWT", "CONNECTION_STRING",
	} {
		if strings.HasSuffix(name, mark) || strings.HasSuffix(name, mark+"S") || strings.Contains(name, mark+"_") || strings.Contains(name, mark+"S_") {
			return true
		}
	}
	return strings.HasPrefix(name, "AWS_") && name != "AWS_REGION" && name != "AWS_DEFAULT_REGION" ||
		strings.HasPrefix(name, "OP_SESSION_") || passwordInURL(value)
}

// passwordInURL: as in scheme://user:password@host.
func passwordInURL(value string) bool {
	for {
		_, rest, ok := strings.Cut(value, "://")
		if !ok {
			return false
		}
		authority := rest
		if end := strings.IndexAny(rest, "/?# \t\n"); end >= 0 {
			authority = rest[:end]
		}
		if user, _, ok := strings.Cut(authority, "@"); ok {
			if _, password, ok := strings.Cut(user, ":"); ok && password != "" {
				return true
			}
		}
		value = rest
	}
}
