package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/engine/policy"
)

const profileIntro = `A profile states what a sandbox may use, see and reach, and the stages of its
result. It is snapfs.toml, in TOML, at the top of the real workspace, or the file
that --profile names, or a profile with a name: one that is built in, or one of the
site in /etc/snapfs/profiles. "snapfs profile list" has the names. Anything outside
the grammar is a mistake; "snapfs profile check" prints its position and a fix.

/etc/snapfs/policy.toml is the site's policy, which must belong to root. It has the
sections [limits], [sandbox], [tools], [data], [budget] and [direct]; nothing loosens it:
no flag, no profile and no later command. Its limits and its budget are the largest,
its net the widest network, and its hide is always hidden. With expose or env, no other path is exposed
and no other variable passed. profile = "NAME" names the profile of sandboxes without
--profile. "snapfs profile explain" prints what a sandbox would get, and which line
says so.

A profile that is named with --profile applies where no flag says otherwise. One
that snapfs only found may be anybody's work, also that of a command in a sandbox
of this workspace. So it can only tighten: it lowers limits, narrows the network
and hides, also past a flag, and opens nothing. snapfs prints and records what it
used of it and what it ignored ("snapfs show"); --profile none uses none.
"snapfs doctor --prove --profile FILE" tests its isolation.

Checks before a stage run in a sandbox, whose workspace is the stage's target with
the changes applied. Checks after, deploy and rollback run on the real machine, as
you, with all your rights. So a profile that was found must belong to you or to
root, and before such a command of it runs you must have trusted this content of
it: "snapfs profile trust" prints the commands and records that. snapfs reads a
profile from the real workspace, never from a sandbox, once for all stages of a
promotion, and a change of it in a sandbox needs approval.

All commands get SNAPFS_SANDBOX, SNAPFS_STAGE, SNAPFS_TARGET (the directory they
start in), SNAPFS_WHEN (before, after, deploy or rollback) and SNAPFS_PROMOTION.`

// profileExample is an example of a complete profile, for help. A test parses it.
const profileExample = `extends = "go-build"

[limits]
cpus = 1.5
memory = "2G"
pids = 200
time = "10m"

[sandbox]
net = ["api.example.org:443", "*.example.com"]
expose = ["~/.npmrc"]

[[stage]]
name = "sandbox"                  # only checks
before = ["make test"]

[[stage]]
name = "staging"
target = "/srv/staging"
before = ["make test", { run = ["./smoke", "--quick"], timeout = "5m" }]
after = ["curl -fs http://localhost:8080/health"]

[[stage]]
name = "production"
deploy = "./deploy"               # runs in /srv/staging
rollback = "./deploy --previous"
approval = "ask"
timeout = "30m"
`

// newProfile returns the command `snapfs profile`, whose help explains how to write a profile.
func newProfile(a *app) *cobra.Command {
	var b strings.Builder
	b.WriteString(profileIntro + "\n")
	for _, s := range policy.Grammar() {
		b.WriteString("\n" + s.Header + "\n" + wrapped("", s.Text, 80))
		for _, k := range s.Keys {
			fmt.Fprintf(&b, "\n  %s = %s%s\n", k.Name, k.Value, byDefault(k, ""))
			b.WriteString(wrapped("      ", k.Text, 80))
		}
	}
	b.WriteString("\nFor example:\n\n")
	for line := range strings.Lines(profileExample) {
		b.WriteString("  " + line)
	}
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "describe the profile file, snapfs.toml; list, check and explain profiles",
		Long:  strings.TrimRight(b.String(), "\n"),
	}
	return group(cmd, newProfileList(a), newProfileShow(a), newProfileCheck(a), newProfileExplain(a), newProfileDiff(a), newProfileTrust(a))
}

func byDefault(k policy.Key, code string) string {
	if k.Default == "" {
		return ""
	}
	return " (default " + code + k.Default + code + ")"
}

// wrapped returns text broken into lines of at most width characters, each with indent.
func wrapped(indent, text string, width int) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
	return b.String()
}

// writeProfile writes docs/profile.md, which explains how to write a profile.
func writeProfile(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Profiles\n\nWritten by `make docs` from engine/policy/grammar.go, like `snapfs help profile`.\n\n" + profileIntro + "\n")
	for _, s := range policy.Grammar() {
		b.WriteString("\n## `" + s.Header + "`\n\n" + wrapped("", s.Text, 100) + "\n| key | value | means |\n| --- | --- | --- |\n")
		for _, k := range s.Keys {
			fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", k.Name, k.Value, byDefault(k, "`"), k.Text)
		}
	}
	b.WriteString("\n## For example\n\n```toml\n" + profileExample + "```\n")
	_, err := io.WriteString(w, b.String())
	return err
}
