package approval_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
)

func TestFilesThatRunByThemselvesNeedApproval(t *testing.T) {
	for abs, why := range map[string]string{
		"/home/ann/project/.git/hooks/post-checkout":          "repository",
		"/home/ann/project/.git":                              "repository",
		"/home/ann/project/deep/in/it/.git/config":            "repository",
		"/home/ann/project/.GIT/hooks/x":                      "repository",
		"/srv/git/project.git/hooks/update":                   "repository",
		"/home/ann/project/sub/HEAD":                          "repository",
		"/home/ann/.config/git/config":                        "repository",
		"/home/ann/project/.hg/hgrc":                          "repository",
		"/home/ann/project/.husky/pre-commit":                 "hook",
		"/home/ann/project/lefthook.yml":                      "hook",
		"/home/ann/project/.pre-commit-config.yaml":           "hook",
		"/home/ann/.bashrc":                                   "shell",
		"/home/ann/.profile":                                  "shell",
		"/root/.zshrc":                                        "shell",
		"/home/ann/.config/fish/conf.d/x.fish":                "shell",
		"/etc/profile.d/x.sh":                                 "shell",
		"/etc/bash.bashrc":                                    "shell",
		"/etc/environment":                                    "shell",
		"/etc/crontab":                                        "schedule",
		"/etc/cron.daily/x":                                   "schedule",
		"/etc/cron.d":                                         "schedule",
		"/var/spool/cron/crontabs/ann":                        "schedule",
		"/etc/systemd/system/x.timer":                         "services",
		"/home/ann/.config/systemd/user/x.service":            "services",
		"/home/ann/.local/share/systemd/user/x":               "services",
		"/usr/lib/systemd/system-generators/x":                "services",
		"/etc/init.d/x":                                       "services",
		"/etc/udev/rules.d/99-x.rules":                        "device appears",
		"/boot/vmlinuz":                                       "starts",
		"/etc/apt/apt.conf.d/99x":                             "package",
		"/home/ann/.ssh/authorized_keys":                      "log in",
		"/etc/ssh/sshd_config.d/x.conf":                       "log in",
		"/etc/sudoers":                                        "accounts",
		"/etc/sudoers.d/x":                                    "accounts",
		"/etc/pam.d/su":                                       "accounts",
		"/etc/passwd":                                         "accounts",
		"/etc/ld.so.preload":                                  "loaded",
		"/etc/ld.so.conf.d/x.conf":                            "loaded",
		"/home/ann/.config/autostart/x.desktop":               "desktop",
		"/etc/xdg/autostart/x.desktop":                        "desktop",
		"/home/ann/project/.vscode/tasks.json":                "editor",
		"/home/ann/project/.idea/workspace.xml":               "editor",
		"/home/ann/project/.envrc":                            "editor",
		"/home/ann/project/.vimrc":                            "editor",
		"/home/ann/project/.exrc":                             "editor",
		"/home/ann/project/.dir-locals.el":                    "editor",
		"/home/ann/project/.github/workflows/ci.yml":          "build server",
		"/home/ann/project/.gitlab-ci.yml":                    "build server",
		"/home/ann/project/.circleci/config.yml":              "build server",
		"/home/ann/project/sub/Jenkinsfile":                   "build server",
		"/home/ann/project/Jenkinsfile.nightly":               "build server",
		"/home/ann/project/snapfs.toml":                       "snapfs",
		"/home/ann/project/CLAUDE.md":                         "agent",
		"/home/ann/project/sub/AGENTS.md":                     "agent",
		"/home/ann/project/.cursorrules":                      "agent",
		"/home/ann/project/.kiro/hooks/x.kiro.hook":           "agent",
		"/home/ann/project/.opencode/plugin/x.js":             "agent",
		"/home/ann/project/.github/copilot-instructions.md":   "agent",
		"/home/ann/project/.claude/settings.json":             "agent",
		"/home/ann/project/opencode.json":                     "agent",
		"/home/ann/project/.npmrc":                            "package manager",
		"/home/ann/project/.mvn/extensions.xml":               "package manager",
		"/home/ann/project/.pnpmfile.cjs":                     "package manager",
		"/home/ann/project/.yarnrc.yml":                       "package manager",
		"/home/ann/project/.yarn/releases/yarn-4.cjs":         "package manager",
		"/home/ann/project/.cargo/config.toml":                "package manager",
		"/home/ann/project/docker-compose.override.yml":       "package manager",
		"/home/ann/project/.gitattributes":                    "filters",
		"/home/ann/.local/bin/git":                            "by its name",
		"/home/ann/.docker/cli-plugins/docker-x":              "by its name",
		"/home/ann/.nvm/nvm.sh":                               "shell",
		"/home/ann/.cargo/env":                                "shell",
		"/home/ann/.forward":                                  "mail",
		"/home/ann/project/.direnv/python/bin/x":              "editor",
		"/home/ann/project/.venv/bin/activate":                "environment",
		"/home/ann/project/v/lib/python3/site-packages/x.pth": "environment",
		"/home/ann/project/.openhands/setup.sh":               "agent",
		"/home/ann/project/.github/skills/x/SKILL.md":         "agent",
		"/home/ann/project/.agent/rules/x.md":                 "agent",
		"/home/ann/project/.claude-plugin/plugin.json":        "agent",
		"/home/ann/project/.gitpod.yml":                       "editor",
		"/home/ann/project/.idx/dev.nix":                      "editor",
		"/home/ann/project/.byebugrc":                         "editor",
		"/home/ann/project/latexmkrc":                         "editor",
		"/home/ann/.duckdbrc":                                 "editor",
		"/home/ann/project/rust-toolchain.toml":               "package manager",
		"/home/ann/project/ansible.cfg":                       "package manager",
		"/home/ann/project/tools/bazel":                       "package manager",
		"/home/ann/.aws/credentials":                          "package manager",
		"/home/ann/.wgetrc":                                   "package manager",
		"/home/ann/.volta/bin/node":                           "by its name",
		"/home/ann/.nvm/versions/node/v22/bin/node":           "by its name",
		"/home/ann/.local/share/gnome-shell/extensions/x.js":  "desktop",
		"/home/ann/.config/mpv/scripts/x.lua":                 "desktop",
		"/home/ann/project/tools/x":                           "",
		"/home/ann/project/weights.pth":                       "", // of PyTorch; Python runs none there
		"/home/ann/project/docs/agents":                       "",
		"/home/ann/project/docker-compose.yml":                "",
		"/home/ann/project/.gitignore":                        "",
		"/home/ann/project/.github/CODEOWNERS":                "",
		"/home/ann/project/head":                              "",
		"/home/ann/project/digit":                             "",
		"/home/ann/project/etc/cron.d/x":                      "", // not at the root
		"/home/ann/project/main.go":                           "",
		"/home/ann/project/git/hooks/x":                       "",
		"/home/ann/.config/app/settings":                      "",
		"/home/ann/project/.env":                              "",
		"/etc/hosts":                                          "",
		"/home/ann/project/bashrc":                            "",
		"/home/ann/project/.bashrc/beneath/a/thing/of-a-name": "shell",
		"/home/ann/project/\x1b[2J.git/x":                     "repository",
		"/home/ann/project/.github/workflows.md":              "",
		"/home/ann/project/crontab":                           "",
		"/home/ann/project/.config/systemd-notes":             "",
	} {
		regular := &diff.Node{Mode: 0o644}
		for _, c := range []diff.Change{
			{Path: "x", Kind: diff.Added, New: regular},
			{Path: "x", Kind: diff.Modified, What: diff.Content, Old: regular, New: regular},
			{Path: "x", Kind: diff.Deleted, Old: regular},
		} {
			if got := approval.Reason(c, abs); (got == "") != (why == "") || !strings.Contains(got, why) {
				t.Errorf("%s %v: %q, want %q", abs, c.Kind, got, why)
			}
		}
		if got := approval.Reason(diff.Change{Path: "x", Kind: diff.Modified, What: diff.Time, Old: regular, New: regular}, abs); got != "" {
			t.Errorf("%s, of which only the time changes: %q", abs, got)
		}
	}
}

