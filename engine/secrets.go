package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// secretsOfHome are where programs keep keys and tokens in a home directory.
func secretsOfHome() []string {
	return []string{
		".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker/config.json", ".config/gcloud", ".config/gh", ".config/hub",
		".config/rclone", ".config/sops", ".config/op", ".config/doctl", ".config/containers/auth.json", ".config/git/credentials",
		".netrc", ".git-credentials", ".npmrc", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml",
		".gem/credentials", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".terraform.d/credentials.tfrc.json",
		".vault-token", ".pgpass", ".my.cnf", ".password-store", ".local/share/keyrings", ".mozilla", ".thunderbird",
		".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".bash_history", ".zsh_history", ".local/share/fish/fish_history",
		".python_history", ".psql_history", ".node_repl_history", ".claude", ".codex", ".config/github-copilot",
	}
}

// secretsOfSystem are where a machine keeps its own keys.
func secretsOfSystem() []string {
	return []string{
		"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private",
		"/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/krb5.keytab", "/var/lib/systemd/credential.secret",
		"/etc/kubernetes", "/var/lib/kubelet", "/etc/letsencrypt", "/etc/docker/key.json", "/boot/grub/user.cfg",
	}
}

// hidden lists what a sandbox sees nothing of: secrets, and snapfs's own
// state. What is exposed is left out of it, and so is what holds the
// workspace, which was asked for by name. at says where the sandbox's copy of a
// path can be looked at: what is not there needs no mask, and looking for it
// here is much cheaper than in a filesystem that was just mounted.
func hidden(home, workspace string, also, expose []string, at func(string) string) []string {
	paths := slices.Clone(also)
	for _, h := range homes(home) {
		paths = append(paths, present(h, secretsOfHome(), at)...)
	}
	for _, p := range secretsOfSystem() {
		if _, err := os.Lstat(at(p)); !absent(err) {
			paths = append(paths, p)
		}
	}
	return slices.DeleteFunc(paths, func(p string) bool {
		return within(workspace, p) || slices.ContainsFunc(expose, func(x string) bool { return within(p, x) || within(x, p) })
	})
}

// present picks what of names, relative to home, is there: by one listing of
// home, and a look at each name further down.
func present(home string, names []string, at func(string) string) []string {
	dir, err := os.Open(at(home))
	if absent(err) {
		return nil
	}
	var entries []string
	if err == nil {
		entries, err = dir.Readdirnames(-1)
		dir.Close()
	}
	var found []string
	for _, name := range names {
		first, _, deeper := strings.Cut(name, "/")
		path := filepath.Join(home, name)
		if err == nil && !slices.Contains(entries, first) {
			continue
		}
		if deeper {
			if _, err := os.Lstat(at(path)); absent(err) {
				continue
			}
		}
		found = append(found, path)
	}
	return found
}

// absent: the error says that there is no such path.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// homes are the home directories whose secrets are hidden: that of the caller
// and those beneath /home and /root. Where /home cannot be listed, nobody who
// runs as the caller can enter the others either.
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
	return found
}

// Environ filters the variables a command gets: what looks like a secret, or
// leads to an agent or a daemon of the real machine, is left out, unless it is
// named in pass. The order is kept.
func Environ(env, pass []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return secretVariable(name) && !slices.Contains(pass, name)
	})
}

func secretVariable(name string) bool {
	name = strings.ToUpper(name)
	switch name {
	case "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "DISPLAY", "WAYLAND_DISPLAY",
		"DOCKER_HOST", "CONTAINER_HOST", "KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "NETRC", "PGPASSFILE", "VAULT_ADDR",
		"SUDO_ASKPASS", "SSH_ASKPASS", "GIT_ASKPASS", "SNAPFS_HOME":
		return true
	}
	for _, mark := range []string{
		"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "PRIVATE_KEY",
		"ACCESS_KEY", "AUTH_KEY", "SESSION_KEY", "_PAT", "COOKIE",
	} {
		if strings.HasSuffix(name, mark) || strings.Contains(name, mark+"_") {
			return true
		}
	}
	return strings.HasPrefix(name, "AWS_") && name != "AWS_REGION" && name != "AWS_DEFAULT_REGION"
}
