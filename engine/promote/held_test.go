package promote_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestWhatRunsByItselfLaterIsHeldBack(t *testing.T) {
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
		"/etc/crontab":                                        "time",
		"/etc/cron.daily/x":                                   "time",
		"/etc/cron.d":                                         "time",
		"/var/spool/cron/crontabs/ann":                        "time",
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
		"/etc/sudoers":                                        "who is who",
		"/etc/sudoers.d/x":                                    "who is who",
		"/etc/pam.d/su":                                       "who is who",
		"/etc/passwd":                                         "who is who",
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
		"/home/ann/project/.gitignore":                        "",
		"/home/ann/project/.github/CODEOWNERS":                "",
		"/home/ann/project/head":                              "",
		"/home/ann/project/digit":                             "",
		"/home/ann/project/etc/cron.d/x":                      "", // no place of this machine
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
			if got := promote.Held(c, abs); (got == "") != (why == "") || !strings.Contains(got, why) {
				t.Errorf("%s %v: %q, want %q", abs, c.Kind, got, why)
			}
		}
		if got := promote.Held(diff.Change{Path: "x", Kind: diff.Modified, What: diff.Time, Old: regular, New: regular}, abs); got != "" {
			t.Errorf("%s, of which only the time changes: %q", abs, got)
		}
	}
}

func TestALinkThatLeadsAHeldPlaceElsewhereIsHeldBack(t *testing.T) {
	link := &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: "mine"}
	for abs, held := range map[string]bool{
		"/home/ann/.config": true, "/home/ann/.local": true, "/home/ann/.local/share": true, "/home/ann/p/.github": true, "/etc": true,
		"/home/ann/p/latest": false, "/home/ann/p/etc": false, "/home": false, "/var/spool": true,
	} {
		if got := promote.Held(diff.Change{Path: "x", Kind: diff.Added, New: link}, abs); (got != "") != held {
			t.Errorf("%s: %q", abs, got)
		}
		if got := promote.Held(diff.Change{Path: "x", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDir | 0o755}}, abs); got != "" {
			t.Errorf("%s, a directory: %q", abs, got)
		}
	}
}

func TestPowersAreHeldBackWhereverTheyLie(t *testing.T) {
	for name, c := range map[string]diff.Change{
		"set-id":       {Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSetuid | 0o755}},
		"group's":      {Kind: diff.Modified, What: diff.Mode, New: &diff.Node{Mode: fs.ModeSetgid | 0o755}},
		"device":       {Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600}},
		"capabilities": {Kind: diff.Modified, What: diff.Content, New: &diff.Node{Mode: 0o755, Xattrs: map[string]string{"security.capability": "x"}}},
	} {
		if got := promote.Held(c, "/home/ann/p/x"); !strings.Contains(got, name) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := promote.Held(diff.Change{Kind: diff.Added, New: &diff.Node{Mode: fs.ModeDir | fs.ModeSetgid | 0o755}}, "/p/x"); got != "" {
		t.Errorf("a directory that gives its group on: %q", got)
	}
}

// TestHeldPathsAreCarriedWhenAllowedByName refuses all of them in one error, and
// takes what is named, whatever way.
func TestHeldPathsAreCarriedWhenAllowedByName(t *testing.T) {
	w := newWorld(t, treetest.Dir(t),
		treetest.Script{do(treetest.Mkdir, ".git", ""), file(".git/index", 1, 10), file(".git/gone", 1, 10), file("plain", 1, 10)},
		treetest.Script{
			do(treetest.Unlink, ".git/index", ""), file(".git/index", 2, 10), do(treetest.Unlink, ".git/gone", ""),
			do(treetest.Mkdir, ".git/hooks", ""), file(".git/hooks/post-checkout", 3, 10), file(".bashrc", 3, 10),
			do(treetest.Mkdir, "sub", ""), do(treetest.Mkdir, "sub/.vscode", ""), file("sub/.vscode/tasks.json", 4, 10),
			do(treetest.Unlink, "plain", ""), file("plain", 5, 10),
		})
	old := manifest(t, w)
	for _, c := range []struct{ allow, want, hint string }{
		{"", ".bashrc .git/gone .git/hooks .git/index sub/.vscode", ".bashrc .git sub/.vscode"},
		{".git", ".bashrc sub/.vscode", ".bashrc sub/.vscode"},
		{".git/hooks .bash* sub/*", ".git/gone .git/index", ".git"},
		{w.real.Name() + "/.git " + w.real.Name() + "/sub", ".bashrc", ".bashrc"},
		{".git/hooks/post-checkout [ /", "", ""},
		{". nothing/there", "", ""},
	} {
		o := options(w.frozen())
		o.Allow.Paths = strings.Fields(c.allow)
		if c.want == "" {
			if h := o.Allow.Withheld(w.real.Name(), w.changes(t, w.frozen())); h != nil {
				t.Errorf("allowed %q: %v", c.allow, h)
			}
			continue
		}
		_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
		var h *promote.HeldBack
		var r *promote.Refused
		if !errors.Is(err, errs.ErrDenied) || !errors.As(err, &h) || !errors.As(err, &r) ||
			strings.Join(h.Paths, " ") != c.want || strings.Join(h.Allow, " ") != c.hint {
			t.Errorf("allowed %q: %v, %+v", c.allow, err, h)
		}
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Fatalf("allowed %q: touched %q", c.allow, l)
		}
	}
	o := options(w.frozen())
	o.Allow.Paths = []string{""}
	if _, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("an empty path: %v", err)
	}
	o.Allow.Paths = []string{".git", ".bashrc", "sub/.vscode/tasks.json", "sub/.vscode"}
	_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
	must(t, err)
	w.arrived(t)
}

// TestATargetIsKnownByItsRealPath: a link to it does not make its places others.
func TestATargetIsKnownByItsRealPath(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, treetest.Script{file("x.desktop", 1, 10)})
	autostart := filepath.Join(w.top, ".config", "autostart")
	must(t, os.MkdirAll(autostart, 0o755))
	must(t, os.Symlink(autostart, filepath.Join(w.top, "link")))
	for _, path := range []string{autostart, filepath.Join(w.top, "link")} {
		target := w.target()
		target.Root, target.Path = treetest.Open(t, path), path
		_, err := promote.Apply(t.Context(), target, w.source(), w.changes(t, w.frozen()), options(w.frozen()))
		var h *promote.HeldBack
		if !errors.As(err, &h) || strings.Join(h.Allow, " ") == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}