// What is read at the top of a project is not read in a package that is installed in it.
func TestInstalledPackagesNeedApprovalOnlyForWhatRunsThere(t *testing.T) {
	added := func(paths ...string) (all []diff.Change) {
		for _, p := range paths {
			all = append(all, diff.Change{Path: p, Kind: diff.Added, New: &diff.Node{Mode: 0o644}})
		}
		return all
	}
	harmless := []string{
		"node_modules/left-pad/.travis.yml", "node_modules/@a/b/.github/workflows/ci.yml", "web/node_modules/x/.vscode/settings.json",
		"node_modules/x/.husky/pre-commit", "node_modules/x/CLAUDE.md", "node_modules/x/.npmrc", "vendor/serde/.gitattributes",
		"go/pkg/mod/github.com/a/b@v1.2.3/AGENTS.md", ".cargo/registry/src/crates.example-1949cf8c6b5b557f/itoa-1.0.19/.github/workflows/ci.yml",
		".venv/lib/python3/site-packages/p/.envrc", "node_modules/x/Jenkinsfile",
	}
	if needed := (approval.Allow{}).Check("/home/ann/p", added(harmless...), nil); needed != nil {
		t.Errorf("%v", needed.Why)
	}
	dangerous := []string{
		".travis.yml", "node_modules/x/.git/hooks/post-checkout", ".venv/lib/python3/site-packages/sitecustomize.py", "sub/.travis.yml",
		"node_modules.old/x/.travis.yml",
		// A directory with such a name inside of a place that runs as a whole.
		".vim/pack/vendor/start/x/plugin/x.vim", ".vim/plugin/node_modules/x.vim", ".config/nvim/pack/vendor/start/x.lua", ".claude/skills/vendor/SKILL.md",
		"sub/.opencode/node_modules/x/index.js", ".github/actions/a/node_modules/x/index.js",
	}
	for _, path := range dangerous {
		if needed := (approval.Allow{}).Check("/home/ann/p", added(path), nil); needed == nil {
			t.Errorf("%s needs no approval", path)
		}
	}
	if needed := (approval.Allow{}).Check("/home/ann/node_modules/mine", added(".travis.yml"), nil); needed == nil {
		t.Error("a project in a directory of packages is no project")
	}
}

