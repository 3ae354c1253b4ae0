package approval

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/diff"
)

// A Rule names files that run by themselves later or that grant rights. A user must approve a change of one
// before a promotion.
type Rule struct {
	// Why is the reason, to be printed after "PATH: ".
	Why string
	// Patterns match files, and directories with everything in them. A pattern that
	// begins with a slash is an absolute path, any other matches at any depth. Elements
	// may use the wildcards of [path.Match]. Case does not matter, since a filesystem may
	// ignore it; only "HEAD" must be upper case.
	Patterns []string
	// Place is where the patterns without a leading slash hold.
	Place Place
}

// A Place says in which directories the file patterns of a [Rule], which say what needs approval, apply.
type Place int

// Directories in which the patterns of a rule apply. OutsidePackages leaves out the PackageDirs of the
// target: build servers and editors read settings at the top of a project only, never in an installed
// package, whose code runs anyway. A package directory inside of a place that a rule names is no such
// directory. OutsideNewEnvironments leaves out Python virtual environments that the sandbox created as a whole,
// which are a result like an installed package. One that existed before is used already.
const (
	Everywhere Place = iota
	OutsidePackages
	OutsideNewEnvironments
)

// PackageDirs are the names of directories that contain installed packages, as patterns of [path.Match]. The last
// two are those of Go's and Cargo's caches.
var PackageDirs = []string{
	"node_modules", "bower_components", "jspm_packages", "site-packages", "dist-packages", "vendor", "*@v[0-9]*",
	"*.*-" + hash,
}

// hash matches the 16 hexadecimal digits at the end of a directory's name in Cargo's cache. It is a constant, since
// PackageDirs would otherwise be computed at each start of snapfs.
const (
	hash    = fourHex + fourHex + fourHex + fourHex
	fourHex = "[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
)

// isPackageDir reports whether an element of a path is the name of a directory with installed packages, by
// [PackageDirs].
func isPackageDir(element string) bool {
	return slices.ContainsFunc(PackageDirs, func(pattern string) bool {
		is, err := path.Match(pattern, element)
		return is && err == nil
	})
}

// Rules returns all rules that say by name which changed files need approval. docs/held.md prints this list.
func Rules() []Rule { return slices.Concat(machineRules(), toolRules()) }

