package promote

import (
	"path"
	"strings"
	"sync"
)

// A Place is where something runs by itself later, or says who may do what:
// what changes there is held back until it is allowed by name.
type Place struct {
	// Why completes "PATH: ".
	Why string
	// Patterns name files, and directories with all that lies in them. One that
	// begins with a slash is a path of the machine, any other may lie at any
	// depth. An element may hold the wildcards of [path.Match]. Case does not
	// count, as filesystems can be told to ignore it; but it does in "HEAD".
	Patterns []string
}

// Places are all of them. docs/held.md prints this list.
func Places() []Place {
	return []Place{
		{"it belongs to a repository, whose hooks and settings run programs", []string{
			".git", "*.git", "HEAD", ".gitconfig", ".config/git", "/etc/gitconfig", ".hg", ".hgrc", ".config/hg", ".svn", ".subversion",
			".bzr", ".jj", ".jjconfig.toml", ".config/jj", "_darcs", ".sl",
		}},
		{"it is a hook, which runs at the next commit or push", []string{
			".githooks", ".husky", ".huskyrc*", "lefthook.y*ml", ".lefthook.y*ml", "lefthook-local.y*ml", ".lefthook", ".lefthook-local.y*ml",
			".pre-commit-config.y*ml", ".overcommit.yml", ".git-hooks", ".captainhook.json", "captainhook.json", "grumphp.y*ml",
		}},
		{"a shell reads it when it starts or ends", []string{
			".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".bashrc.d", ".bash.d",
			".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zsh", ".zshrc.d", ".config/zsh", ".oh-my-zsh", ".zpreztorc", ".p10k.zsh",
			".kshrc", ".mkshrc", ".shrc", ".shinit", ".ashrc", ".yashrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".xonshrc",
			".config/bash", ".config/fish", ".config/nushell", ".config/xonsh", ".config/elvish", ".config/powershell", ".config/starship.toml",
			".local/share/bash-completion", ".local/share/fish", ".bash_it",
			"/etc/profile", "/etc/profile.d", "/etc/bash.bash*", "/etc/bashrc", "/etc/bash", "/etc/bash_completion.d", "/etc/zsh*", "/etc/fish",
			"/etc/csh*", "/etc/ksh*", "/etc/mkshrc", "/etc/inputrc", "/etc/skel", "/etc/environment", "/etc/environment.d", ".config/environment.d",
			".screenrc", ".tmux.conf", ".config/tmux", "/etc/tmux.conf", "/etc/screenrc",
		}},
		{"it runs at a time that it names", []string{
			"/etc/crontab", "/etc/cron*", "/etc/anacrontab", "/var/spool/cron", "/var/spool/anacron", "/var/spool/at", "/var/spool/atjobs",
			"/var/spool/fcron", "/etc/fcron*", ".crontab",
		}},
		{"it is run by the system's or the user's services", []string{
			"/etc/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd", "/lib/systemd", "/run/systemd", "/usr/share/systemd", "/usr/share/user-tmpfiles.d",
			".config/systemd", ".local/share/systemd", ".config/user-tmpfiles.d", "/etc/tmpfiles.d", "/usr/lib/tmpfiles.d", "/lib/tmpfiles.d", "/run/tmpfiles.d",
			"/etc/init.d", "/etc/rc*", "/etc/inittab", "/etc/init", "/etc/runit", "/etc/sv", "/etc/service", "/etc/s6*", "/etc/dinit.d", "/etc/local.d", "/etc/conf.d",
			"/etc/xinetd*", "/etc/inetd.conf", "/etc/dbus-1", "/usr/share/dbus-1", "/usr/local/share/dbus-1", ".local/share/dbus-1",
			"/etc/binfmt.d", "/usr/lib/binfmt.d", "/etc/modules*", "/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/usr/lib/modules", "/lib/modules",
			"/etc/sysctl.conf", "/etc/sysctl.d", "/usr/lib/sysctl.d", "/etc/supervisor*",
		}},
		{"it runs when a device appears, a network changes or the machine starts", []string{
			"/etc/udev", "/usr/lib/udev", "/lib/udev", "/run/udev", "/usr/local/lib/udev", "/etc/acpi", "/etc/NetworkManager/dispatcher.d",
			"/usr/lib/NetworkManager/dispatcher.d", "/etc/network", "/etc/networkd-dispatcher", "/etc/dhcp*", "/etc/ppp", "/etc/wpa_supplicant",
			"/boot", "/efi", "/etc/grub.d", "/etc/default/grub*", "/etc/kernel", "/usr/lib/kernel", "/etc/initramfs-tools", "/usr/share/initramfs-tools",
			"/etc/dracut*", "/usr/lib/dracut", "/etc/mkinitcpio*", "/etc/update-motd.d", "/etc/fstab", "/etc/auto*",
		}},
		{"it runs when a package is installed or a log is turned over", []string{
			"/etc/apt/apt.conf*", "/etc/dpkg", "/etc/dnf", "/etc/yum*", "/etc/pacman*", "/usr/share/libalpm/hooks", "/etc/zypp", "/etc/apk",
			"/etc/logrotate*", "/var/lib/dpkg/info", "/var/lib/dpkg/triggers",
		}},
		{"it says who may log in from where", []string{
			".ssh", "/etc/ssh", "/usr/lib/ssh*", ".rhosts", ".shosts", "/etc/hosts.equiv", "/etc/dropbear", ".k5login", ".k5users",
		}},
		{"it says who is who, and who may act for whom", []string{
			"/etc/sudoers", "/etc/sudoers.d", "/etc/sudo*.conf", "/usr/local/etc/sudoers*", "/etc/doas*", "/etc/polkit-1", "/usr/share/polkit-1", "/etc/pam.d",
			"/etc/pam.conf", "/usr/lib/pam.d", "/etc/security", "/usr/lib/security", "/lib/security", ".pam_environment",
			"/etc/passwd*", "/etc/shadow*", "/etc/group*", "/etc/gshadow*", "/etc/subuid*", "/etc/subgid*", "/etc/nsswitch.conf", "/etc/login.defs", "/etc/securetty",
		}},
		{"it is loaded into other programs", []string{"/etc/ld.so.*", "/etc/ld-musl-*"}},
		{"the desktop reads it when somebody logs in", []string{
			".config/autostart", ".config/autostart-scripts", "/etc/xdg/autostart", "/usr/share/autostart", ".config/plasma-workspace", ".kde*/Autostart", ".xinitrc",
			".xsession*", ".xprofile", ".xserverrc", "/etc/X11", ".config/openbox", ".config/i3", ".i3", ".config/sway", ".config/hypr", ".config/awesome",
			".config/bspwm", ".config/qtile", ".config/river", ".config/niri", ".config/labwc", ".xmonad", ".config/xmonad", ".config/xfce4",
			"/etc/xdg/openbox", "/etc/gdm*", "/etc/lightdm", "/etc/sddm*", "/usr/share/xsessions", "/usr/share/wayland-sessions",
			".local/share/applications", ".config/mimeapps.list",
		}},
		{"an editor or a tool for developers runs what it says when it is opened there", []string{
			".vscode", "*.code-workspace", ".idea", ".fleet", ".zed", ".vs", ".devcontainer", ".devcontainer.json", ".nova", "*.sublime-project", ".run",
			".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", "_exrc", ".nexrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".local.vimrc", ".vim", ".config/nvim", ".config/vim",
			".local/share/nvim", "/etc/vim", "/etc/vimrc*", "/etc/xdg/nvim", ".emacs", ".emacs.el", ".emacs.d", ".config/emacs", ".config/doom", ".doom.d", ".spacemacs*",
			".dir-locals.el", ".dir-locals-2.el", "/etc/emacs*", ".helix", ".config/helix", ".config/kak", ".kakrc", ".config/Code", ".config/VSCodium", ".config/zed",
			".vscode-server", ".nanorc", ".joerc", ".lesskey", ".lessfilter",
			".envrc", ".direnvrc", ".config/direnv", ".autoenv*", ".mise*.toml", "mise*.toml", ".mise", ".config/mise", ".rtx.toml",
			".gdbinit", ".gdbearlyinit", ".config/gdb", ".lldbinit*", ".pdbrc", ".irbrc", ".pryrc", ".Rprofile", ".Renviron", ".pythonrc*", "sitecustomize.py",
			"usercustomize.py", ".ipython", ".julia/config", ".ghci", ".psqlrc", ".sqliterc", ".erlang", ".iex.exs", ".ocamlinit", ".octaverc", ".perldb",
			".cursor", ".claude", ".claude.json", ".codex", ".gemini", ".windsurf", ".mcp.json", ".aider.conf.yml", ".continue",
		}},
		{"it says what a build server runs", []string{
			".github/workflows", ".github/actions", ".gitlab-ci*", ".gitlab", ".circleci", "Jenkinsfile*", "*.jenkinsfile", ".jenkins", ".travis.y*ml", "azure-pipelines*",
			".azure-pipelines", ".azuredevops", "bitbucket-pipelines.yml", ".drone.y*ml", ".drone.star", ".drone.jsonnet", ".woodpecker*", ".buildkite", ".cirrus.*", "appveyor.y*ml",
			".appveyor*", ".teamcity", ".semaphore", "codefresh.y*ml", ".codefresh", "cloudbuild.y*ml", "cloudbuild.json", "buildspec.y*ml", ".forgejo", ".gitea", ".builds",
			".build.yml", ".tekton", ".concourse", "wercker.yml", ".gocd.*", "*.gocd.*", ".screwdriver*", "screwdriver.yaml", ".harness", ".kokoro", ".prow*",
			".zuul*", "zuul.d", "zuul.yaml", ".packit.y*ml", ".onedev-buildspec.yml", ".dagger",
		}},
		{"snapfs runs the commands that it names", []string{"snapfs.toml"}},
	}
}

