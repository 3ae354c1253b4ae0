package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/placeholder"
)

const (
	awsKey   = "real/secret+access=key0123456789abcdefgh"
	awsToken = "real-session-token-0123456789"
)

// newAWSWorld is a world whose secret is keys of AWS.
func newAWSWorld(t *testing.T, change func(*network.BrokerSecret)) *world {
	t.Helper()
	return newWorld(t, anyRule, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(rw, "served "+r.Header.Get("X-Amz-Security-Token")+" "+string(body)+" "+awsKey)
	}, func(o *Options) {
		o.Config.Secrets[0].AWS = true
		if change != nil {
			change(&o.Config.Secrets[0])
		}
		o.Values = [][]byte{[]byte(`{"id":"ASIAREAL","key":"` + awsKey + `","token":"` + awsToken + `"}`)}
	})
}

func digestOf(body string) string {
	digest := sha256.Sum256([]byte(body))
	return hex.EncodeToString(digest[:])
}

// signed sends a request that is signed with these keys for this payload; change may change it after that.
func (w *world) signed(method, url, body, payload string, keys aws.Credentials, change func(*http.Request)) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if payload != "" {
		r.Header.Set("X-Amz-Content-Sha256", payload)
	} else {
		payload = digestOf(body)
	}
	r.Header.Set("X-Amz-Meta", "a  b")
	if err := v4.NewSigner().SignHTTP(context.Background(), keys, r, payload, "s3", "eu-west-1", time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }); err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	response, err := w.client(false).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response, string(text)
}

// mine are the placeholder keys of the world.
func (w *world) mine() aws.Credentials {
	return aws.Credentials{AccessKeyID: placeholder.KeyID(w.key), SecretAccessKey: w.key}
}

func TestRequestsToAWSAreSignedAnew(t *testing.T) {
	for _, payload := range []string{"", digestOf("body"), "UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"} {
		w := newAWSWorld(t, nil)
		response, body := w.signed("PUT", origin+"/b/a%20b%2B/c?x=1%2F2&a=", "body", payload, w.mine(), func(r *http.Request) { r.Header.Set("Range", "bytes=0-1") })
		seen, bodies := w.requests()
		if response.StatusCode != http.StatusOK || len(seen) != 1 || bodies[0] != "body" || seen[0].Header.Get("Range") == "" {
			t.Fatalf("%s: %d %s, %d requests", payload, response.StatusCode, body, len(seen))
		}
		if body != "served "+w.key+" body "+w.key {
			t.Errorf("%s: the response has %q", payload, body)
		}
		// The server makes the signature from what it got, with the real keys.
		got := seen[0]
		one := got.Clone(t.Context())
		one.Header = http.Header{}
		one.URL.Host = got.Host
		for _, name := range []string{"X-Amz-Content-Sha256", "X-Amz-Meta"} {
			if v := got.Header.Get(name); v != "" {
				one.Header.Set(name, v)
			}
		}
		when, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
		if err != nil {
			t.Fatal(err)
		}
		if payload == "" {
			payload = digestOf("body")
		}
		err = v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: "ASIAREAL", SecretAccessKey: awsKey, SessionToken: awsToken}, one, payload, "s3", "eu-west-1", when,
			func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
		if err != nil || one.Header.Get("Authorization") != got.Header.Get("Authorization") || got.Header.Get("X-Amz-Security-Token") != awsToken {
			t.Errorf("%s: %v\nwant %s\ngot  %s", payload, err, one.Header.Get("Authorization"), got.Header.Get("Authorization"))
		}
		if ev := w.last(); !ev.Allowed || len(ev.Secrets) != 1 || ev.Secrets[0] != "KEY" {
			t.Errorf("%+v", ev)
		}
	}
}