// TestPlaceWithPackagesIsApprovedAsOne: the approval of a place that runs as a whole covers the packages in it.
func TestPlaceWithPackagesIsApprovedAsOne(t *testing.T) {
	change := []diff.Change{{Path: "a/.vim/pack/vendor/start/x.vim", Kind: diff.Added, New: &diff.Node{Mode: 0o644}}}
	needed := (approval.Allow{}).Check("/home/ann", change, nil)
	if needed == nil || !slices.Equal(needed.Allow, []string{"a/.vim"}) {
		t.Fatalf("%+v", needed)
	}
	if needed := (approval.Allow{Paths: needed.Allow}).Check("/home/ann", change, nil); needed != nil {
		t.Errorf("approved, and still: %v", needed)
	}
}

// The database of packages is one: its status and its scripts are approved together.
func TestThePackageDatabaseIsApprovedAsOne(t *testing.T) {
	var changes []diff.Change
	for _, p := range []string{"var/lib/dpkg/info/jq.list", "var/lib/dpkg/info/jq.postinst", "var/lib/dpkg/status", "usr/bin/jq"} {
		changes = append(changes, diff.Change{Path: p, Kind: diff.Added, New: &diff.Node{Mode: 0o644}})
	}
	needed := approval.Allow{}.Check("/", changes, nil)
	if needed == nil || len(needed.Paths) != 3 || len(needed.Allow) != 1 || needed.Allow[0] != "var/lib/dpkg" {
		t.Fatalf("%+v", needed)
	}
	if needed := (approval.Allow{Paths: []string{"/var/lib/dpkg"}}).Check("/", changes, nil); needed != nil {
		t.Errorf("approved: %v", needed.Paths)
	}
}

