package walls

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// partsEnv tells the broken build what it leaves out: words with blanks between.
const partsEnv = "SNAPFS_TEST_WITHOUT"

// helper is what each package with a replaced place gets beside its files.
const helper = `
import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// isOut reports whether a part is left out.
func isOut(part string) bool {
	return slices.Contains(strings.Fields(os.Getenv("` + partsEnv + `")), part)
}

// isIn is 1 for a part that is there, and 0 for one that is left out.
func isIn(part string) int {
	if isOut(part) {
		return 0
	}
	return 1
}

// extra are the numbers of the parts "kind:number".
func extra(kind string) (numbers []int) {
	for _, part := range strings.Fields(os.Getenv("` + partsEnv + `")) {
		if text, ok := strings.CutPrefix(part, kind+":"); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				panic(err)
			}
			numbers = append(numbers, n)
		}
	}
	return numbers
}

var _, _, _ = isOut, isIn, extra
`

// A place is where a part of a wall is made, by its words, and what stands there in
// the broken build.
type place struct{ file, is, becomes string }

// broken returns the text of each file that the broken build replaces or adds. It names
// every place whose words are not in the source once.
func broken(root string) (map[string]string, error) {
	sources := map[string]string{}
	packages := map[string]bool{}
	var all error
	for _, p := range places {
		text, ok := sources[p.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				all = errors.Join(all, err)
				continue
			}
			text = string(b)
		}
		if n := strings.Count(text, p.is); n != 1 {
			all = errors.Join(all, fmt.Errorf("%s has changed: what makes a wall is there %d times, not once: %q", p.file, n, p.is))
		}
		sources[p.file] = strings.Replace(text, p.is, p.becomes, 1)
		packages[filepath.Dir(p.file)] = true
	}
	for dir := range packages {
		sources[dir+"/without.go"] = "package " + filepath.Base(dir) + "\n" + helper
	}
	return sources, all
}

// build makes the broken programs in dir.
func build(dir, root string) error {
	sources, err := broken(root)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for file, text := range sources {
		to := filepath.Join(dir, "source", strings.ReplaceAll(file, "/", "+"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
		replace[filepath.Join(root, file)] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", file, "-o", dir+"/",
		"github.com/snapfs/snapfs/cmd/snapfs", "github.com/snapfs/snapfs/cmd/snapfs-edge", "github.com/snapfs/snapfs/cmd/snapfs-fuse").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the broken build: %w\n%s", err, out)
	}
	return nil
}
