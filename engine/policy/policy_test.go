package policy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

const five = `# how it travels
[[stage]]
name = "sandbox"
before = ["make test"]

[[stage]]
name = 'dev'
target = "."

[[stage]]
name = "staging"
target = "/srv/staging/"
before = [
    "make test",   # the usual
    ["./smoke", "--quick", "a b"],
    { run = "make slow", timeout = "5m", name = "slow" },
]
after = ["curl -fs localhost"]
approval = "ask"
timeout = "1h30m"

[[stage]]
name = "production"
deploy = "./deploy"
rollback = { run = ["./rollback"] }
`

func TestAProfileIsReadAsItIsWritten(t *testing.T) {
	p, err := policy.Parse("/home/ada/project/snapfs.toml", []byte(five))
	if err != nil {
		t.Fatal(err)
	}
	hour := policy.Duration(time.Hour)
	shell := func(name string) policy.Command {
		return policy.Command{Name: name, Args: []string{"/bin/sh", "-c", name}}
	}
	deploy := shell("./deploy")
	want := &policy.Profile{Path: "/home/ada/project/snapfs.toml", Stages: []policy.Stage{
		{Name: "sandbox", Before: []policy.Command{shell("make test")}, Approval: policy.Auto, Timeout: hour},
		{Name: "dev", Target: "/home/ada/project", Approval: policy.Auto, Timeout: hour},
		{
			Name: "staging", Target: "/srv/staging", Approval: policy.Ask, Timeout: hour + hour/2,
			Before: []policy.Command{
				shell("make test"),
				{Name: `./smoke --quick "a b"`, Args: []string{"./smoke", "--quick", "a b"}},
				{Name: "slow", Args: []string{"/bin/sh", "-c", "make slow"}, Timeout: hour / 12},
			},
			After: []policy.Command{shell("curl -fs localhost")},
		},
		{
			Name: "production", Approval: policy.Auto, Timeout: hour,
			Deploy: &deploy, Rollback: &policy.Command{Name: "./rollback", Args: []string{"./rollback"}},
		},
	}}
	p.Origins = nil // see extends_test.go
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
	if i, ok := p.Stage("staging"); i != 2 || !ok {
		t.Errorf("staging is %d, %v", i, ok)
	}
}

