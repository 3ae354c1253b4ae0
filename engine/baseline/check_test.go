package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// Only damaged content is put aside: a file that cannot be read, such as a directory in its place, or that a
// newer snapfs wrote stays, and no message asks for its repair.
func TestARepairPutsOnlyDamagedFilesAside(t *testing.T) {
	const text = "an original\n"
	sum := sha256.Sum256([]byte(text))
	data := hex.EncodeToString(sum[:])
	list := (&Baseline{Nodes: map[string]Entry{"/w/f": {Data: data}}}).encode()
	opening := window{since: time.Unix(1_800_000_000, 0), state: opened}.encode(true)
	for name, c := range map[string]struct {
		file    string
		content []byte // nil for a directory
		want    error
		aside   []string
	}{
		"an unreadable list":      {baselineFile, nil, syscall.EISDIR, nil},
		"a newer list":            {baselineFile, []byte("snapfs kept 4\nwhatever\n"), errs.ErrNotSupported, nil},
		"a damaged list":          {baselineFile, list[:len(list)-1], errs.ErrCorrupt, []string{windowFile, baselineFile}},
		"an empty list":           {baselineFile, []byte{}, errs.ErrCorrupt, []string{windowFile, baselineFile}},
		"an unreadable window":    {windowFile, nil, syscall.EISDIR, nil},
		"a newer window":          {windowFile, []byte("snapfs window 3\nwhatever\n"), errs.ErrNotSupported, nil},
		"a damaged window":        {windowFile, opening[:len(opening)-1], errs.ErrCorrupt, []string{windowFile}},
		"an unreadable text":      {data, nil, syscall.EISDIR, nil},
		"a damaged text":          {data, []byte("another\n"), errs.ErrCorrupt, []string{data}},
		"unreadable stamps":       {"../../" + stampsFile, nil, syscall.EISDIR, nil},
		"damaged stamps":          {"../../" + stampsFile, []byte("{"), errs.ErrCorrupt, []string{"../../" + stampsFile}},
		"an unreadable older one": {baselineJSON, nil, nil, nil}, // the present one counts
	} {
		t.Run(name, func(t *testing.T) {
			cat, err := catalog.Open(filepath.Join(t.TempDir(), "state"))
			if err != nil {
				t.Fatal(err)
			}
			bl := New(cat, nil, nil, func(string) {})
			rec := &catalog.Record{Name: "s"}
			dir := bl.BaseDir("s", 0)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{baselineFile: list, windowFile: opening, data: []byte(text), "../../" + stampsFile: []byte("{}")}
			files[c.file] = c.content
			for file, content := range files {
				if path := filepath.Join(dir, file); content == nil {
					err = os.Mkdir(path, 0o700)
				} else {
					err = os.WriteFile(path, content, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			damaged := errors.Is(c.want, errs.ErrCorrupt)
			for _, repair := range []bool{false, true} {
				found, err := bl.Check(rec, repair)
				if damaged && (err != nil || len(found) != 1 || found[0].Where != filepath.Join(dir, c.file) || found[0].Mended != repair) {
					t.Errorf("a check that repairs: %t finds %+v, %v", repair, found, err)
				}
				if !damaged && (len(found) > 0 || !errors.Is(err, c.want) || errors.Is(err, errs.ErrCorrupt) || len(errs.HintsOf(err)) > 0) {
					t.Errorf("a check that repairs: %t finds %+v, %v, hints %q", repair, found, err, errs.HintsOf(err))
				}
			}
			for _, file := range slices.Sorted(maps.Keys(files)) {
				_, err := os.Lstat(filepath.Join(dir, file) + asideSuffix)
				if aside := err == nil; aside != slices.Contains(c.aside, file) {
					t.Errorf("%s is put aside: %t", file, aside)
				}
			}
		})
	}
}
