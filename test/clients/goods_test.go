package clients

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// greeting is what is in every package.
const greeting = "a word from outside"

// stock makes what the servers hand out: a git repository, and a package for each
// package manager.
func stock(t *testing.T, dir string) {
	t.Helper()
	forNPM(t, dir)
	forGo(t, dir+"/greeting.test/hello/@v")
	must(t, exec.Command("sh", "-euc", `
git init -q "$1/src"
cd "$1/src"
echo "$2" >word
git add word
git -c user.name=clients -c user.email=clients@example.org commit -q --no-gpg-sign -m word
git clone -q --bare . ../repo.git
mkdir -p ../deb/DEBIAN ../deb/usr/share/greeting
echo "$2" >../deb/usr/share/greeting/word
printf '%s\n' 'Package: greeting' 'Version: 1.0' 'Architecture: all' 'Maintainer: clients' 'Description: a word' >../deb/DEBIAN/control
dpkg-deb --root-owner-group -b ../deb ../greeting.deb >/dev/null
`, "sh", dir, greeting))
	deb, err := os.ReadFile(dir + "/greeting.deb")
	if err != nil {
		t.Fatal(err)
	}
	control, err := os.ReadFile(dir + "/deb/DEBIAN/control")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/Packages", fmt.Appendf(control, "Filename: greeting.deb\nSize: %d\nSHA256: %x\n\n", len(deb), sha256.Sum256(deb)))
}

// forNPM makes a registry of one package.
func forNPM(t *testing.T, dir string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package/package.json": `{"name":"greeting","version":"1.0.0","main":"index.js"}`,
		"package/index.js":     "module.exports = " + strconv.Quote(greeting) + "\n",
	} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b.Bytes())
	about, err := json.Marshal(map[string]any{
		"name": "greeting", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{
			"name": "greeting", "version": "1.0.0",
			"dist": map[string]string{
				"tarball":   "http://npm.test/greeting.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/greeting.tgz", b.Bytes())
	write(t, dir+"/greeting", about)
}

// forGo makes a module proxy of one module.
func forGo(t *testing.T, dir string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"go.mod": "module greeting.test/hello\n", "hello.go": "package hello\n\nconst Word = " + strconv.Quote(greeting) + "\n",
	} {
		w, err := z.Create("greeting.test/hello@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/v1.0.0.zip", b.Bytes())
	write(t, dir+"/v1.0.0.mod", []byte("module greeting.test/hello\n"))
	write(t, dir+"/v1.0.0.info", []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`))
	write(t, dir+"/list", []byte("v1.0.0\n"))
}

// database starts PostgreSQL, with TLS.
func database(t *testing.T, dir string) {
	t.Helper()
	home := filepath.Join(dir, "database")
	must(t, exec.Command("sh", "-euc", `
install -d -o postgres -m 700 "$1"
install -o postgres -m 600 "$2/server.pem" "$2/server.key" "$1"
`, "sh", home, dir))
	bin, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(bin) == 0 {
		t.Fatal("no server in /usr/lib/postgresql")
	}
	data := home + "/data"
	setup := `
bin=$(dirname "$1")
"$bin/initdb" -D "$2" -U reader -A trust --no-sync --no-instructions >initdb.log 2>&1 || { cat initdb.log; exit 1; }
echo "host all all all trust" >>"$2/pg_hba.conf"
`
	must(t, asPostgres(t, home, "sh", "-euc", setup, "sh", bin[0], data))
	server := asPostgres(t, home, bin[0], "-D", data, "-k", home, "-c", "listen_addresses=*", "-c", "fsync=off", "-c", "logging_collector=off",
		"-c", "ssl=on", "-c", "ssl_cert_file="+home+"/server.pem", "-c", "ssl_key_file="+home+"/server.key", "-c", "log_min_messages=panic")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		_ = server.Wait()
	})
	for begin := time.Now(); !listens("127.0.0.1:5432"); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("PostgreSQL does not start")
		}
	}
}

// asPostgres is a command of the user that Debian's packages make.
func asPostgres(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd
}

func must(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
}
