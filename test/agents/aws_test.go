//go:build linux

package agents

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A cloud is a stand-in for AWS by TLS on this host. It verifies the signature of each request by the published rules,
// with code of its own, and answers as S3 and DynamoDB do.
type cloud struct {
	id, key, token, port string

	mu     sync.Mutex
	served []string // requests with a signature by the real key, and their payload
	denied []string
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	random := make([]byte, 40)
	_, _ = rand.Read(random) // it never fails
	c := &cloud{id: "ASIAREALREALREALREAL", key: hex.EncodeToString(random)[:36] + "/+z=", token: hex.EncodeToString(random[20:])}
	_, c.port = serveTLS(t, c, false)
	return c
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signs reports whether the request is signed by the cloud's key (Signature Version 4).
func (c *cloud) signs(r *http.Request, body []byte) bool {
	part := map[string]string{}
	for one := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ", ") {
		name, value, _ := strings.Cut(one, "=")
		part[name] = value
	}
	scope := strings.Split(part["Credential"], "/")
	if len(scope) != 5 || scope[0] != c.id || r.Header.Get("X-Amz-Security-Token") != c.token {
		return false
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	digest := sha256.Sum256(body)
	payload := hex.EncodeToString(digest[:])
	if p := r.Header.Get("X-Amz-Content-Sha256"); p != "" {
		if len(p) == len(payload) && p != payload {
			return false
		}
		payload = p
	}
	canonical := r.Method + "\n" + path + "\n" + strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20") + "\n"
	for name := range strings.SplitSeq(part["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		canonical += name + ":" + strings.Join(strings.Fields(value), " ") + "\n"
	}
	whole := sha256.Sum256([]byte(canonical + "\n" + part["SignedHeaders"] + "\n" + payload))
	key := []byte("AWS4" + c.key)
	for _, one := range scope[1:] {
		key = mac(key, one)
	}
	text := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + strings.Join(scope[1:], "/") + "\n" + hex.EncodeToString(whole[:])
	return strings.Contains(part["SignedHeaders"], "x-amz-security-token") && hex.EncodeToString(mac(key, text)) == part["Signature"]
}

// ServeHTTP answers a request of S3 or DynamoDB.
func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	kind, payload := "s3", r.Header.Get("X-Amz-Content-Sha256")
	if r.Header.Get("X-Amz-Target") != "" {
		kind = "dynamodb"
	}
	if len(payload) == 2*sha256.Size {
		payload = "digest"
	}
	line := kind + " " + r.Method + " " + r.RequestURI + " " + payload
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.signs(r, body) {
		c.denied = append(c.denied, line)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	c.served = append(c.served, line)
	switch {
	case kind == "dynamodb":
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		fmt.Fprint(w, `{"TableNames":["one"]}`)
	case strings.Contains(r.URL.RawQuery, "list-type=2"):
		fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>listed</Key><Size>1</Size></Contents></ListBucketResult>`)
	case r.Method == http.MethodGet && r.Header.Get("Range") == "bytes=1-3":
		w.Header().Set("Content-Range", "bytes 1-3/5")
		w.WriteHeader(http.StatusPartialContent)
		fmt.Fprint(w, "ell")
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", `"x"`)
	}
}

// awsProgram uses boto3 as its documents say; the last three of its requests must not reach the server.
const awsProgram = `
import boto3, io, os, urllib.request, urllib.error
from botocore.config import Config
from botocore.exceptions import ClientError
at = dict(endpoint_url=os.environ["CLOUD"], region_name="eu-west-1")
one = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
s3 = boto3.client("s3", config=one, **at)
s3.put_object(Bucket="b", Key="a b/ü+c", Body=b"hello")
s3.upload_fileobj(io.BytesIO(b"y" * 1000), "b", "plain")
boto3.client("s3", config=one.merge(Config(s3={"addressing_style": "path", "payload_signing_enabled": True}, request_checksum_calculation="when_required")), **at).put_object(Bucket="b", Key="signed", Body=b"z")
print(s3.get_object(Bucket="b", Key="a b/ü+c", Range="bytes=1-3")["Body"].read().decode())
print(s3.list_objects_v2(Bucket="b", Prefix="x y/&=")["Contents"][0]["Key"])
print(boto3.client("dynamodb", config=one, **at).list_tables()["TableNames"])
def refused(act):
    try:
        act()
    except ClientError as e:
        print("refused:", e.response["ResponseMetadata"]["HTTPHeaders"].get("x-snapfs-refused"))
    except urllib.error.HTTPError as e:
        print("refused:", e.headers["x-snapfs-refused"])
refused(lambda: urllib.request.urlopen(s3.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})))
refused(lambda: boto3.client("s3", config=one, aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="another", **at).list_objects_v2(Bucket="b"))
refused(lambda: boto3.client("s3", config=one, aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"], aws_session_token="t", **at).list_objects_v2(Bucket="b"))
for name, value in sorted(os.environ.items()):
    if name.startswith("AWS_"): print(name + "=" + value)
`

// TestRealAWSClientsSignWithPlaceholders: boto3, unchanged as its registry has it, with temporary keys that are only in
// the proxy. Only make test-long runs it: it fetches 15 MB.
func TestRealAWSClientsSignWithPlaceholders(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/net/tun")
	python := pip(t, "boto3==1.44.8", "botocore==1.44.8")
	d, c := newDesk(t), newCloud(t)
	dir := treetest.Dir(t)
	credentials, profile := filepath.Join(dir, "credentials"), filepath.Join(dir, "profile.toml")
	for path, text := range map[string]string{
		credentials: "[other]\naws_access_key_id = x\naws_secret_access_key = y\n[work]\naws_access_key_id = " + c.id + "\naws_secret_access_key=" + c.key + "\naws_session_token=" + c.token + "\n",
		profile:     "[sandbox]\nnet = [\"host.snapfs:" + c.port + "\"]\n[secrets.cloud]\naws = \"profile:work\"\nhosts = [\"host.snapfs:" + c.port + "\"]\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", credentials)
	if _, err := d.snapfs("new", "-C", d.work, "--profile", profile, "--env", "AWS_SHARED_CREDENTIALS_FILE=/nowhere", "fix"); err != nil {
		t.Fatal(err)
	}
	out, err := d.snapfs("exec", "--env", "AWS_SESSION_TOKEN=t", "--env", "CLOUD=https://host.snapfs:"+c.port, "fix", "--", python, "-c", awsProgram)
	for _, want := range []string{"ell\nlisted\n['one']\n", "refused: snapfs: the secret cloud of AWS: a presigned URL", "the signature is not that of the placeholder key", "the placeholder keys have no session token", "AWS_ACCESS_KEY_ID=AKIA", "SnapfsPlaceholder"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is not in the output, %v:\n%s", want, err, out)
		}
	}
	for _, secret := range []string{c.key, c.token, c.id, "AWS_SESSION_TOKEN="} {
		if strings.Contains(out, secret) {
			t.Errorf("%q is in the output:\n%s", secret, out)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Join(c.served, "\n")
	for _, want := range []string{"s3 PUT /b/a%20b/%C3%BC%2Bc", "s3 PUT /b/plain", "s3 PUT /b/signed digest", "s3 GET /b/a%20b/%C3%BC%2Bc", "s3 GET /b?list-type=2&prefix=x%20y%2F%26%3D", "dynamodb POST / "} {
		if !strings.Contains(all, want) {
			t.Errorf("%q was not served, but\n%s", want, all)
		}
	}
	if len(c.served) != 6 || len(c.denied) > 0 {
		t.Errorf("served\n%s\ndenied\n%s", all, strings.Join(c.denied, "\n"))
	}
	if out, err = d.snapfs("net", "fix"); err != nil || !strings.Contains(out, ", with cloud") || !strings.Contains(out, "a presigned URL") {
		t.Errorf("net: %v %s", err, out)
	}
}
