package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestManyWritersReplaceAFile: each content is whole, whoever else replaces the file meanwhile, and no writer fails. A
// content that replaced another is not removed in the place of that.
func TestManyWritersReplaceAFile(t *testing.T) {
	dir := treetest.Dir(t)
	path := filepath.Join(dir, "note")
	var all [][]byte
	for i := range 4 {
		all = append(all, []byte(strings.Repeat(fmt.Sprint(i), 1+5000*i)))
	}
	var writers, remover sync.WaitGroup
	for _, data := range all {
		writers.Go(func() {
			for range 300 {
				if err := catalog.ReplaceFile(path, data, false); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	remover.Go(func() {
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			now, err := os.ReadFile(path)
			if err == nil && !slices.ContainsFunc(all, func(data []byte) bool { return bytes.Equal(data, now) }) {
				t.Errorf("a reader finds %d bytes that nobody wrote", len(now))
				return
			}
			if err := catalog.RemoveFileIf(path, all[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
				return
			}
		}
	})
	writers.Wait()
	close(done)
	remover.Wait()
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, all[0]) {
		t.Error("the content to remove is left")
	}
	if err := catalog.ReplaceFile(path, all[1], false); err != nil {
		t.Fatal(err)
	}
	if err := catalog.RemoveFileIf(path, all[0]); err != nil {
		t.Error(err)
	}
	names, err := filepath.Glob(dir + "/*")
	if err != nil || !slices.Equal(names, []string{path}) {
		t.Errorf("the directory has %q, %v; want the file alone", names, err)
	}
}
