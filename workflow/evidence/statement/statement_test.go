package statement

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestTheKeyIsOneForAllAndReadableByOthers(t *testing.T) {
	dir := filepath.Join(treetest.Dir(t), "evidence")
	keys := make([]*Key, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			key, err := HostKey(dir)
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	all.Wait()
	for _, key := range keys {
		if key == nil || !key.Public().Equal(keys[0].Public()) {
			t.Fatal("two processes have two keys")
		}
	}
	path := filepath.Join(dir, KeyName)
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("the private key: %v, %v", st.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil || !keys[0].private.Equal(private) {
		t.Errorf("package x509 reads another private key: %v", err)
	}
	block, _ = pem.Decode(PublicPEM(keys[0].Public()))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !keys[0].Public().Equal(public) {
		t.Errorf("package x509 reads another public key: %v", err)
	}
	again, err := ReadPublic(filepath.Join(dir, PublicName))
	if err != nil || !again.Equal(keys[0].Public()) {
		t.Errorf("read again: %v", err)
	}
}

func TestACodeIsOfOneHost(t *testing.T) {
	one, two := filepath.Join(treetest.Dir(t), "one"), filepath.Join(treetest.Dir(t), "two")
	if _, err := MAC(one, []byte("a")); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := os.Stat(one); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
	codes := map[string]bool{}
	for _, dir := range []string{one, two} {
		if _, err := HostKey(dir); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"a", "b"} {
			code, err := MAC(dir, []byte(text))
			again, errAgain := MAC(dir, []byte(text))
			if err != nil || errAgain != nil || string(code) != string(again) {
				t.Errorf("%x and %x, %v, %v", code, again, err, errAgain)
			}
			codes[string(code)] = true
		}
	}
	if len(codes) != 4 {
		t.Errorf("two hosts and two texts have %d codes", len(codes))
	}
}

func TestAnEnvelopeHoldsForItsKeyOnly(t *testing.T) {
	one, err := HostKey(filepath.Join(treetest.Dir(t), "one"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := HostKey(filepath.Join(treetest.Dir(t), "two"))
	if err != nil {
		t.Fatal(err)
	}
	line, digest, err := one.Sign(Statement{PredicateType: StartType, Predicate: map[string]any{"a": "<ü>"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, again, err := Open(line, one.Public()); err != nil || again != digest || s.Predicate["a"] != "<ü>" {
		t.Errorf("opened: %v, %v", s, err)
	}
	if _, _, err := Open(line, two.Public()); err == nil {
		t.Error("another key opens it")
	}
	if _, _, err := Open([]byte(strings.Replace(string(line), `"payload":"`, `"payload":"A`, 1)), one.Public()); err == nil {
		t.Error("another payload is accepted")
	}
}
