package hostfs

import (
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Programs of a sandbox read the accounts, and no hash; what no password matches says so, as before.
func TestAShadowFileIsShownWithoutHashes(t *testing.T) {
	t.Parallel()
	const text = "root:$6$salt$hash:20228:0:99999:7:::\ndaemon:*:1:0:9:7:::\nopen::1::::::\nlocked:!$y$j9T$s$h:1::::::\ntwice:!!$1$h:1::::::\n" +
		"new:!!:1::::::\nnever:!:1::::::\nstar:!*:1::::::\nx:x:1::::::\ndes:abJnggxhB/yWI:1::::::\nword:*LK*:1::::::\n" +
		"+::::::::\n$6$salt$continued\nshort:$6$hash\n"
	const want = "root:*:20228:0:99999:7:::\ndaemon:*:1:0:9:7:::\nopen::1::::::\nlocked:!*:1::::::\ntwice:!!*:1::::::\n" +
		"new:!!:1::::::\nnever:!:1::::::\nstar:!*:1::::::\nx:x:1::::::\ndes:*:1::::::\nword:*:1::::::\n" +
		"+::::::::\n"
	if got := string(withoutHashes([]byte(text))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := string(withoutHashes([]byte("wheel:$6$h:ann:bob\nadm:!::"))); got != "wheel:*:ann:bob\nadm:!::" {
		t.Errorf("a file of groups: %s", got)
	}
}

// One flag shows all that useradd writes, and the file of the groups alone can be shown, too.
func TestExposingTheShadowFileShowsAllFilesWithHashes(t *testing.T) {
	treetest.NeedRoot(t)
	for expose, want := range map[string]int{"": len(places.HashFiles), places.ShadowFile: 0, "/etc": 0, "/etc/gshadow": len(places.HashFiles) - 1, "/etc/shadow-": len(places.HashFiles) - 1} {
		h := hiding{real: SecretPaths{machine: slices.Clone(places.HashFiles)}}
		if expose != "" {
			h.expose = exposed([]string{expose})
		}
		root := realDir(t) // without such files none is left out for being empty
		for _, f := range places.HashFiles {
			mustWrite(t, root+f)
		}
		h.roots = map[string]string{"/": root}
		hide := slices.DeleteFunc(mustHide(t, h, root, "/w"), func(p string) bool { return !hasHashes(p) })
		slices.Sort(hide)
		if got := len(slices.Compact(hide)); got != want {
			t.Errorf("--expose %s: %d of %d are hidden, want %d", expose, got, len(places.HashFiles), want)
		}
	}
}

// A path that the policy hides by itself is empty, and the host's file gives the mode and the owner.
func TestOnlyTheHostsHiddenFilesAreShownRedacted(t *testing.T) {
	treetest.NeedRoot(t)
	list := redacted([]string{"/etc/ssh", places.ShadowFile, "/etc/shadow-"}, nil)
	if len(list) != 1 || list[0].Path != places.ShadowFile || list[0].Mode&0o007 != 0 || !strings.HasPrefix(string(list[0].Text), "root:") {
		t.Errorf("%+v", list)
	}
	if list := redacted([]string{places.ShadowFile}, []string{places.ShadowFile}); len(list) > 0 {
		t.Errorf("a file that --hide names: %+v", list)
	}
}