// machineRules returns the rules of approval for files that a shell, the machine or a login runs or reads,
// such as .bashrc: their changes are not promoted until the user approves them.
func machineRules() []Rule {
	return []Rule{
		{"it belongs to a repository, whose hooks and settings run programs", []string{
			".git", "*.git", "HEAD", ".gitconfig", ".config/git", "/etc/gitconfig", ".hg", ".hgrc", ".config/hg", ".svn", ".subversion",
			".bzr", ".jj", ".jjconfig.toml", ".config/jj", "_darcs", ".sl",
		}, Everywhere},
		{"it is a hook, which runs at the next commit or push", []string{
			".githooks", ".husky", ".huskyrc*", "lefthook.y*ml", ".lefthook.y*ml", "lefthook-local.y*ml", ".lefthook", ".lefthook-local.y*ml",
			".pre-commit-config.y*ml", ".overcommit.yml", ".git-hooks", ".captainhook.json", "captainhook.json", "grumphp.y*ml",
		}, OutsidePackages},
		{"a shell reads it when it starts or ends", []string{
			".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".bashrc.d", ".bash.d",
			".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zsh", ".zshrc.d", ".config/zsh", ".oh-my-zsh", ".zpreztorc", ".p10k.zsh",
			".kshrc", ".mkshrc", ".shrc", ".shinit", ".ashrc", ".yashrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".xonshrc",
			".config/bash", ".config/fish", ".config/nushell", ".config/xonsh", ".config/elvish", ".config/powershell", ".config/starship.toml",
			".local/share/bash-completion", ".local/share/fish", ".bash_it", ".cargo/env*", ".nvm/nvm.sh", ".asdf/asdf.*", ".fzf.*sh", ".sdkman/bin",
			"/etc/profile", "/etc/profile.d", "/etc/bash.bash*", "/etc/bashrc", "/etc/bash", "/etc/bash_completion.d", "/etc/zsh*", "/etc/fish",
			"/etc/csh*", "/etc/ksh*", "/etc/mkshrc", "/etc/inputrc", "/etc/skel", "/etc/environment", "/etc/environment.d", ".config/environment.d",
			".screenrc", ".tmux.conf", ".config/tmux", "/etc/tmux.conf", "/etc/screenrc",
		}, OutsidePackages},
		{"it runs on a schedule", []string{
			"/etc/crontab", "/etc/cron*", "/etc/anacrontab", "/var/spool/cron", "/var/spool/anacron", "/var/spool/at", "/var/spool/atjobs",
			"/var/spool/fcron", "/etc/fcron*", ".crontab",
		}, OutsidePackages},
		{"system or user services run it", []string{
			"/etc/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd", "/lib/systemd", "/run/systemd", "/usr/share/systemd", "/usr/share/user-tmpfiles.d",
			".config/systemd", ".local/share/systemd", ".config/user-tmpfiles.d", "/etc/tmpfiles.d", "/usr/lib/tmpfiles.d", "/lib/tmpfiles.d", "/run/tmpfiles.d",
			"/etc/init.d", "/etc/rc*", "/etc/inittab", "/etc/init", "/etc/runit", "/etc/sv", "/etc/service", "/etc/s6*", "/etc/dinit.d", "/etc/local.d", "/etc/conf.d",
			"/etc/xinetd*", "/etc/inetd.conf", "/etc/dbus-1", "/usr/share/dbus-1", "/usr/local/share/dbus-1", ".local/share/dbus-1",
			"/etc/binfmt.d", "/usr/lib/binfmt.d", "/etc/modules*", "/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/usr/lib/modules", "/lib/modules",
			"/etc/sysctl.conf", "/etc/sysctl.d", "/usr/lib/sysctl.d", "/etc/supervisor*",
		}, OutsidePackages},
		{"it runs when a device appears, a network changes or the machine starts", []string{
			"/etc/udev", "/usr/lib/udev", "/lib/udev", "/run/udev", "/usr/local/lib/udev", "/etc/acpi", "/etc/NetworkManager/dispatcher.d",
			"/usr/lib/NetworkManager/dispatcher.d", "/etc/network", "/etc/networkd-dispatcher", "/etc/dhcp*", "/etc/ppp", "/etc/wpa_supplicant",
			"/boot", "/efi", "/etc/grub.d", "/etc/default/grub*", "/etc/kernel", "/usr/lib/kernel", "/etc/initramfs-tools", "/usr/share/initramfs-tools",
			"/etc/dracut*", "/usr/lib/dracut", "/etc/mkinitcpio*", "/etc/update-motd.d", "/etc/fstab", "/etc/auto*",
		}, Everywhere},
		{"it runs when a package is installed or a log is rotated", []string{
			"/etc/apt/apt.conf*", "/etc/dpkg", "/etc/dnf", "/etc/yum*", "/etc/pacman*", "/usr/share/libalpm/hooks", "/etc/zypp", "/etc/apk",
			"/etc/logrotate*",
		}, Everywhere},
		{"it is the package database, with scripts that run when a package changes", []string{
			"/var/lib/dpkg", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/lib/pacman", "/lib/apk/db", "/usr/lib/apk/db",
		}, Everywhere},
		{"it controls who may log in", []string{
			".ssh", "/etc/ssh", "/usr/lib/ssh*", ".rhosts", ".shosts", "/etc/hosts.equiv", "/etc/dropbear", ".k5login", ".k5users",
		}, Everywhere},
		{"it controls accounts and privileges", []string{
			"/etc/sudoers", "/etc/sudoers.d", "/etc/sudo*.conf", "/usr/local/etc/sudoers*", "/etc/doas*", "/etc/polkit-1", "/usr/share/polkit-1", "/etc/pam.d",
			"/etc/pam.conf", "/usr/lib/pam.d", "/etc/security", "/usr/lib/security", "/lib/security", ".pam_environment",
			"/etc/passwd*", "/etc/shadow*", "/etc/group*", "/etc/gshadow*", "/etc/subuid*", "/etc/subgid*", "/etc/nsswitch.conf", "/etc/login.defs", "/etc/securetty",
		}, Everywhere},
		{"the desktop runs it at login", []string{
			".config/autostart", ".config/autostart-scripts", "/etc/xdg/autostart", "/usr/share/autostart", ".config/plasma-workspace", ".kde*/Autostart", ".xinitrc",
			".xsession*", ".xprofile", ".xserverrc", "/etc/X11", ".config/openbox", ".config/i3", ".i3", ".config/sway", ".config/hypr", ".config/awesome",
			".config/bspwm", ".config/qtile", ".config/river", ".config/niri", ".config/labwc", ".xmonad", ".config/xmonad", ".config/xfce4",
			"/etc/xdg/openbox", "/etc/gdm*", "/etc/lightdm", "/etc/sddm*", "/usr/share/xsessions", "/usr/share/wayland-sessions",
			".local/share/applications", ".config/mimeapps.list", ".xbindkeysrc", ".config/sxhkd", ".config/kitty", ".config/alacritty",
			".config/ghostty", ".config/wezterm", ".wezterm.lua", ".config/zellij", ".config/waybar", ".config/polybar", ".config/eww", ".config/mpv", ".mpv",
			".local/share/gnome-shell", ".local/share/plasma", ".local/share/kio", "Library/LaunchAgents", ".hammerspoon",
			".local/share/thumbnailers", //nolint:misspell // the name of the directory
		}, OutsidePackages},
	}
}