// A file with the set-user-id bit is approved by its flag, and the text has a line for each reason.
func TestNeededNamesWhatApprovesAndGroupsByReason(t *testing.T) {
	changes := []diff.Change{{Path: "su", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSetuid | 0o755}}}
	for _, p := range []string{"1", "2", "3", "4", "5", "6"} {
		changes = append(changes, diff.Change{Path: p + "/.envrc", Kind: diff.Added, New: &diff.Node{Mode: 0o644}})
	}
	needed := approval.Allow{}.Check("/p", changes, nil)
	if got := needed.Also.Args(); len(got) != 1 || got[0] != "--allow-setid" || len(needed.Allow) != 6 {
		t.Errorf("%q, %q", got, needed.Allow)
	}
	if lines := strings.Split(needed.String(), "\n"); len(lines) != 2 || !strings.HasSuffix(lines[0], ": 1/.envrc, 2/.envrc, 3/.envrc, 4/.envrc, 5/.envrc and 1 more") {
		t.Errorf("%q", lines)
	}
	needed.Also.Paths = needed.Allow
	if left := needed.Also.Check("/p", changes, nil); left != nil {
		t.Errorf("left: %v", left.Paths)
	}
}

func TestLinkAboveAPatternNeedsApproval(t *testing.T) {
	link := &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: "mine"}
	for abs, needed := range map[string]bool{
		"/home/ann/.config": true, "/home/ann/.local": true, "/home/ann/.local/share": true, "/home/ann/p/.github": true, "/etc": true,
		"/home/ann/p/latest": false, "/home/ann/p/etc": false, "/home": false, "/var/spool": true,
	} {
		if got := approval.Reason(diff.Change{Path: "x", Kind: diff.Added, New: link}, abs); (got != "") != needed {
			t.Errorf("%s: %q", abs, got)
		}
		if got := approval.Reason(diff.Change{Path: "x", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDir | 0o755}}, abs); got != "" {
			t.Errorf("%s, a directory: %q", abs, got)
		}
	}
}

func TestSetIDDevicesAndCapabilitiesNeedApproval(t *testing.T) {
	for name, c := range map[string]diff.Change{
		"set-id":       {Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSetuid | 0o755}},
		"group's":      {Kind: diff.Modified, What: diff.Mode, New: &diff.Node{Mode: fs.ModeSetgid | 0o755}},
		"device":       {Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600}},
		"capabilities": {Kind: diff.Modified, What: diff.Content, New: &diff.Node{Mode: 0o755, Xattrs: map[string]string{"security.capability": "x"}}},
	} {
		if got := approval.Reason(c, "/home/ann/p/x"); !strings.Contains(got, name) {
			t.Errorf("%s: %q", name, got)
		}
	}
	both := []diff.Change{{Path: "x", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSetuid | 0o755, Xattrs: map[string]string{"security.capability": "x"}}}}
	for _, allow := range []approval.Allow{{}, {SetID: true}, {Capabilities: true}} {
		needed := allow.Check("/p", both, nil)
		if needed == nil || needed.Also.SetID == allow.SetID || needed.Also.Capabilities == allow.Capabilities {
			t.Errorf("set-id with capabilities, approved by %v: %+v", allow.Args(), needed)
		}
	}
	if needed := (approval.Allow{SetID: true, Capabilities: true}).Check("/p", both, nil); needed != nil {
		t.Errorf("set-id with capabilities, approved: %v", needed)
	}
	if got := approval.Reason(diff.Change{Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDir | fs.ModeSetgid | 0o755}}, "/p/x"); got != "" {
		t.Errorf("a directory with the set-group-id bit: %q", got)
	}
}
