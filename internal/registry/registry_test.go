package registry_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/registry"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Each program is asked itself, with settings that name servers of the test. Cost: two seconds.
func TestAConfiguredRegistryIsFound(t *testing.T) {
	for _, c := range []struct {
		program, needs string
		env            map[string]string
		want           []string
	}{
		{"npm", "npm", map[string]string{"npm_config_registry": "http://packages.example/npm/"}, []string{"packages.example:80"}},
		{"pip", "python3", map[string]string{"PIP_INDEX_URL": "https://packages.example:8443/simple"}, []string{"packages.example:8443"}},
		{
			"pip", "python3",
			map[string]string{"PIP_INDEX_URL": "https://a.example/simple", "PIP_EXTRA_INDEX_URL": "https://b.example/simple https://c.example/simple"},
			[]string{"a.example:443", "b.example:443", "c.example:443"},
		},
		{
			"go", "go",
			map[string]string{"GOPROXY": "https://a.example/path,https://b.example|direct", "GOSUMDB": "sums.example+12345678+AAAA"},
			[]string{"a.example:443", "b.example:443", "sums.example:443"},
		},
		{"go", "go", map[string]string{"GOPROXY": "off", "GOSUMDB": "off"}, nil},
		{"go", "go", map[string]string{"GOPROXY": "http://[::1]:3000", "GOSUMDB": "sums.example https://other.example"}, []string{"[::1]:3000", "other.example:443"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			treetest.NeedProgram(t, c.needs)
			t.Setenv("PIP_FIND_LINKS", "")
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			got, err := registry.Hosts(t.Context(), c.program, "")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Without settings of the user, the programs say where their own registries are.
func TestABuiltInRegistryIsFound(t *testing.T) {
	for program, least := range map[string]int{"npm": 1, "pip": 2, "go": 2} {
		t.Run(program, func(t *testing.T) {
			needs := program
			if program == "pip" {
				needs = "python3"
			}
			treetest.NeedProgram(t, needs)
			for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "GOPROXY", "GOSUMDB"} {
				t.Setenv(name, "") // as if it were not set
			}
			if program == "go" {
				t.Setenv("GOENV", "off") // and not HOME, into which go writes in the background
			} else {
				t.Setenv("HOME", t.TempDir())
			}
			got, err := registry.Hosts(t.Context(), program, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(got) < least {
				t.Errorf("only %q", got)
			}
			for _, host := range got {
				if !strings.HasSuffix(host, ":443") {
					t.Errorf("%q", host)
				}
			}
		})
	}
}

func TestTheRegistryOfCargoIsReadFromItsFiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("CARGO_HOME", home)
	write := func(name, text string) {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...string) {
		t.Helper()
		got, err := registry.Hosts(t.Context(), "cargo", "")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	_, err := registry.Hosts(t.Context(), "cargo", "")
	if !errors.Is(err, errs.ErrNotFound) || len(errs.HintsOf(err)) == 0 {
		t.Errorf("of an empty directory: %v", err)
	}
	write("registry/index/index.example-0123456789abcdef/config.json", `{"dl": "https://files.example/crates", "api": "https://api.example"}`)
	want("api.example:443", "files.example:443", "index.example:443")
	write("config.toml", "[source.crates-io]\nreplace-with = \"near\"\n[source.near]\nregistry = \"sparse+http://near.example:8080/index/\"\n[source.here]\ndirectory = \"/srv\"\n")
	want("api.example:443", "files.example:443", "index.example:443", "near.example:8080")
	write("config.toml", "[source")
	if _, err := registry.Hosts(t.Context(), "cargo", ""); err == nil || !strings.Contains(err.Error(), "config.toml") {
		t.Errorf("of a damaged configuration: %v", err)
	}
}

// Nothing from the workspace is executed, whatever PATH and links say.
func TestNoProgramOfTheWorkspaceIsAsked(t *testing.T) {
	treetest.NeedProgram(t, "go")
	w := t.TempDir()
	bin, link := filepath.Join(w, "bin"), filepath.Join(t.TempDir(), "link")
	planted := "#!/bin/sh\ntouch " + filepath.Join(w, "ran") + "\necho '{\"GOPROXY\": \"https://evil.example\", \"registry\": \"https://evil.example\"}'\n"
	err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "go"), []byte(planted), 0o755),
		os.WriteFile(filepath.Join(bin, "npm"), []byte(planted), 0o755), os.Symlink(bin, link), os.Mkdir(link+"s", 0o755),
		os.Symlink(filepath.Join(bin, "npm"), filepath.Join(link+"s", "npm")))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "https://a.example")
	t.Setenv("GOSUMDB", "off")
	was := os.Getenv("PATH")
	t.Setenv("PATH", bin+":bin:"+link+":"+was)
	if got, err := registry.Hosts(t.Context(), "go", w); err != nil || !slices.Equal(got, []string{"a.example:443"}) {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("PATH", link+"s:"+bin)
	if got, err := registry.Hosts(t.Context(), "npm", w); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("of a workspace with the only npm: %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(w, "ran")); err == nil {
		t.Error("a program of the workspace was executed")
	}
}