// toolRules returns the rules of approval for files that editors, AI agents, languages and build servers run
// or read: their changes are not promoted until the user approves them.
func toolRules() []Rule {
	return []Rule{
		{"an editor or developer tool runs commands from it when it opens the directory", []string{
			".vscode", "*.code-workspace", ".idea", ".fleet", ".zed", ".vs", ".devcontainer", ".devcontainer.json", ".nova", "*.sublime-project", ".run",
			".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", "_exrc", ".nexrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".local.vimrc", ".vim", ".config/nvim", ".config/vim",
			".local/share/nvim", "/etc/vim", "/etc/vimrc*", "/etc/xdg/nvim", ".emacs", ".emacs.el", ".emacs.d", ".config/emacs", ".config/doom", ".doom.d", ".spacemacs*",
			".dir-locals.el", ".dir-locals-2.el", "/etc/emacs*", ".helix", ".config/helix", ".config/kak", ".kakrc", ".config/Code", ".config/VSCodium", ".config/zed",
			".vscode-server", ".nanorc", ".joerc", ".lesskey", ".lessfilter",
			".envrc", ".direnvrc", ".config/direnv", ".autoenv*", ".mise*.toml", "mise*.toml", ".mise", ".config/mise", ".rtx.toml",
			".gdbinit", ".gdbearlyinit", ".config/gdb", ".lldbinit*", ".pdbrc", ".irbrc", ".pryrc", ".Rprofile", ".Renviron", ".pythonrc*",
			".ipython", ".julia/config", ".ghci", ".psqlrc", ".sqliterc", ".erlang", ".iex.exs", ".ocamlinit", ".octaverc", ".perldb",
			".direnv", ".byebugrc", ".rdbgrc", ".mongorc.js", ".mongoshrc.js", ".duckdbrc", ".my.cnf", ".gnuplot", ".guile", ".sbclrc", ".racketrc", ".swiplrc",
			".config/swi-prolog", ".psysh.php", ".config/psysh", ".tclshrc", ".wishrc", ".config/ptpython", ".config/bpython", ".latexmkrc", "latexmkrc",
			".gitpod.y*ml", ".idx", ".codesandbox", ".replit", ".stackblitzrc", ".theia", ".lapce", ".atom", ".config/sublime-text*", ".config/JetBrains", ".vscode-oss",
		}, OutsidePackages},
		{"an agent reads its instructions, tools or hooks from it", []string{
			"CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENT.md", "AGENTS.override.md", "GEMINI.md", "QWEN.md", "CRUSH.md", "WARP.md",
			".claude", ".claude.json", ".mcp.json", ".cursor", ".cursorrules", ".codex", ".gemini", ".qwen", ".windsurf", ".windsurfrules", ".codeium",
			".clinerules", ".cline", ".roo", ".roorules*", ".roomodes", ".kilocode", ".kilocodemodes", ".kiro", ".amazonq", ".opencode", "opencode.json*",
			".crush.json", "crush.json", ".crush", ".goosehints", ".goose", ".continue", ".continuerc.json", ".continuerules", ".aider.conf.y*ml", ".augment",
			".augment-guidelines", ".junie", ".trae", ".factory", ".agents", ".rules", ".github/copilot-*", ".github/instructions", ".github/prompts",
			".github/chatmodes", ".github/agents", ".github/hooks", ".github/skills", ".config/goose", ".config/opencode", ".config/crush", ".config/amp",
			".claude-plugin", ".agent", ".aiassistant", ".antigravity", ".openhands", ".openclaw", ".devin", ".tabnine", ".codebuddy", "CODEBUDDY.md", ".iflow", "IFLOW.md",
			".qoder", ".zencoder", ".copilot", ".grok", ".pi",
		}, OutsidePackages},
		{"it is loaded into other programs", []string{
			"/etc/ld.so.*", "/etc/ld-musl-*", "sitecustomize.py", "usercustomize.py", ".local/share/vulkan", ".config/vulkan", ".asoundrc",
		}, Everywhere},
		{"Python runs it whenever this environment is used", []string{
			"site-packages/*.pth", "dist-packages/*.pth", "pyvenv.cfg", ".venv/bin", ".venv/Scripts", "venv/bin", "venv/Scripts",
			".virtualenv/bin", "virtualenv/bin", ".virtualenvs/*/bin", "activate.d", "deactivate.d",
		}, OutsideNewEnvironments},
		{"it is a program that is found by its name alone", []string{
			".local/bin", ".cargo/bin", ".npm-global/bin", ".yarn/bin", ".bun/bin", ".deno/bin", ".pyenv/shims", ".rbenv/shims", ".asdf/shims",
			".local/share/mise/shims", ".docker/cli-plugins", ".krew/bin", ".dotnet/tools", ".volta/bin", ".nodenv/shims", ".goenv/shims", ".jenv/shims", ".ghcup/bin",
			".cabal/bin", ".rustup/toolchains", ".nvm/versions", ".sdkman/candidates", ".pyenv/versions", ".rbenv/versions", ".asdf/installs", ".local/share/mise/installs",
		}, OutsidePackages},
		{"a package manager or build tool reads it, and it can name programs to run", []string{
			".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", ".pnpmfile.*js", "bunfig.toml", ".bunfig.toml", ".cargo/config",
			".cargo/config.toml", ".mvn", ".m2/settings*.xml", ".gradle/init.*", ".gradle/gradle.properties", ".sbt", ".bundle/config", ".gemrc", ".condarc",
			".config/pip", ".pip", ".pypirc", ".config/uv", ".pydistutils.cfg", ".config/go", "docker-compose.override.y*ml", "compose.override.y*ml",
			".docker/config.json", ".config/containers", ".mavenrc", ".antrc", ".lein", ".vagrant.d", ".terraformrc", ".terraform.d", ".kube/config",
			".aws/config", ".aws/credentials", ".azure", ".gnupg", ".config/gh", ".config/glab-cli", ".jupyter", ".local/share/jupyter/kernels",
			"rust-toolchain", "rust-toolchain.toml", ".rustup/settings.toml", ".bazelrc", "tools/bazel", "ansible.cfg", ".ansible.cfg", ".ansible", ".config/nix",
			".config/nixpkgs", ".config/home-manager", ".wgetrc", ".curlrc", ".config/rclone", ".rclone.conf", ".s3cfg", ".config/bat", ".tigrc", ".config/lazygit",
			".config/yt-dlp", ".task/hooks",
		}, OutsidePackages},
		{"git runs the filters that it names", []string{".gitattributes"}, OutsidePackages},
		{"a mail program runs commands from it", []string{".forward", ".procmailrc", ".mailcap", ".mailrc", ".muttrc", ".config/mutt", ".config/neomutt"}, OutsidePackages},
		{"a build server runs commands from it", []string{
			".github/workflows", ".github/actions", ".gitlab-ci*", ".gitlab", ".circleci", "Jenkinsfile*", "*.jenkinsfile", ".jenkins", ".travis.y*ml", "azure-pipelines*",
			".azure-pipelines", ".azuredevops", "bitbucket-pipelines.yml", ".drone.y*ml", ".drone.star", ".drone.jsonnet", ".woodpecker*", ".buildkite", ".cirrus.*", "appveyor.y*ml",
			".appveyor*", ".teamcity", ".semaphore", "codefresh.y*ml", ".codefresh", "cloudbuild.y*ml", "cloudbuild.json", "buildspec.y*ml", ".forgejo", ".gitea", ".builds",
			".build.yml", ".tekton", ".concourse", "wercker.yml", ".gocd.*", "*.gocd.*", ".screwdriver*", "screwdriver.yaml", ".harness", ".kokoro", ".prow*",
			".zuul*", "zuul.d", "zuul.yaml", ".packit.y*ml", ".onedev-buildspec.yml", ".dagger",
		}, OutsidePackages},
		{"snapfs runs commands from it", []string{"snapfs.toml"}, OutsidePackages},
	}
}

