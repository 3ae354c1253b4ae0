package wsl

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

func TestANameOfWindowsIsOneOfTheDistribution(t *testing.T) {
	p := Place{Distribution: "Ubuntu"}
	for windows, linux := range map[string]string{
		`C:\Users\ada\project`:            "/mnt/c/Users/ada/project",
		`c:/Users/ada`:                    "/mnt/c/Users/ada",
		`D:\`:                             "/mnt/d",
		`C:\a\..\b`:                       "/mnt/c/b",
		`C:\with space\ü`:                 "/mnt/c/with space/ü",
		`\\wsl$\Ubuntu\home\ada`:          "/home/ada",
		`\\wsl.localhost\ubuntu\home\ada`: "/home/ada",
		`//WSL.LOCALHOST/Ubuntu/`:         "/",
		`\\?\C:\long`:                     "/mnt/c/long",
		`\\?\UNC\wsl$\Ubuntu\etc`:         "/etc",
		`src\main.go`:                     "src/main.go",
		`.`:                               ".",
		`/mnt/c/x`:                        "/mnt/c/x",
		`fix@a..b`:                        "fix@a..b",
		`8080:80`:                         "8080:80",
	} {
		if got, err := p.linux(windows); err != nil || got != linux {
			t.Errorf("%s: %q, %v; not %q", windows, got, err, linux)
		}
	}
	if got, err := (Place{Mount: "/"}).linux(`C:\x`); err != nil || got != "/c/x" {
		t.Errorf("drives in the root: %q, %v", got, err)
	}
}

func TestWhatTheDistributionCannotReachIsRefused(t *testing.T) {
	p := Place{Distribution: "Ubuntu"}
	for name, why := range map[string]string{
		`C:file`:              "current directory",
		`\\server\share\file`: "another machine",
		`\\wsl$\Debian\home`:  "belongs to the distribution Debian",
		`\\wsl$`:              "another machine",
	} {
		got, err := p.linux(name)
		if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), why) || len(errs.HintsOf(err)) != 1 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestANameGoesThereAndBack(t *testing.T) {
	p := Place{Distribution: "Ubuntu"}
	for _, name := range []string{`C:\`, `C:\Users\ada`, `\\wsl.localhost\Ubuntu\home\ada`, `src\main.go`} {
		linux, err := p.linux(name)
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := p.Windows(linux); !ok || back != name {
			t.Errorf("%s became %s and then %s", name, linux, back)
		}
	}
	if got, _ := p.Windows("/mnt/wsl/x"); got != `\\wsl.localhost\Ubuntu\mnt\wsl\x` {
		t.Errorf("a directory beside the drives: %s", got)
	}
	if got, ok := (Place{}).Windows("/home"); ok {
		t.Errorf("a distribution without a name gave %s", got)
	}
}

func TestADirectoryTellsItsDistribution(t *testing.T) {
	for dir, want := range map[string]string{
		`\\wsl$\Debian\home`: "Debian", `\\wsl.localhost\Ubuntu`: "Ubuntu", `\\?\UNC\wsl$\Arch\x`: "Arch", `C:\x`: "", `\\server\share`: "",
	} {
		if got := DistributionOf(dir); got != want {
			t.Errorf("%s: %q, not %q", dir, got, want)
		}
	}
}

func TestFilesAreTranslatedAndTheCommandIsLeftAlone(t *testing.T) {
	for line, want := range map[string]string{
		`run|--|C:\tool.exe|--dir=C:\x`:                 "run|--|C:\\tool.exe|--dir=C:\\x",
		`run|-C|C:\work|--hide=D:\keys|--|make`:         "run|-C|/mnt/c/work|--hide=/mnt/d/keys|--|make",
		`run|-CC:\work|--env|PATTERN=a\b|--|make`:       "run|-C/mnt/c/work|--env|PATTERN=a\\b|--|make",
		`--state|C:\state|ls`:                           "--state|/mnt/c/state|ls",
		`diff|fix|src\main.go|--html=out\page.html`:     "diff|fix|src/main.go|--html=out/page.html",
		`race|--try|sed s/\./x/ a|--check|test C:\x`:    "race|--try|sed s/\\./x/ a|--check|test C:\\x",
		`race|--check=grep \bx\b f|--output|..\out`:     "race|--check=grep \\bx\\b f|--output|../out",
		`promote|fix|--only|src\**|--allow=bin\tool`:    "promote|fix|--only|src/**|--allow=bin/tool",
		`run|--memory|2G|-q|--best-effort|--|sh|-c|a\b`: "run|--memory|2G|-q|--best-effort|--|sh|-c|a\\b",
		`run|-C`: "run|-C",
	} {
		got, err := Place{Distribution: "Ubuntu"}.Command(`C:\here`, strings.Split(line, "|"))
		all := append([]string{"-d", "Ubuntu", "--cd", "/mnt/c/here", "--exec", "snapfs"}, strings.Split(want, "|")...)
		if err != nil || !slices.Equal(got, all) {
			t.Errorf("%s:\n%q, %v\nnot\n%q", line, got, err, all)
		}
	}
	got, err := Place{}.Command(`\\wsl$\Debian\home`, []string{"ls"})
	if want := []string{"--cd", "/home", "--exec", "snapfs", "ls"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the default distribution: %q, %v", got, err)
	}
	for _, args := range [][]string{{"run", "-C", `\\server\x`}, {"diff", "fix", `C:x`}, {"run", `--dir=C:x`}} {
		if got, err := (Place{}).Command(`C:\`, args); err == nil {
			t.Errorf("%q became %q", args, got)
		}
	}
}
