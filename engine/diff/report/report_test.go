package report_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/report"
)

var when = time.Unix(1e9, 5)

var changes = []diff.Change{
	{Path: "a\x1b[31m\u202eb", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSetuid | 0o755, Size: 2048, MTime: when, CTime: when}},
	{Path: "dir", Kind: diff.Modified, What: diff.Type, Old: &diff.Node{Mode: 0o644, Size: 10}, New: &diff.Node{Mode: fs.ModeDir | 0o755}},
	{Path: "f", Kind: diff.Modified, What: diff.Mode | diff.Content, Old: &diff.Node{Mode: 0o644, Size: 10}, New: &diff.Node{Mode: 0o600, Size: 4}},
	{Path: "l\xff", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: "x\n"}},
	{Path: "z", Kind: diff.Deleted, Old: &diff.Node{Mode: 0o644, Size: 1, Xattrs: map[string]string{"user.k": "\x00"}}},
}

func TestTableKeepsTheTerminalSafe(t *testing.T) {
	var out bytes.Buffer
	if err := report.Table(&out, changes); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`A  file                 +2.0 KiB  "a\x1b[31m\u202eb"`,
		`M  file to directory       -10 B  dir`,
		`M  content,mode             -6 B  f`,
		`A  symlink                        "l\xff" -> "x\n"`,
		`D  file                     -1 B  z`, "",
	}, "\n")
	if out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestJSONKeepsEveryByteAndItsFieldNames(t *testing.T) {
	var out bytes.Buffer
	if err := report.JSON(&out, changes); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		`"path_base64": "` + base64.StdEncoding.EncodeToString([]byte("l\xff")) + `"`, `"mode": "4755"`,
		`"mtime": "2001-09-09T01:46:40.000000005Z"`, `"user.k": "AA=="`, `"kind": "modified"`, `"type": "symlink"`,
		`"bytes_added": 2048`, `"bytes_removed": 17`,
	} {
		if !strings.Contains(out.String(), field) {
			t.Errorf("no %s in\n%s", field, out.String())
		}
	}
	var back report.Document
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Changes) != len(changes) {
		t.Errorf("read back %d changes, %v", len(back.Changes), err)
	}
}