// A pattern is one file pattern of a [Rule], split into path elements, as an [index] stores it.
type pattern struct {
	elements []string
	why      string
	// begin and end are the literal parts of the first element before its first wildcard
	// and after its last. They rule out most names without a match.
	begin, end string
}

// An index finds the rule of approval that the path of a changed file matches. It holds the patterns of all
// rules by their first path element.
type index struct {
	anchored map[string][]pattern // absolute
	named    map[string][]pattern // at any depth
	// globs match at any depth and have a wildcard in the first element: by that
	// element's first byte, 0 for a wildcard.
	globs [256][]pattern
}

// Indexes of the patterns of files whose changes need approval. patterns has all of them; the others have
// those that apply in directories of installed packages (PackageDirs), in new virtual environments, and in
// PackageDirs of these. Each is built on first use.
var (
	patterns        = sync.OnceValue(func() *index { return newIndex() })
	inPackages      = sync.OnceValue(func() *index { return newIndex(OutsidePackages) })
	inNew           = sync.OnceValue(func() *index { return newIndex(OutsideNewEnvironments) })
	inPackagesOfNew = sync.OnceValue(func() *index { return newIndex(OutsidePackages, OutsideNewEnvironments) })
)

// newIndex returns an index of the patterns of all rules of approval, except rules whose Place is one of
// without: these do not apply in such directories.
func newIndex(without ...Place) *index {
	all := &index{anchored: map[string][]pattern{}, named: map[string][]pattern{}}
	for _, rule := range Rules() {
		for _, text := range rule.Patterns {
			text, anchored := strings.CutPrefix(fold(text), "/")
			if !anchored && slices.Contains(without, rule.Place) {
				continue
			}
			p := pattern{elements: strings.Split(text, "/"), why: rule.Why}
			first := p.elements[0]
			wild := strings.ContainsAny(first, "*?[")
			if wild {
				p.begin = first[:strings.IndexAny(first, "*?[")]
				p.end = first[strings.LastIndexAny(first, "*?]")+1:]
			}
			switch {
			case anchored:
				all.anchored[first] = append(all.anchored[first], p)
			case wild:
				var begin byte
				if p.begin != "" {
					begin = p.begin[0]
				}
				all.globs[begin] = append(all.globs[begin], p)
			default:
				all.named[first] = append(all.named[first], p)
			}
		}
	}
	return all
}

