// Package token makes and checks the bearer tokens of the HTTP API.
//
// A [Store] holds them in one file of the state directory. For each token the file has its name, its scopes,
// its end and the SHA-256 of its 32 random bytes, never the token itself. A removed token is refused from the
// next request on, by every server.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Scope is a right that a token gives to its holder, such as running commands.
type Scope string

// The scopes, or rights, that an API token can have.
const (
	// Read permits the holder of a token to see sandboxes, their files, changes and events.
	Read Scope = "read"
	// Run permits the holder of a token to make, change and remove sandboxes and to run commands in them.
	Run Scope = "run"
	// Promote permits the holder of a token to change the real tree: to promote, and to undo a promotion.
	Promote Scope = "promote"
	// Cosign permits the holder of a token to add a cosignature to the signed record of a sandbox, as its other party.
	Cosign Scope = "cosign"
)

// Scopes lists the scopes (rights) that an API token can have: read, run, promote and cosign.
func Scopes() []Scope { return []Scope{Read, Run, Promote, Cosign} }

// ParseScopes returns the scopes (rights of an API token) that a text such as "read,run" lists. Errors:
// errs.ErrInvalid.
func ParseScopes(text string) (list []Scope, err error) {
	for word := range strings.SplitSeq(text, ",") {
		s := Scope(strings.TrimSpace(word))
		if !slices.Contains(Scopes(), s) {
			return nil, errs.New("reading scopes", "", errs.ErrInvalid, fmt.Sprintf("no scope is named %q; the scopes are read, run, promote and cosign", s))
		}
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list, nil
}

// A Token describes a bearer token of the HTTP API, without its secret text.
type Token struct {
	Name    string    `json:"name"`
	Scopes  []Scope   `json:"scopes"`
	Created time.Time `json:"created"`
	// Expires is the end of the token; zero means never.
	Expires time.Time `json:"expires,omitzero"`
}

// Expired reports whether the API token is no longer valid at the time now.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// A stored is an API token in the file of a [Store]: its description, and the hash of its secret bytes in
// hexadecimal.
type stored struct {
	Token
	Hash string `json:"sha256"`
}

type document struct {
	Format int      `json:"format"`
	Tokens []stored `json:"tokens"`
}

const (
	fileName = "tokens.json"
	lockName = "tokens.lock"
	format   = 1
	prefix   = "snapfs_" // lets a person, and a search for leaked secrets, recognise a token
	length   = 32        // random bytes
	most     = 1000      // tokens in a store
)

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func validName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Contains(letters, name[:1]) && strings.Trim(name, letters+"._-") == ""
}

// A Store holds the API tokens of a state directory, in one file. It is safe for concurrent use, by any
// number of processes.
type Store struct{ dir string }

// Open returns the Store of the API tokens of a state directory, which need not exist until [Store.New].
func Open(state string) *Store { return &Store{state} }

// New makes the API token that t describes and returns its secret text, which is stored nowhere. Atomic.
// Errors: errs.ErrExists (a token of this name), errs.ErrInvalid.
func (s *Store) New(t Token) (text string, err error) {
	const op = "making a token"
	switch {
	case !validName(t.Name):
		return "", errs.New(op, t.Name, errs.ErrInvalid, "a name has 1 to 64 letters, digits, dots, dashes and underscores")
	case len(t.Scopes) == 0:
		return "", errs.New(op, t.Name, errs.ErrInvalid, "a token without a scope permits nothing")
	}
	raw := make([]byte, length)
	_, _ = rand.Read(raw) // never fails
	err = s.change(func(d *document) error {
		if slices.ContainsFunc(d.Tokens, func(o stored) bool { return o.Name == t.Name }) {
			return errs.New(op, t.Name, errs.ErrExists, "the name is taken", "snapfs token rm "+errs.Quoted(t.Name))
		}
		if len(d.Tokens) >= most {
			return errs.New(op, t.Name, errs.ErrNoSpace, "there are too many tokens", "snapfs token ls")
		}
		d.Tokens = append(d.Tokens, stored{t, hashOf(raw)})
		return nil
	})
	return prefix + base64.RawURLEncoding.EncodeToString(raw), err
}

