// Package placeholder makes the texts that stand for secrets inside a sandbox, and finds such placeholders
// and the secrets themselves in files.
//
// [New] makes a placeholder and [Find] finds any, also of another sandbox. A [Print] recognises one secret
// without containing it. The package must not know where secrets come from, nor who may have them.
package placeholder

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Mark is the text in every placeholder (the text that stands for a secret inside a sandbox) by which it is
// found. randomLetters random letters and digits follow it.
const Mark = "SnapfsPlaceholder"

const (
	randomLetters = 26 // 154 bits
	lengthClass   = 16
)

// Len is the length in bytes of the part of a placeholder from the start of Mark to the end of the random
// letters.
const Len = len(Mark) + randomLetters

// prefixes are the public beginnings of API keys, which clients check. A placeholder begins like its secret.
var prefixes = [...]string{
	"sk-ant-api03-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-or-v1-", "sk-", "github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "npm_", "pypi-", "AIza",
	"xoxb-", "xoxp-", "hf_", "gsk_", "xai-", "r8_", "pk_", "rk_", "shpat_", "dop_v1_",
}

// New returns a new placeholder, the text that stands for a secret inside a sandbox. It begins as keys of
// this kind do, and its length is the secret's rounded up, so that clients that check either accept it.
func New(secret []byte) string {
	prefix := ""
	for _, p := range prefixes {
		if bytes.HasPrefix(secret, []byte(p)) {
			prefix = p
			break
		}
	}
	var b strings.Builder
	b.WriteString(prefix + Mark + letters(randomLetters))
	want := (len(secret) + lengthClass - 1) / lengthClass * lengthClass
	if b.Len() < want && want <= 4096 {
		b.WriteString(letters(want - b.Len()))
	}
	return b.String()
}

// KeyID returns the access key id that belongs to key, the placeholder of a secret access key of AWS. It has the
// form of AWS's own, and is not secret.
func KeyID(key string) string {
	digest := sha256.Sum256([]byte(key))
	return "AKIA" + base32.StdEncoding.EncodeToString(digest[:10])
}

func letters(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567" // 32: no remainder
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	for i, c := range b {
		b[i] = alphabet[c%32]
	}
	return string(b)
}

// Find returns the offset of the first placeholder in text, or -1. It finds placeholders of every sandbox.
func Find(text []byte) int {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(Mark))
		if i < 0 {
			return -1
		}
		at := from + i
		if end := at + Len; end <= len(text) && isLetters(text[at+len(Mark):end]) {
			return at
		}
		from = at + 1
	}
}

func isLetters(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