func TestOtherSignaturesAreRefused(t *testing.T) {
	w := newAWSWorld(t, func(s *network.BrokerSecret) { s.Paths = []string{"/b/*"} })
	edit := func(name, from, to string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, strings.Replace(r.Header.Get(name), from, to, 1)) }
	}
	wrong := w.mine()
	wrong.SecretAccessKey += "x"
	temporary := w.mine()
	temporary.SessionToken = "t"
	for want, one := range map[string]struct {
		url, payload string
		keys         aws.Credentials
		change       func(*http.Request)
	}{
		"is not that of the placeholder key":          {"/b/k", "", wrong, nil},
		"is not that of the placeholder key ":         {"/b/k", "", w.mine(), func(r *http.Request) { r.URL.Path = "/b/other" }},
		"is not that of the placeholder key  ":        {"/b/k", "", w.mine(), func(r *http.Request) { r.URL.RawQuery = "acl" }},
		"is not that of the placeholder key   ":       {"/b/k", "", w.mine(), edit("X-Amz-Meta", "a", "b")},
		"is not that of the placeholder key    ":      {"/b/k", "", w.mine(), func(r *http.Request) { r.Method = "POST" }},
		"is not that of the placeholder key     ":     {"/b/k", "", w.mine(), edit("Authorization", "eu-west-1", "us-east-1")},
		"is not that of the placeholder key      ":    {"/b/k", "", w.mine(), func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("evil")), 4 }},
		"the placeholder keys have no session token":  {"/b/k", "", temporary, nil},
		"whose chunks are signed":                     {"/b/k", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", w.mine(), nil},
		"is not supported, only one AWS4-HMAC-SHA256": {"/b/k", "", w.mine(), edit("Authorization", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")},
		"the header Authorization is malformed":       {"/b/k", "", w.mine(), edit("Authorization", "/aws4_request", "")},
		"X-Amz-Date is not that of the signature":     {"/b/k", "", w.mine(), func(r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") }},
		"the signature is for a time": {"/b/k", "", w.mine(), func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/"+r.Header.Get("X-Amz-Date")[:8]+"/", "/20200101/", 1))
			r.Header.Set("X-Amz-Date", "20200101T000000Z")
		}},
		"is not for the path /c/k":                             {"/c/k", "", w.mine(), nil},
		"a presigned URL, whose signature is in the query":     {"/b/k?X-Amz-Credential=" + w.mine().AccessKeyID + "%2Fx", "", aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "x"}, nil},
		"a presigned URL, whose signature is in the query ":    {"/b/k?X-Amz-Credential=%41" + w.mine().AccessKeyID[1:] + "%2Fx", "", aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "x"}, nil},
		"the secret access key KEY itself, which clients only": {"/b/k", "", w.mine(), func(r *http.Request) { r.Header.Set("X-Leak", w.key) }},
	} {
		response, body := w.signed("PUT", origin+one.url, "body", one.payload, one.keys, one.change)
		want = strings.TrimSpace(want)
		if ev := w.last(); response.StatusCode != http.StatusForbidden || !strings.Contains(body, want) || ev.Allowed || !strings.Contains(ev.Why, want) {
			t.Errorf("%s: %d %s", want, response.StatusCode, body)
		}
	}
	if seen, _ := w.requests(); len(seen) > 0 {
		t.Errorf("the server got %d requests", len(seen))
	}
	// A request that somebody else's keys sign is not the proxy's.
	if response, _ := w.signed("PUT", origin+"/c/k", "body", "", aws.Credentials{AccessKeyID: "AKIAOTHER", SecretAccessKey: "x"}, nil); response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
	if seen, _ := w.requests(); len(seen) != 1 || !strings.Contains(seen[0].Header.Get("Authorization"), "AKIAOTHER") {
		t.Errorf("%d requests", len(seen))
	}
	// Nor is one that nobody signs, as of a client that reads a public bucket: it passes without the keys.
	response, _ := w.signed("GET", origin+"/c/k", "", "", w.mine(), func(r *http.Request) {
		for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Content-Sha256"} {
			r.Header.Del(name)
		}
	})
	seen, _ := w.requests()
	if ev := w.last(); response.StatusCode != http.StatusOK || len(seen) != 2 || seen[1].Header.Get("Authorization") != "" || !ev.Allowed || len(ev.Secrets) > 0 {
		t.Errorf("%s, %d requests, %+v", response.Status, len(seen), ev)
	}
}

// Under names of AWS any customer may run a server, to which a signature for a wildcard must not go.
func TestServersOfAnybodyAreNamed(t *testing.T) {
	for name, want := range map[string]bool{
		"s3.eu-central-1.amazonaws.com": false, "b.s3.amazonaws.com": false, "dynamodb.us-east-1.amazonaws.com": false, "compute.amazonaws.com.example": false,
		"x.execute-api.us-east-1.amazonaws.com": true, "x.lambda-url.us-east-1.on.aws": true, "x.us-east-1.elb.amazonaws.com": true, "ec2-1-2-3-4.us-east-1.compute.amazonaws.com": true,
	} {
		if got := anybodys(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	s := &secret{BrokerSecret: network.BrokerSecret{Hosts: []string{"*.amazonaws.com:443", "x.execute-api.us-east-1.amazonaws.com:443"}}}
	if !s.names("x.execute-api.us-east-1.amazonaws.com") || s.names("y.execute-api.us-east-1.amazonaws.com") {
		t.Error("a host is named by its own name only")
	}
}

func TestPrintsOfAWSKnowTheKeyAndTheToken(t *testing.T) {
	w := newAWSWorld(t, nil)
	if names := len(w.broker.Public().Prints); names < 2 {
		t.Errorf("%d prints", names)
	}
	for _, value := range []string{`{}`, `{"id":"a"}`, `x`, `{"id":"a b","key":"k"}`, "{\"id\":\"a\",\"key\":\"k\",\"token\":\"a\\nb\"}"} {
		if _, err := newSecret(network.BrokerSecret{Name: "KEY", Hosts: []string{"a.example"}, AWS: true}, []byte(value)); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
