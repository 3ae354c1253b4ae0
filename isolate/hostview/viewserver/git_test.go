//go:build linux

package viewserver_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/hostview"
	"github.com/snapfs/snapfs/isolate/hostview/gitguard"
	"github.com/snapfs/snapfs/isolate/idmap"
)

// A planting is a way to have the git of the host run a command: what a sandbox writes, and what a person runs.
// $CANARY is a file that the command makes, COMMAND stands for the command, and TOP for the repository's top.
type planting struct {
	name  string
	plant string // a script in the sandbox's repository
	run   string // a script in the view
}

const asEvil = `evil() { printf '#!/bin/sh\nCOMMAND\n' > "$1"; chmod +x "$1"; }; `

// plantings: the names of keys, files and directories that lead git to a command.
var plantings = []planting{
	{"fsmonitor", `git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"section after a continued line", `printf '[user]\nemail = a\\\nb\n[core]\nfsmonitor = "COMMAND;true"\n' >> .git/config`, `git status`},
	{"hook", asEvil + `evil .git/hooks/pre-commit`, `git commit -q --allow-empty -m x`},
	{"hooks path", asEvil + `mkdir h; evil h/pre-commit; git config core.hooksPath h`, `git commit -q --allow-empty -m x`},
	{"clean filter", `echo y >> f; echo "* filter=d" > .gitattributes; git config filter.d.clean "COMMAND;cat"`, `git add f`},
	{"include", `printf '[core]\nfsmonitor = "COMMAND;true"\n' > more; git config include.path ../more`, `git status`},
	{"worktree config", `git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "COMMAND;true"`, `git status`},
	{"nested repository", `git init -q sub; git -C sub config core.fsmonitor "COMMAND;true"`, `cd sub; git status`},
	{"git file that leads out", `mv .git "$OUTSIDE/g"; echo "gitdir: $OUTSIDE/g" > .git; git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"linked config", `git config core.fsmonitor "COMMAND;true"; mv .git/config .git/c; ln -s c .git/config`, `git status`},
	{"config with two names", `git config core.fsmonitor "COMMAND;true"; ln .git/config c`, `cat c; git status; cat c`},
	{"interrupted rebase", `git commit -q --allow-empty -m y; GIT_SEQUENCE_EDITOR='printf "break\nexec COMMAND\n" >' git rebase -q -i HEAD^`, `git rebase --continue`},
	{"strategy of a cherry-pick", asPick + `printf '[options]\nstrategy = "` + envUp + `"\nstrategy-option = "split-string=COMMAND"\n' > .git/sequencer/opts`, `GIT_EDITOR=true git cherry-pick --continue`},
	{"capital letters and CRLF", `printf '[CORE]\r\n\tFsMonitor = "COMMAND;true"\r\n' >> .git/config`, `git status`},
	{"key beside its section", `printf '[core] fsmonitor = "COMMAND;true"\n' >> .git/config`, `git status`},
	{"continued line", `printf '[core]\nfsmonitor = "COMMAND;\\\ntrue"\n' >> .git/config`, `git status`},
	{"byte order mark", `{ printf '\357\273\277[core]\nfsmonitor = "COMMAND;true"\n'; cat .git/config; } > c; mv c .git/config`, `git status`},
	{"hook of a refreshed index", asEvil + `evil .git/hooks/post-index-change; touch -d yesterday f`, `git status`},
	{"alias", `git config alias.zz "!COMMAND"`, `git zz`},
	{"external diff", `echo y >> f; git config diff.external "COMMAND;true"`, `git diff`},
	{"diff driver", `echo y >> f; echo "* diff=d" > .gitattributes; git config diff.d.command "COMMAND;true"`, `git diff`},
	{"textconv", `echo y >> f; echo "* diff=d" > .gitattributes; git config diff.d.textconv "COMMAND;cat"`, `git diff`},
	{"process filter", `echo y >> f; echo "* filter=d" > .gitattributes; git config filter.d.process "COMMAND;cat"`, `git add f`},
	{"smudge filter", `rm f; echo "* filter=d" > .git/info/attributes; git config filter.d.smudge "COMMAND;cat"`, `git checkout f`},
	{"merge driver", `echo "* merge=d" > .gitattributes; git config merge.d.driver "COMMAND;false"; git checkout -q -b o; echo o > f; git commit -q -a -m o; git checkout -q -; echo m > f; git commit -q -a -m m`, `git merge o`},
	{"editor", `git config core.editor "COMMAND;true"`, `git commit --allow-empty`},
	{"sequence editor", `git commit -q --allow-empty -m y; git config sequence.editor "COMMAND;true"`, `git rebase -i HEAD^`},
	{"ssh command", `git config core.sshCommand "COMMAND;true"; git remote add o ssh://h/r`, `git fetch o`},
	{"upload pack", `git remote add o "$PWD"; git config remote.o.uploadpack "COMMAND;git-upload-pack"`, `git fetch o`},
	{"name of a remote that is an option", `git remote add origin "$PWD"; git config "remote.--upload-pack=COMMAND;git-upload-pack.url" "$PWD"`, `git fetch --all`},
	{"remote helper", `git config protocol.ext.allow always; git remote add o "ext::sh -c COMMAND_WORD"`, `git fetch o`},
	{"instead of", `git config protocol.ext.allow always; git config "url.ext::sh -c COMMAND_WORD .insteadOf" zz:; git remote add o zz:r`, `git fetch o`},
	{"credential helper", `git config credential.helper "!COMMAND"`, `printf 'protocol=https\nhost=h\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill`},
	{"gpg program", asEvil + `evil g; git config gpg.program "$PWD/g"; git config commit.gpgSign true`, `git commit -q --allow-empty -m x`},
	{"difftool", `echo y >> f; git config difftool.d.cmd "COMMAND"`, `git difftool -y -t d`},
	{"trailer", `git config trailer.t.command "COMMAND"`, `echo x | git interpret-trailers`},
	{"conditional include", `printf '[core]\nfsmonitor = "COMMAND;true"\n' > more; git config "includeIf.onbranch:**.path" ../more`, `git status`},
	{"bare repository", `git init -q --bare bare; git -C bare config alias.zz "!COMMAND"`, `cd bare; git zz`},
	{"bare repository that says it is none", `git init -q --bare bare; git -C bare config core.bare false; git -C bare config core.worktree ..; git -C bare config core.fsmonitor "COMMAND;true"`, `cd bare; git status`},
	{"submodule", `git -c protocol.file.allow=always submodule --quiet add ./ sub; git -C sub config core.fsmonitor "COMMAND;true"`, `git status`},
	{"git file", `mv .git other; echo "gitdir: other" > .git; git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"git file that climbs out", `mv .git "$OUTSIDE/g"; echo "gitdir: ../../../../../../../../../../../../$OUTSIDE/g" > .git; git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"linked git file that leads out", `mv .git "$OUTSIDE/g"; echo "gitdir: $OUTSIDE/g" > p; ln -s p .git; git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"linked git directory", `mv .git other; ln -s other .git; git config core.fsmonitor "COMMAND;true"`, `git status`},
	{"common directory", `git worktree add -q w; git -C w config core.fsmonitor "COMMAND;true"; cp -r .git g; echo ../../../g > .git/worktrees/w/commondir; git config --unset core.fsmonitor; echo "gitdir: ../.git/worktrees/w" > w/.git`, `cd w; git status`},
	{"common directory that leads out", `git worktree add -q w; cp -r .git "$OUTSIDE/g"; git -C w config --file "$OUTSIDE/g/config" core.fsmonitor "COMMAND;true"; echo "$OUTSIDE/g" > .git/worktrees/w/commondir; echo "gitdir: ../.git/worktrees/w" > w/.git`, `cd w; git status`},
	{"strategy of a rebase", asRebase + `echo ` + envUp + ` > .git/rebase-merge/strategy; echo "'--split-string=COMMAND'" > .git/rebase-merge/strategy_opts; mkdir git-merge-x`, `GIT_EDITOR=true git rebase --continue`},
	{"path of the index that leads out", `echo x > nnnnnnnnn; git add .; rm nnnnnnnnn; LC_ALL=C sed -i s,nnnnnnnnn,../canary, .git/index`, `git checkout .`},
	{"path of a shared index that leads out", `echo x > nnnnnnnnn; git add .; rm nnnnnnnnn; git update-index --split-index; LC_ALL=C sed -i s,nnnnnnnnn,../canary, .git/sharedindex.*`, `git checkout .`},
	{"option of am", asMail + `printf " '--build-fake-ancestor=$CANARY'\n" > .git/rebase-apply/apply-opt`, `git am --skip`},
	{"conflict in a file outside", `echo secret > "$OUTSIDE/s"; d=.git/rr-cache/$(printf %040d 1); mkdir -p $d; echo s > $d/preimage; printf '%s\t../out/s\0' ${d##*/} > .git/MERGE_RR`, `git rerere; ! grep -q secret .git/rr-cache/*/postimage || COMMAND`},
}

// Operations that wait at a first conflict, with a second commit to come: a cherry-pick and a rebase whose conflict is
// resolved, and "git am" of two patches.
const (
	asTwo    = `git checkout -q -b o; echo o > f; git commit -q -a -m o; echo o > g; git add g; git commit -q -m p; git checkout -q -b q HEAD~2; echo m > f; git commit -q -a -m m; `
	asPick   = asTwo + `! git cherry-pick o^ o; echo r > f; git add f; mkdir git-merge-x; `
	asRebase = asTwo + `! git rebase q o; echo r > f; git add f; `
	asMail   = asTwo + `git format-patch -q -o .git/p q..o; ! git am .git/p/*; `

	envUp = `x/../../../../../../../../../../../../usr/bin/env`
)

// A guarded is a repository of a sandbox with the real one beside it, and a view of it.
type guarded struct {
	t                             *testing.T
	real, fork, view, out, canary string
	env                           []string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	top := t.TempDir()
	g := &guarded{t: t, real: top + "/real", fork: top + "/fork", view: top + "/view", out: top + "/out", canary: top + "/canary"}
	for _, dir := range []string{g.real, g.view, g.out, top + "/home"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	g.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + top + "/home", "GIT_CONFIG_NOSYSTEM=1", "OUTSIDE=" + g.out, "CANARY=" + g.canary, "LANG=C.UTF-8", "TERM=xterm", "EDITOR=false",
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.org", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.org",
	}
	g.must(g.real, `git init -q; echo x > f; git add f; git commit -q -m x`)
	return g
}

// sh runs a script in a directory, and returns what it printed.
func (g *guarded) sh(dir, script string) (string, error) {
	command := "touch " + g.canary
	script = strings.ReplaceAll(script, "COMMAND_WORD", strings.ReplaceAll(command, " ", "% "))
	// This process serves the view: one that it has forked must not enter the directory before it is another program.
	cmd := exec.CommandContext(g.t.Context(), "sh", "-c", `cd "$0" && `+strings.ReplaceAll(script, "COMMAND", command), dir)
	cmd.Env = g.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *guarded) must(dir, script string) string {
	g.t.Helper()
	out, err := g.sh(dir, script)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// plant copies the real repository and runs a script in the copy, as a sandbox does.
func (g *guarded) plant(script string) {
	g.t.Helper()
	g.must(filepath.Dir(g.fork), "cp -a real fork")
	g.must(g.fork, script)
}

// mount mounts the view as the process of a view does.
func (g *guarded) mount() {
	g.t.Helper()
	tree, err := os.Open(g.fork)
	must(g.t, err)
	defer tree.Close()
	v, err := idmap.MountView(g.view, tree, 0, false, &gitguard.Guard{Workspace: g.real, View: g.view})
	must(g.t, err)
	g.t.Cleanup(func() {
		must(g.t, hostview.Unmount(context.Background(), g.view))
		v.Wait()
	})
}

func (g *guarded) ran() bool {
	_, err := os.Stat(g.canary)
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asBoth has the calling test run as root and, with FUSE and the long budget, as an ordinary user.
func asBoth(t *testing.T) {
	t.Helper()
	treetest.OncePerRun(t)
	treetest.NeedProgram(t, "git")
	treetest.NeedDevice(t, "/dev/fuse")
	if os.Geteuid() == 0 {
		treetest.NeedProgram(t, "fusermount3")
		if !treetest.Long(t) {
			return
		}
		t.Run("user", func(t *testing.T) {
			treetest.RunAs(t, treetest.User(t), strings.TrimSuffix(t.Name(), "/user"), treetest.WithFUSE())
		})
	}
}

// TestNothingPlantedRunsOnTheHost: each way to have the host's git run a command works in a plain copy of the sandbox's
// repository, and does nothing in the view. Cost: a tenth of a second for each, the first dozen without the long budget.
func TestNothingPlantedRunsOnTheHost(t *testing.T) {
	asBoth(t)
	for _, p := range plantings[:treetest.Budget(t, 12, len(plantings))] {
		t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
			g := newGuarded(t)
			g.plant(p.plant)
			must(t, ignoreMissing(os.Remove(g.canary)))
			control := g.fork + "-bare"
			g.must("/", "cp -a "+g.fork+" "+control)
			g.mount()
			if out, _ := g.sh(g.view, p.run); g.ran() { // whether git succeeds there is another matter
				t.Errorf("in the view it runs:\n%s", out)
			}
			must(t, ignoreMissing(os.Remove(g.canary)))
			if out, _ := g.sh(control, p.run); !g.ran() {
				t.Errorf("in a plain copy it does not run, so that the test shows nothing:\n%s", out)
			}
		})
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// TestAFileThatChangesMeanwhileRunsNothing: the configuration is another at each moment, under the same name and by a
// rename, while the host's git reads it. Cost: two seconds.
func TestAFileThatChangesMeanwhileRunsNothing(t *testing.T) {
	asBoth(t)
	g := newGuarded(t)
	g.plant(`cp .git/config clean; cp clean bad; printf '[core]\nfsmonitor = "COMMAND;true"\n' >> bad`)
	g.mount()
	done, ended := make(chan struct{}), make(chan error)
	go func() {
		_, err := g.sh(g.fork, `i=0; while test ! -e stop; do cat bad > .git/config; cp bad x; mv x .git/config; cat clean > .git/config; rm .git/config; ln bad .git/config; rm .git/config; cp clean .git/config; done`)
		ended <- err
		close(done)
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !g.ran(); {
		out, _ := g.sh(g.view, "git status")
		if g.ran() {
			t.Errorf("it ran:\n%s", out)
		}
	}
	must(t, os.WriteFile(g.fork+"/stop", nil, 0o644))
	must(t, <-ended)
	<-done
}

// TestGitWorksInAView: what a person's git does there arrives in the sandbox, the settings of the user's own
// repository hold, and so do submodules and worktrees that the sandbox has made. Cost: one second.
func TestGitWorksInAView(t *testing.T) {
	asBoth(t)
	g := newGuarded(t)
	g.must(g.real, `git config filter.own.clean "tr a-z A-Z"; git config filter.own.smudge cat; echo 'up filter=own' > .gitattributes; git add .; git commit -q -m own`)
	g.plant(`git -c protocol.file.allow=always submodule --quiet add ./ sub; git commit -q -m sub; git worktree add -q ../w; mv ../w w; echo "gitdir: ` + g.real + `/.git/worktrees/w" > w/.git; git config core.fsmonitor "COMMAND;true"`)
	g.mount()
	g.must(g.view, `echo loud > up; git add up; git commit -q -m up; git checkout -q -b b; git config user.name "A B"; git remote add o ssh://h/r; git -C w rev-parse HEAD`)
	if out := g.must(g.fork, `git show HEAD:up; git symbolic-ref HEAD; git config user.name; git config remote.o.url`); out != "LOUD\nrefs/heads/b\nA B\nssh://h/r\n" {
		t.Errorf("the sandbox has:\n%s", out)
	}
	g.must(g.view, `git update-index --index-version 4; git status; git update-index --split-index; echo y > new; git add new; git status; git rm -q --cached new; rm new`)
	if out := g.must(g.view, `git status --short; git -C sub status --short; wc -c < .git/config; stat -c %s .git/config`); strings.Contains(out, " sub") {
		t.Errorf("git status in the view: %s", out)
	}
	if out := g.must(g.view, `cat .git/config`); !strings.Contains(out, "#fsmonitor") || !strings.Contains(out, "\tclean = tr a-z A-Z\n") {
		t.Errorf("the configuration in the view:\n%s", out)
	}
	if g.ran() {
		t.Error("a planted command ran")
	}
	g.must(g.view, `test "$(wc -c < sub/.git)" = "$(stat -c %s sub/.git)"`)
	g.must(g.view, `printf 'Host x\n  ProxyCommand y\n' > config; grep -q '^Host x' config; printf '#!/bin/sh\n' > s; chmod +x s; ! ./s`)
}