// List returns the API tokens of the store, without their secret texts, oldest first.
func (s *Store) List() ([]Token, error) {
	d, err := s.read()
	list := []Token{}
	for _, t := range d.Tokens {
		list = append(list, t.Token)
	}
	return list, err
}

// Remove removes the API token called name, which is refused from then on. Atomic. Errors: errs.ErrNotFound.
func (s *Store) Remove(name string) error {
	return s.change(func(d *document) error {
		n := len(d.Tokens)
		d.Tokens = slices.DeleteFunc(d.Tokens, func(t stored) bool { return t.Name == name })
		if len(d.Tokens) == n {
			return errs.New("removing a token", "", errs.ErrNotFound, fmt.Sprintf("no token is named %q", name), "snapfs token ls")
		}
		return nil
	})
}

// Check returns the API token with this secret text. Its time depends only on the number of tokens, so that
// it reveals nothing about them. Errors: errs.ErrDenied for any text that is no token or that of an expired
// one.
func (s *Store) Check(text string) (Token, error) {
	const op = "checking a token"
	d, err := s.read()
	if err != nil {
		return Token{}, err
	}
	encoded, ok := strings.CutPrefix(text, prefix)
	raw, derr := base64.RawURLEncoding.DecodeString(encoded[:min(len(encoded), 2*length)])
	hash, found := []byte(hashOf(raw)), -1
	for i, t := range d.Tokens {
		if subtle.ConstantTimeCompare(hash, []byte(t.Hash)) == 1 {
			found = i
		}
	}
	switch {
	case !ok || derr != nil || len(raw) != length || len(encoded) > 2*length || found < 0:
		return Token{}, errs.New(op, "", errs.ErrDenied, "it is unknown or was removed", "snapfs token new NAME")
	case d.Tokens[found].Expired(time.Now()):
		return Token{}, errs.New(op, "", errs.ErrDenied, "it has expired", "snapfs token new NAME")
	}
	return d.Tokens[found].Token, nil
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// read returns the stored API tokens; none if the file does not exist. Errors: errs.ErrCorrupt;
// errs.ErrDenied if others than this user could have changed the file.
func (s *Store) read() (d document, err error) {
	const op = "reading tokens"
	path := filepath.Join(s.dir, fileName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return document{Format: format}, nil
	}
	if err != nil {
		return d, errs.With(op, path, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return d, errs.With(op, path, err)
	}
	if st.Mode&0o077 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return d, errs.New(op, path, errs.ErrDenied, "other users may read or change the file", "chmod 600 "+errs.Quoted(path))
	}
	if err := json.NewDecoder(f).Decode(&d); err != nil {
		return d, &errs.Error{Op: op, Path: path, Kind: errs.ErrCorrupt, Err: err}
	}
	if d.Format != format {
		return d, errs.New(op, path, errs.ErrNotSupported, "another version of snapfs wrote the file")
	}
	return d, nil
}

// change calls do to change the stored API tokens, and writes the result to the file, under the lock of the
// store.
func (s *Store) change(do func(*document) error) error {
	const op = "storing tokens"
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return errs.With(op, s.dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return errs.With(op, s.dir, err)
	}
	if err := vfs.Flock(lock, unix.LOCK_EX); err != nil {
		return errs.With(op, s.dir, errors.Join(err, lock.Close()))
	}
	defer vfs.Unlock(lock)
	d, err := s.read()
	if err == nil {
		err = do(&d)
	}
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(d, "", "  ")
	if err == nil {
		err = replace(filepath.Join(s.dir, fileName), append(data, '\n'))
	}
	return errs.Wrap(op, s.dir, err)
}

// replace replaces the file at path by one with this data that only this user may read, atomically and
// durably.
func replace(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return vfs.SyncDir(filepath.Dir(path)) // or a removed token could return after a power loss
}

// Bearer returns the token in an Authorization header "Bearer TOKEN". ok is false for any other header.
func Bearer(header string) (text string, ok bool) {
	scheme, text, ok := strings.Cut(header, " ")
	return strings.TrimSpace(text), ok && strings.EqualFold(scheme, "Bearer")
}