// [limits] and [sandbox] take the names and values of the flags.
func TestLimitsAndSandboxSectionsAreRead(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	p, err := policy.Parse("/p/box.toml", []byte(`
[limits]
cpus = 1.5
memory = "2G"
pids = 200
io-write = "50M/s"
time = "90s"
disk = "none"

[sandbox]
net = ["Example.com:443", "*.example.org"] # as the flag has it
expose = ["~/.aws", "keys/../key", "/etc/x"]
hide = ["/srv"]
env = ["AWS_TOKEN"]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Sandbox{
		Limits: catalog.Limits{CPUs: 1.5, Memory: 2 << 30, PIDs: 200, WriteRate: 50 << 20, Time: 90 * time.Second},
		Net:    "allow:example.com:443,*.example.org",
		Expose: []string{"/home/ada/.aws", "/p/key", "/etc/x"}, Hide: []string{"/srv"}, Env: []string{"AWS_TOKEN"},
	}
	if d := cmp.Diff(want, p.Sandbox); d != "" {
		t.Error(d)
	}
}

// TestEachMistakeHasItsPositionAndCorrection breaks every rule of the grammar.
func TestEachMistakeHasItsPositionAndCorrection(t *testing.T) {
	const dev = "[[stage]]\nname = \"dev\"\ntarget = \"/srv/dev\"\n"
	for _, c := range []struct{ text, want string }{
		{"[[stage]]\nname = \"dev\"\ntarget = \"x\"\ntimout = \"5m\"", "4:1: timout: unknown key in [[stage]]; did you mean timeout?"},
		{dev + "colour = 5", "4:1: colour: unknown key in [[stage]]; keys are name, target,"},
		{dev + "target = \"/x\"", "4:1: invalid TOML: key target is already defined"},
		{dev + "before = \"make\"", `4:1: before: expected a list of commands, got a text; put it in brackets`},
		{dev + "before = [\"a\",\n  5]", "5:3: before: expected a command, got a number"},
		{dev + "before = [[\"a\", 5]]", "4:17: before: expected an argument, got a number"},
		{dev + "before = [[]]", "4:11: before: the command is empty"},
		{dev + "before = [\" \"]", "4:11: before: the command is blank"},
		{dev + "before = [{ timeout = \"5m\" }]", "4:11: before: the table has no run"},
		{dev + "before = [{ run = \"x\", tiemout = \"5m\" }]", "4:24: tiemout: unknown key in { run = … }; did you mean timeout?"},
		{dev + "before = [{ run = \"x\", timeout = 5 }]", "4:24: timeout: expected a text, got a number"},
		{dev + "timeout = \"soon\"", `4:1: timeout: invalid duration "soon"; write 90s`},
		{dev + "timeout = \"-5m\"", `4:1: timeout: invalid duration "-5m"`},
		{dev + "approval = \"maybe\"", `4:1: approval: invalid value "maybe"; use "auto" or "ask"`},
		{dev + "approval = true", `4:1: approval: expected a text, got true or false; use "auto" or "ask"`},
		{dev + "deploy = \"x\"\nrollback = \"y\"", "4:1: a stage has a target or deploys, not both"},
		{dev + "rollback = \"y\"", "4:1: there is nothing to roll back without deploy"},
		{dev + "[[stage]]\nname = \"p\"\ndeploy = \"x\"", "6:1: deploy needs rollback"},
		{"[[stage]]\nname = \"p\"\ndeploy = \"x\"\nrollback = \"y\"", "3:1: no stage before it has a target"},
		{"[[stage]]\nname = \"p\"\nafter = [\"x\"]", "3:1: a stage without target or deploy has nothing to check after it"},
		{"[[stage]]\nname = \"p\"", "1:3: this stage does nothing"},
		{"[[stage]]\ntarget = \"x\"", "1:3: a stage has no name"},
		{dev + dev, `5:1: duplicate stage name "dev", first in line 2`},
		{dev + "[[stage]]\nname = \"inner\"\ntarget = \"/srv/dev/x\"", `6:1: /srv/dev/x overlaps the target of "dev", /srv/dev`},
		{"[[stage]]\nname = \"../dev\"\ntarget = \"x\"", `2:1: name: invalid name "../dev"`},
		{"[[stage]]\nname = \"d\"\ntarget = \"~/dev\"", "3:1: target: ~ is not expanded"},
		{"[[stage]]\nname = \"d\"\ntarget = \"/\"", "3:1: target: / is not allowed"},
		{"[[stage]]\nname = \"d\"\ntarget = \"\"", "3:1: target: empty"},
		{"[[stage]]\nname = \"d\"\ntarget = \"a\\u0000b\"", "3:1: target: contains a NUL byte"},
		{"[stage]\nname = \"d\"", "1:2: there may be several stages; write [[stage]]"},
		{"[[stages]]\nname = \"d\"", "1:3: stages: unknown section; sections are [limits], [sandbox], [tools], [data], [secrets.NAME], [budget], [prices.NAME], [result], [direct] and [[stage]]"},
		{"[limits]\nmemry = \"1G\"", "2:1: memry: unknown key in [limits]; did you mean memory?"},
		{"[limits]\nmemory = \"plenty\"", `2:10: memory: size "plenty"`},
		{"[limits]\npids = -3", "2:8: pids: "},
		{"[limits]\npids = true", "2:1: pids: expected a limit, got true or false"},
		{"[limits]\npids = 3\n[limits]", "3:2: invalid TOML: table limits already exists"},
		{"[[limits]]", "1:3: there is one section limits; write [limits]"},
		{"[sandbox]\nnet = \"open\"", `2:7: net: invalid value "open"; use`},
		{"[sandbox]\nnet = \"allow:a.example,b_.example:x\"", `2:35: net: rule "b_.example:x": `},
		{"[sandbox]\nnet = [\n  \"a.example\",\n  \"a.example:99999\"]", `4:14: net: rule "a.example:99999": `},
		{"[sandbox]\nnet = []", "2:1: net: the list is empty"},
		{"[sandbox]\nnet = [\"a.example,b.example\"]", "2:8: net: \"a.example,b.example\" is more than one rule"},
		{"[sandbox]\nenv = [\"A=b\"]", `2:8: env: invalid variable name "A=b"`},
		{"[sandbox]\nexpose = [\"~ada/x\"]", "2:11: expose: ~NAME is not expanded"},
		{"[sandbox]\nhide = [\"*.pem\"]", `2:9: hide: "*.pem" is a pattern, and a file that gets such a name later would be shown`},
		{"[data]\nreadable = [\"/*/x\"]", `2:1: readable: "/*/x" begins with a wildcard, which is every directory of this machine`},
		{"[data]\nrecorded = [\"/\"]", "2:1: recorded: / is not allowed"},
		{"[sandbox]\nhide = \"x\"", "2:1: hide: expected a list, got a text"},
		{"name = \"d\"", "1:1: name: not in a section"},
		{dev + "a.b = 1", "4:1: a: unknown key"},
		{dev + "timeout = ", "4:10: invalid TOML"},
		{dev + "timeout = \"5m", "4:13: invalid TOML"},
		{"\xff", "1:1: not UTF-8"},
	} {
		_, err := policy.Parse("snapfs.toml", []byte(c.text))
		if !errors.Is(err, errs.ErrInvalid) || !strings.HasPrefix(err.Error(), "snapfs.toml:"+c.want) {
			t.Errorf("%s\n is %v\nwant %s", c.text, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "; ") && !strings.Contains(err.Error(), "TOML") {
			t.Errorf("%s\n is %v: no mend", c.text, err)
		}
	}
}

// TestPositionsAreRightBehindEveryKindOfValue has mistakes before and behind all that TOML can write.
func TestPositionsAreRightBehindEveryKindOfValue(t *testing.T) {
	for _, text := range []string{
		`'a"]#\'`, `"a]\\\"#'"`, `"""` + "\n" + `a\"""]"#"""""`, "'''\n]#'''''", `1979-05-27 07:32:00 # a date`, "[ # ]\n]",
		"[\"a\", ['b#', \"\"\"c\n\"d\" \"\"\",], # ]\n  { run = [\"x\", 'y}'], name = \"}\" } ]",
		`{ "na.me" = 1, b.'c' = [] }`, `0x1F`, `-inf`, `""`, `''`,
	} {
		_, err := policy.Parse("p", []byte("[limits]\nx.\"y\" = "+text+"\n[[ stage ]]\n'before' = [[ 5 ]]\n[x.\"]#\"] # [\n"))
		lines := strings.Count(text, "\n")
		var e *policy.Error
		if !errors.As(err, &e) || len(e.Mistakes) != 3 {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for i, want := range []policy.Mistake{{Line: 2, Column: 1}, {Line: lines + 4, Column: 15}, {Line: lines + 5, Column: 2}} {
			if m := e.Mistakes[i]; m.Line != want.Line || m.Column != want.Column {
				t.Errorf("%s: %+v, want %d:%d", text, m, want.Line, want.Column)
			}
		}
	}
}

// TestKeyPointsAreRead: the points, each once, and how long their snapshots stay.
func TestKeyPointsAreRead(t *testing.T) {
	p, err := policy.Parse("p", []byte("[sandbox]\nsnapshots = [\"exec\", \"plan\", \"exec\"]\nkeep-snapshots = 7\nkeep-snapshots-for = \"12h\"\nkeep-snapshots-size = \"2G\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := p.Sandbox.KeyPoints
	if strings.Join(k.At, " ") != "exec plan" || k.Keep != 7 || k.KeepFor != 12*time.Hour || k.KeepSize != 2<<30 {
		t.Errorf("%+v", k)
	}
	for _, wrong := range []string{`snapshots = ["never"]`, `snapshots = "exec"`, "keep-snapshots = 0", `keep-snapshots = "many"`, `keep-snapshots-for = "soon"`, `keep-snapshots-size = "big"`} {
		if _, err := policy.Parse("p", []byte("[sandbox]\n"+wrong+"\n")); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestAllMistakesAreReportedAtOnce checks that one attempt reports all mistakes.
func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := policy.Parse("p", []byte("[[stage]]\nnam = \"a\"\n[[stage]]\ntargt = \"b\"\n[x]\ny = 1\n"))
	var all *policy.Error
	if !errors.As(err, &all) || len(all.Mistakes) != 3 {
		t.Fatalf("%v", err)
	}
	var sections strings.Builder
	for i := range 30 {
		fmt.Fprintf(&sections, "[x%d]\n", i)
	}
	_, err = policy.Parse("p", []byte(sections.String()))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 21 || lines[20] != "p: and 10 more" {
		t.Errorf("%v", err)
	}
}

// TestNotHeldNamesInterpretersAndPackages: a check of a profile says what each rule about programs cannot hold.
func TestNotHeldNamesInterpretersAndPackages(t *testing.T) {
	notHeld := func(text string) []string {
		t.Helper()
		p, err := policy.Parse("p", []byte("[tools]\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Sandbox.NotHeld(nil)
	}
	for rule, want := range map[string]string{
		"sh": "sh -c", "/usr/bin/python3.12": "python x.py", "node": "node -e", "/opt/perl5.40.1": "a script", "busybox": "busybox rm",
		"find": "find -delete", "make": "a makefile", "env": "executes other allowed programs", "xargs": "executes other allowed programs",
		"/opt/tools/*":      "an interpreter in it",
		"dpkg:no-such-pkg0": "no package of this name is installed here",
	} {
		got := strings.Join(notHeld("allow = ['"+rule+"']"), "\n")
		if !strings.Contains(got, "tools.allow "+rule+": ") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
	if got := notHeld("allow = ['/usr/bin/cat', 'git']"); len(got) != 2 {
		t.Errorf("programs that are no interpreters: %q", got)
	}
	if got := notHeld("deny = ['dpkg:no-such-pkg0']"); len(got) != 2 || !strings.Contains(got[1], "no package of this name is installed here") {
		t.Errorf("a denied package that is not installed: %q", got)
	}
}

// TestProgramsOutsideOfWhatIsReadableAreNamed: a check of a profile names an allowed program that no sandbox with the
// profile could execute, since it may not read it.
func TestProgramsOutsideOfWhatIsReadableAreNamed(t *testing.T) {
	for rule, outside := range map[string]string{
		"cat": "", "/usr/bin/*": "", "/opt/read/tool": "", "/opt/write/tool status": "", "/opt/tools/v1/bin/x": "",
		"/opt/lone": "/opt/lone", "/opt/lone status": "/opt/lone", "/opt/readable/*": "/opt/readable", "/opt/tools/bin/x": "/opt/tools/bin/x",
	} {
		p, err := policy.Parse("p", []byte("[tools]\nallow = ['"+rule+"']\n[data]\nreadable = ['/opt/read', '/opt/tools/v?']\nwritable = ['/opt/write']\n"))
		if err != nil {
			t.Fatal(err)
		}
		want := "tools.allow " + rule + ": " + outside + " cannot be executed, because data.readable lacks it; add it to data.readable"
		if got := strings.Join(p.Sandbox.NotHeld([]string{"/usr", "/bin"}), "\n"); strings.Contains(got, "cannot be executed") != (outside != "") || outside != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// TestTheSiteBoundsPackagesAndDigests: a rule stays only if the administrator's rules allow all that it allows.
func TestTheSiteBoundsPackagesAndDigests(t *testing.T) {
	a, b := "@sha256:"+strings.Repeat("a", 64), "@sha256:"+strings.Repeat("b", 64)
	for _, c := range []struct {
		site, mine string
		stays      bool
	}{
		{"/usr/bin/git", "/usr/bin/git" + a, true},
		{"/usr/bin/*", "/usr/bin/git" + a, true},
		{"/usr/bin/git" + a, "/usr/bin/git" + a, true},
		{"/usr/bin/git" + a, "/usr/bin/git" + b, false},
		{"/usr/bin/git" + a, "/usr/bin/git", false},
		{"/usr/bin/git" + a, "git", false},
		{"dpkg:git", "dpkg:git", true},
		{"/usr/bin/*", "dpkg:git", false},
		{"dpkg:no-such-pkg0", "/usr/bin/git", false},
		{"git", "git", true},
		{"/opt/bin/*", "git", false},
		{"git", "git status", true},
		{"git status", "git status -s", true},
		{"git status", "git", true}, // as git status
		{"git status", "git push", false},
		{"git status -s", "git status --short", false},
		{"git status", "/usr/bin/git", false},
		{"/usr/bin/*", "/usr/bin/git status", true},
		{"/opt/bin/*", "git status", false},
	} {
		site := policy.Site{Sandbox: policy.Sandbox{Tools: catalog.Tools{Allow: []string{c.site}}}}
		p := catalog.Policy{Tools: &catalog.Tools{Allow: []string{c.mine}}}
		site.Bound(&p)
		if stays := len(p.Tools.Allow) == 1; stays != c.stays {
			t.Errorf("%.30s within %.30s: %v", c.mine, c.site, stays)
		}
	}
}

// A rule with arguments is narrowed to what the administrator's policy allows, and never widened.
func TestTheSiteBoundsArguments(t *testing.T) {
	for _, c := range []struct{ site, mine, want string }{
		{"git status,git diff", "git", "git status,git diff"},
		{"git status,git diff", "git diff --stat,git push", "git diff --stat"},
		{"/usr/bin/git", "git status", "/usr/bin/git status"},
	} {
		site := policy.Site{Sandbox: policy.Sandbox{Tools: catalog.Tools{Allow: strings.Split(c.site, ",")}}}
		p := catalog.Policy{Tools: &catalog.Tools{Allow: strings.Split(c.mine, ",")}}
		site.Bound(&p)
		if got := strings.Join(p.Tools.Allow, ","); got != c.want {
			t.Errorf("%s within %s: %s, want %s", c.mine, c.site, got, c.want)
		}
	}
}

// A rule of allow may have arguments, each a word as the program gets it; a rule of deny may not.
func TestRulesWithArguments(t *testing.T) {
	for rule, want := range map[string]string{
		"git status": "", "/usr/bin/git diff --stat": "", "python3 check.py": "", "npm run a:b": "",
		"git ": "empty argument", "git  status": "empty argument", "git st*": "pattern", "sh -c $x": "of a shell", `git "a"`: "of a shell", "git\tx": "arguments",
		"/usr/bin/* x": "no single program", "dpkg:git x": "no single program", "/usr/bin/git@sha256:" + strings.Repeat("0", 64) + " x": "a digest", "./git x": "is relative",
	} {
		_, err := policy.Parse("p", []byte("[tools]\nallow = ["+strconv.Quote(rule)+"]"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
		if _, err := policy.Parse("p", []byte("[tools]\ndeny = ["+strconv.Quote(rule)+"]")); err == nil {
			t.Errorf("deny %s: no error", rule)
		}
	}
}

func TestRulesAboutPackages(t *testing.T) {
	for rule, want := range map[string]string{
		"dpkg:git": "", "dpkg:libc6:amd64": "", "dpkg:": "names no package", "dpkg:../x": "names no package", "dpkg:git push": "has arguments", "git push": "has arguments", "rpm:git": "is no program",
		"sha256:00": "has no path", "/bin/x@sha256:00": "has no SHA-256 digest", "x@sha256:" + strings.Repeat("0", 64): "names no single program",
	} {
		_, err := policy.Parse("p", []byte("[tools]\nallow = ['"+rule+"']\ndeny = ['"+rule+"']"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}

// TestGrammarMatchesTheReader reads each key of each section, with a value of its type.
func TestGrammarMatchesTheReader(t *testing.T) {
	values := map[string]string{
		"text": `"word"`, "rule": `"for=90d"`, "directory": `"/srv/x"`, "command": `"true"`, "list of commands": `["true"]`, `"auto" or "ask"`: `"ask"`,
		"duration": `"5m"`, "size": `"2G"`, "rate": `"1M/s"`, "number": "3", "bool": "true", "network, or list of rules": `["a.example"]`, "list of paths": `["x"]`,
		"list of variables": `["A"]`, "profile, or list of profiles": `["offline"]`, "whole number": "3", "list of key points": `["exec"]`, "list of tools": `["WebFetch", "mcp__*"]`, "list of programs": `["git", "/usr/lib/git-core/*"]`, "text, or list of texts": `["true"]`,
		"variable": `"A"`, "variable, or VARIABLE=URL": `"A"`, "path": `"x"`, "list of names": `["a.example"]`, "list of texts": `["a b"]`, `"always" or "risky"`: `"risky"`, "list of methods": `["GET"]`,
	}
	for _, s := range policy.Grammar() {
		for _, k := range s.Keys {
			text := s.Header + "\n" + k.Name + " = " + values[k.Value]
			if s.Header == "{ run = … }" {
				text = "[[stage]]\nbefore = [{ " + k.Name + " = " + values[k.Value] + " }]"
			}
			if !strings.HasPrefix(s.Header, "[") && !strings.HasPrefix(s.Header, "{") {
				text = k.Name + " = " + values[k.Value]
			}
			_, err := policy.Parse("p", []byte(text))
			if values[k.Value] == "" || err != nil && (strings.Contains(err.Error(), "no such key") || strings.Contains(err.Error(), "belongs")) {
				t.Errorf("%s %s: %v", s.Header, k.Name, err)
			}
			if !strings.HasSuffix(k.Text, ".") {
				t.Errorf("%s %s: %q", s.Header, k.Name, k.Text)
			}
		}
	}
}

// The commands of a profile run on the host.
// An entry of [data] is a pattern as in .gitignore, below a directory whose own name is none.
func TestEntriesOfDataArePatterns(t *testing.T) {
	dir := filepath.Join(treetest.Dir(t), "a[b]")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, policy.Name)
	if err := os.WriteFile(file, []byte("[data]\nreadable = [\"*.md\", \"./*.md\", \"src\", \"/srv/x\", '\\*.md']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Read(file, policy.Named)
	if err != nil {
		t.Fatal(err)
	}
	escaped := pathlist.Escape(dir)
	want := []string{escaped + "/**/*.md", escaped + "/*.md", escaped + "/src", "/srv/x", escaped + `/\*.md`}
	if d := cmp.Diff(want, p.Sandbox.Data.Readable); d != "" {
		t.Error(d)
	}
}

func TestProfileWritableForOthersIsRefused(t *testing.T) {
	path := filepath.Join(treetest.Dir(t), policy.Name)
	if err := os.WriteFile(path, []byte(five), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Read(path, policy.Found); err != nil {
		t.Error(err)
	}
	for _, trusted := range []policy.Trust{policy.Named, policy.Found} {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Read(path, trusted); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("writable by everybody: %v", err)
		}
	}
}

func TestProfileOfAnotherUserIsOnlyReadByName(t *testing.T) {
	treetest.NeedRoot(t)
	path := filepath.Join(treetest.Dir(t), policy.Name)
	if err := errors.Join(os.WriteFile(path, []byte(five), 0o644), os.Chown(path, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Read(path, policy.Found); !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), strconv.Itoa(12345)) {
		t.Errorf("found: %v", err)
	}
	if _, err := policy.Read(path, policy.Named); err != nil {
		t.Errorf("named: %v", err)
	}
}

// Opening a pipe does not block.
func TestOtherFilesAreNoProfile(t *testing.T) {
	dir := treetest.Dir(t)
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(large, make([]byte, 128<<10+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]error{
		filepath.Join(dir, "none"): errs.ErrNotFound,
		dir:                        errs.ErrNotSupported,
		pipe:                       errs.ErrNotSupported,
		large:                      errs.ErrNotSupported,
	} {
		if _, err := policy.Read(path, policy.Named); !errors.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzParse checks that any file is a profile or an error with a position.
func FuzzParse(f *testing.F) {
	f.Add(five)
	f.Add("[[stage]]\nbefore = [{run = [1")
	f.Add("a.\"b\".'c' = [1, {d = \"\"\"x\"\"\"}] # e\n[[f.g]]\n[f.g.h]\ni = 1979-05-27 07:32:00\r\nj = '''k'''\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := policy.Parse("p", []byte(text))
		var e *policy.Error
		if err != nil && (!errors.As(err, &e) || e.Mistakes[0].Line < 1 || e.Mistakes[0].Column < 1) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