// fold converts a path to lower case, since rules ignore case. A last element "HEAD" stays: a file of that
// name makes its directory a git repository, while "head" is a program.
func fold(path string) string {
	if path == "HEAD" || strings.HasSuffix(path, "/HEAD") {
		return strings.ToLower(path[:len(path)-4]) + "HEAD"
	}
	return strings.ToLower(path)
}

// find returns why a change of the absolute path abs needs approval, "" if it does not, and how many elements
// of the path the matching pattern covers. With link, the path is a symbolic link, which needs approval for
// patterns below it, too: it would redirect these paths.
func (all *index) find(abs string, link bool) (why string, depth int) {
	elements := strings.Split(strings.Trim(fold(abs), "/"), "/")
	for _, p := range all.anchored[elements[0]] {
		if p.covers(elements, link) {
			return p.why, min(len(p.elements), len(elements))
		}
	}
	for i := range elements {
		if p := all.at(elements[i:], link); p != nil {
			return p.why, min(i+len(p.elements), len(elements))
		}
	}
	return "", 0
}

// at returns the pattern of a rule of approval that matches a path from the first of these elements on, or
// nil. With link, the path is a symbolic link, and a pattern for paths below it matches, too.
func (all *index) at(elements []string, link bool) *pattern {
	first := elements[0]
	if first == "" {
		return nil
	}
	for _, list := range [...][]pattern{all.named[first], all.globs[first[0]], all.globs[0]} {
		for i := range list {
			if p := &list[i]; p.covers(elements, link) {
				return p
			}
		}
	}
	return nil
}

