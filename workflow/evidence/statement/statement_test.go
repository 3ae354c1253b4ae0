package statement

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
