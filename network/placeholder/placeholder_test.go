package placeholder

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestNewKeepsPrefixAndLengthClass(t *testing.T) {
	secret := []byte("sk-ant-api03-" + strings.Repeat("x", 95))
	p := New(secret)
	if !strings.HasPrefix(p, "sk-ant-api03-"+Mark) || len(p) != 112 || Find([]byte("a"+p)) != 1+len("sk-ant-api03-") {
		t.Errorf("%q", p)
	}
	if New(secret) == p {
		t.Error("the same placeholder twice")
	}
	if p := New([]byte("hunter2-abc")); !strings.HasPrefix(p, Mark) {
		t.Errorf("%q has a part of the secret", p)
	}
	if Find([]byte(Mark+"short")) >= 0 || Find(nil) >= 0 {
		t.Error("found none that is there")
	}
}

func TestSearchFindsEveryFormAtEveryOffset(t *testing.T) {
	secret := []byte(`s3cr3t/+value=with&signs"<-0123456789`)
	prints := Prints("KEY", secret)
	for name, form := range map[string]string{
		"plain": string(secret), "base64": base64.StdEncoding.EncodeToString(secret),
		"basic": base64.StdEncoding.EncodeToString([]byte("user:" + string(secret))), "basic1": base64.StdEncoding.EncodeToString([]byte("u:" + string(secret) + "xx")),
		"url": "s3cr3t%2F%2Bvalue%3Dwith%26signs%22%3C-0123456789", "url in lower case": "s3cr3t%2f%2bvalue%3dwith%26signs%22%3c-0123456789",
		"json": `s3cr3t/+value=with&signs\"<-0123456789`, "json of PHP": `s3cr3t\/+value=with&signs\"<-0123456789`,
		"json of Go": `s3cr3t/+value=with\u0026signs\"\u003c-0123456789`, "html": "s3cr3t/+value=with&amp;signs&#34;&lt;-0123456789", "html of Python": "s3cr3t/+value=with&amp;signs&quot;&lt;-0123456789", "html text": `s3cr3t/+value=with&amp;signs"&lt;-0123456789`,
	} {
		for _, before := range []int{0, 1, 1<<20 - 10, 1<<20 + 5} {
			text := strings.Repeat("a", before) + form + "zzz"
			f, err := Search(strings.NewReader(text), prints, 1<<30)
			if err != nil || f == nil || f.Secret != "KEY" || f.Offset < int64(before) || f.Offset > int64(before+8) {
				t.Errorf("%s after %d: %+v, %v", name, before, f, err)
			}
		}
	}
	if f, err := Search(strings.NewReader(strings.Repeat("b", 3<<20)), prints, 1<<30); f != nil || err != nil {
		t.Error(f, err)
	}
	if f, err := Search(strings.NewReader(strings.Repeat("b", 3<<20)), prints, 1<<20); f != nil || !errors.Is(err, ErrTooLarge) {
		t.Error(f, err)
	}
	p := New(secret)
	if f, err := Search(strings.NewReader(strings.Repeat("c", 1<<20-7)+p), nil, 1<<30); err != nil || f == nil || f.Secret != "" {
		t.Error(f, err)
	}
	for _, p := range prints {
		if bytes.Contains(p.Sum, secret[:8]) || bytes.Contains(p.Salt, secret[:8]) {
			t.Error("a print has a part of the secret")
		}
	}
}

func TestShortSecretsHaveNoPrint(t *testing.T) {
	for _, p := range Prints("PIN", []byte("1234")) {
		if p.Length < minSecret {
			t.Errorf("%+v", p)
		}
	}
}