// ordinary reports whether no pattern of the rules of approval begins inside the path of the directory dir.
// Files directly in such a directory need to be matched by their own name alone, which is fast.
func (all *index) ordinary(dir string) bool {
	elements := strings.Split(strings.Trim(strings.ToLower(dir), "/"), "/")
	if elements[0] == "" {
		return false // absolute patterns begin here
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

// A finder looks up, for one changed path after another, the rule of approval that the path matches. It
// remembers whether the last directory is ordinary, that is, inside no rule's pattern, because most paths
// share the directory of the one before.
type finder struct {
	*index
	// top is the root of the tree: only directories below it are PackageDirs.
	top        string
	dir        string
	inOrdinary bool
	// packages is set if dir or one above it, below top, is a PackageDir.
	packages bool
	// above is why everything in the outermost PackageDir on the way to dir needs approval, because it lies in
	// such a place, and depth how many elements of the path the pattern covers; "" if it does not.
	above string
	depth int
	// news are the new environments, as absolute paths.
	news []string
}

// lookup returns why a change of the absolute path abs needs approval, as find does, but uses and changes
// nothing that the finder remembers of the path before.
func (f *finder) lookup(abs string, link bool) (why string, depth int) {
	other := finder{index: patterns(), top: f.top, news: f.news}
	return other.find(abs, link)
}

// enter sets the directory of the next changed paths that the finder matches against the rules of approval to
// dir, which ends with a slash. If dir lies below the directory before, enter checks only the new path
// elements, so that its cost does not grow with the depth of the tree.
func (f *finder) enter(dir string) {
	rest, below := strings.CutPrefix(dir, f.dir)
	if below = below && f.dir != "" && strings.HasPrefix(f.dir, f.top); !below {
		f.packages, f.above, f.depth = false, "", 0
		f.enterPackages(dir, strings.TrimPrefix(dir, f.top))
	} else if !f.packages {
		f.enterPackages(dir, rest)
	}
	last := f.index
	f.index = f.indexOf(f.packages, f.inNewEnvironment(dir))
	if below && f.inOrdinary && f.index == last {
		f.inOrdinary = f.ordinaryBelow(rest)
	} else {
		f.inOrdinary = f.ordinary(dir)
	}
	f.dir = dir
}

// enterPackages notes in f whether rest, the end of the path dir, has the name of a directory with installed
// packages, in which some rules do not apply. If that directory lies inside a path that any rule names,
// everything in it needs approval for that rule: a text editor also runs ~/.vim/pack/vendor.
func (f *finder) enterPackages(dir, rest string) {
	at := len(dir) - len(rest)
	for element := range strings.SplitSeq(rest, "/") {
		if isPackageDir(element) {
			f.packages = true
			f.above, f.depth = f.indexOf(false, f.inNewEnvironment(dir[:at])).find(dir[:at], false)
			return
		}
		at += len(element) + 1
	}
}

// ordinaryBelow reports whether no pattern of the approval rules begins inside the path of a directory. rest
// is the part of that path below a directory of which this is already known, so that only rest must be
// checked.
func (all *index) ordinaryBelow(rest string) bool {
	elements := strings.Split(strings.Trim(strings.ToLower(rest), "/"), "/")
	for i := range elements {
		if all.at(elements[i:], true) != nil {
			return false
		}
	}
	return true
}

// indexOf returns the index of the approval rules that apply in installed packages if packages is set, and in
// new virtual environments if fresh is set.
func (f *finder) indexOf(packages, fresh bool) *index {
	switch {
	case packages && fresh:
		return inPackagesOfNew()
	case packages:
		return inPackages()
	case fresh:
		return inNew()
	}
	return patterns()
}

// inNewEnvironment reports whether the absolute path abs lies in a Python virtual environment that the
// sandbox created.
func (f *finder) inNewEnvironment(abs string) bool {
	return slices.ContainsFunc(f.news, func(dir string) bool { return diff.Inside(strings.TrimSuffix(abs, "/")+"/", dir) })
}

func (f *finder) find(abs string, link bool) (why string, depth int) {
	dir, name := path.Split(abs)
	if dir != f.dir {
		f.enter(dir)
	}
	if f.above != "" {
		return f.above, f.depth
	}
	if !f.inOrdinary {
		return f.index.find(abs, link)
	}
	if p := f.at([]string{fold(name)}, link); p != nil {
		return p.why, strings.Count(dir, "/")
	}
	return "", 0
}

func (p *pattern) covers(elements []string, link bool) bool {
	if len(elements) < len(p.elements) && !link {
		return false
	}
	if !strings.HasPrefix(elements[0], p.begin) || !strings.HasSuffix(elements[0], p.end) {
		return false
	}
	for i := range min(len(p.elements), len(elements)) {
		if ok, err := path.Match(p.elements[i], elements[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
