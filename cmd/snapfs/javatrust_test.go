//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

const javaClient = `
import java.net.URI;
import java.net.http.*;
class Get {
	public static void main(String[] args) throws Exception {
		var ask = HttpRequest.newBuilder(URI.create(args[0])).header("X-Api-Key", System.getenv("API_KEY")).build();
		System.out.println("status " + HttpClient.newHttpClient().send(ask, HttpResponse.BodyHandlers.ofString()).statusCode());
	}
}
`

// A Java runtime trusts the certificates of its own file cacerts alone. Only make test-long runs it: it compiles. Cost:
// 5 s.
func TestJavaTrustsTheCAOfTheSandbox(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedProgram(t, "java", "javac")
	v := newVault(t, `"GET https://host.snapfs:PORT/v1/*"`, "", "")
	if err := os.WriteFile(filepath.Join(v.workspace, "try.java"), []byte(javaClient), 0o644); err != nil {
		t.Fatal(err)
	}
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	ask := []string{"exec", "fix", "--", "java", "try.java", v.script("https://host.snapfs:PORT/v1/echo")}
	v.snapfs(ask...).want(0).has("status 200")
	if with, _ := v.requests(); with != 1 {
		t.Errorf("the server got the key %d times", with)
	}
	v.snapfs("stop", "fix").want(0)
	v.snapfs(ask...).want(0).has("status 200") // by the CA of the next proxy
	v.snapfs("diff", "fix").want(0)
	v.real("try.java")
}
