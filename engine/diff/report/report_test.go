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
	if err := report.Table(&out, report.Rows(changes, nil)); err != nil {
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
	out, err := json.MarshalIndent(report.Of(changes), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		`"path_base64": "` + base64.StdEncoding.EncodeToString([]byte("l\xff")) + `"`, `"mode": "4755"`,
		`"mtime": "2001-09-09T01:46:40.000000005Z"`, `"user.k": "AA=="`, `"kind": "modified"`, `"type": "symlink"`,
		`"bytes_added": 2048`, `"bytes_removed": 17`,
	} {
		if !strings.Contains(string(out), field) {
			t.Errorf("no %s in\n%s", field, out)
		}
	}
	var back report.Document
	if err := json.Unmarshal(out, &back); err != nil || len(back.Changes) != len(changes) {
		t.Errorf("read back %d changes, %v", len(back.Changes), err)
	}
}

func TestARenameIsOneRow(t *testing.T) {
	dir, file := diff.Node{Mode: fs.ModeDir | 0o755}, diff.Node{Mode: 0o644, Size: 10}
	edited, run := diff.Node{Mode: 0o644, Size: 12}, diff.Node{Mode: 0o755, Size: 10}
	changes := []diff.Change{
		{Path: "a", Kind: diff.Deleted, Old: &dir},
		{Path: "a/edited", Kind: diff.Deleted, Old: &file},
		{Path: "a/gone", Kind: diff.Deleted, Old: &file},
		{Path: "a/same", Kind: diff.Deleted, Old: &file},
		{Path: "b", Kind: diff.Added, New: &dir},
		{Path: "b/edited", Kind: diff.Added, New: &edited},
		{Path: "b/same", Kind: diff.Added, New: &file},
		{Path: "b\x1b", Kind: diff.Added, New: &file},
		{Path: "plain", Kind: diff.Deleted, Old: &file},
		{Path: "run", Kind: diff.Deleted, Old: &file},
		{Path: "z", Kind: diff.Added, New: &run},
	}
	renames := []diff.Rename{
		{From: "a", To: "b", Exact: true, Similarity: 100, Dir: true},
		{From: "a/edited", To: "b/edited", Similarity: 80},
		{From: "a/same", To: "b/same", Exact: true, Similarity: 100},
		{From: "plain", To: "b\x1b", Exact: true, Similarity: 100},
		{From: "run", To: "z", Exact: true, Similarity: 100},
	}
	var out bytes.Buffer
	if err := report.Table(&out, report.Rows(changes, renames)); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`D  file                         -10 B  a/gone`,
		`R  directory                           a -> b`,
		`R  content (80% the same)        +2 B  a/edited -> b/edited`,
		`R  file                                plain -> "b\x1b"`,
		`R  mode                                run -> z`, "",
	}, "\n")
	if out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
	if d := report.Of(changes, renames...); len(d.Renames) != 5 || d.Summary.Renamed != 5 || len(d.Changes) != len(changes) {
		t.Errorf("as JSON: %d renames, %+v", len(d.Renames), d.Summary)
	}
}

func TestARenamedDirectoryShowsHowManyEntriesMovedAlong(t *testing.T) {
	dir, shut, file := diff.Node{Mode: fs.ModeDir | 0o755}, diff.Node{Mode: fs.ModeDir | 0o700}, diff.Node{Mode: 0o644, Size: 10}
	changes := []diff.Change{
		{Path: "a", Kind: diff.Deleted, Old: &dir},
		{Path: "a/gone", Kind: diff.Deleted, Old: &file},
		{Path: "b", Kind: diff.Added, New: &shut, Moved: &diff.Moved{From: "a", Entries: 500}},
	}
	renames := []diff.Rename{{From: "a", To: "b", Exact: true, Similarity: 100, Dir: true, Entries: 500}}
	var out bytes.Buffer
	if err := report.Table(&out, report.Rows(changes, renames)); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`D  file                     -10 B  a/gone`,
		`R  mode (500 entries)              a -> b`, "",
	}, "\n")
	if out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
	d := report.Of(changes, renames...)
	if d.Renames[0].Entries != 500 || d.Summary.Renamed != 501 || d.Summary.Added != 501 || d.Summary.Deleted != 502 {
		t.Errorf("as JSON: %+v", d)
	}
}