// A rule is one pattern of a Place, taken apart.
type rule struct {
	elements []string
	why      string
	// begin and end are what the first element has before its first wildcard and
	// after its last: most names are told apart by them.
	begin, end string
}

// rules are the patterns of Places by how they begin; made once, when the first
// change is looked at.
type rules struct {
	anchored map[string][]rule // from the root of the machine, by their first element
	named    map[string][]rule // at any depth, by their first element
	// globs may lie at any depth and have a wildcard in the first element: by what
	// that begins with, 0 for a wildcard.
	globs [256][]rule
}

var heldRules = sync.OnceValue(func() *rules {
	all := &rules{anchored: map[string][]rule{}, named: map[string][]rule{}}
	for _, place := range Places() {
		for _, pattern := range place.Patterns {
			text, anchored := strings.CutPrefix(fold(pattern), "/")
			r := rule{elements: strings.Split(text, "/"), why: place.Why}
			first := r.elements[0]
			wild := strings.ContainsAny(first, "*?[")
			if wild {
				r.begin = first[:strings.IndexAny(first, "*?[")]
				r.end = first[strings.LastIndexAny(first, "*?]")+1:]
			}
			switch {
			case anchored:
				all.anchored[first] = append(all.anchored[first], r)
			case wild:
				var begin byte
				if r.begin != "" {
					begin = r.begin[0]
				}
				all.globs[begin] = append(all.globs[begin], r)
			default:
				all.named[first] = append(all.named[first], r)
			}
		}
	}
	return all
})

// fold makes a path one that case does not tell apart; but "head" is a program,
// and "HEAD" makes its directory a repository.
func fold(path string) string {
	if path == "HEAD" || strings.HasSuffix(path, "/HEAD") {
		return strings.ToLower(path[:len(path)-4]) + "HEAD"
	}
	return strings.ToLower(path)
}

// find says why an absolute path is held back, and how many of its elements the
// pattern covers. A link holds for its name alone what a pattern says of places
// beneath it: it would lead them elsewhere.
func (all *rules) find(abs string, link bool) (why string, depth int) {
	elements := strings.Split(strings.Trim(fold(abs), "/"), "/")
	for _, r := range all.anchored[elements[0]] {
		if r.covers(elements, link) {
			return r.why, min(len(r.elements), len(elements))
		}
	}
	for i := range elements {
		if r := all.at(elements[i:], link); r != nil {
			return r.why, min(i+len(r.elements), len(elements))
		}
	}
	return "", 0
}

// at is the rule that begins with the first of these elements and covers them.
func (all *rules) at(elements []string, link bool) *rule {
	first := elements[0]
	if first == "" {
		return nil
	}
	for _, list := range [...][]rule{all.named[first], all.globs[first[0]], all.globs[0]} {
		for i := range list {
			if r := &list[i]; r.covers(elements, link) {
				return r
			}
		}
	}
	return nil
}

// plain reports whether no rule begins in a directory's path that could end in it,
// or beneath it: what lies there is then told by its own name.
func (all *rules) plain(dir string) bool {
	elements := strings.Split(strings.Trim(strings.ToLower(dir), "/"), "/")
	if elements[0] == "" {
		return false // beneath the root rules begin that hold there alone
	}
	for i := range all.anchored[elements[0]] {
		if all.anchored[elements[0]][i].covers(elements, true) {
			return false
		}
	}
	for i := range elements {
		if all.at(elements[i:], true) != nil {
			return false
		}
	}
	return true
}

// A finder finds the rules for one path after the other: most are neighbours of
// the one before, in a plain directory.
type finder struct {
	*rules
	dir     string
	isPlain bool
}

func (f *finder) find(abs string, link bool) (why string, depth int) {
	dir, name := path.Split(abs)
	if dir != f.dir {
		f.dir, f.isPlain = dir, f.plain(dir)
	}
	if !f.isPlain {
		return f.rules.find(abs, link)
	}
	if r := f.at([]string{fold(name)}, link); r != nil {
		return r.why, strings.Count(dir, "/")
	}
	return "", 0
}

func (r *rule) covers(elements []string, link bool) bool {
	if len(elements) < len(r.elements) && !link {
		return false
	}
	if !strings.HasPrefix(elements[0], r.begin) || !strings.HasSuffix(elements[0], r.end) {
		return false
	}
	for i := range min(len(r.elements), len(elements)) {
		if ok, err := path.Match(r.elements[i], elements[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
