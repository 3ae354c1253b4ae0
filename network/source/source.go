//go:build linux

// Package source reads a secret where a person keeps it encrypted: in a file of age, in the keyring of a desktop, or in
// a keyring of the kernel.
//
// It runs in a process of its own, snapfs-edge with the first argument [network.ReadSecret], which prints the secret on
// a pipe and ends. So the libraries for it cost no start of snapfs, and the secret is in the memory of no other process than
// the network proxy, which reads the pipe. The package must not know sandboxes or policies.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"filippo.io/age/agessh"
	ascii "filippo.io/age/armor" //nolint:misspell // its name
	"github.com/zalando/go-keyring"
	"golang.org/x/sys/unix"
)

// maxValue is how many bytes a secret may have; a longer one is an error. It is what the network proxy accepts.
const maxValue = 16 << 10

// Print writes the secret of a source to w. args are "age", the encrypted file and the file with the identity;
// "keyring", the service and the account; or "kernel" and the key's description. Cost: decrypting one small file, or
// two messages on the user's session bus, where an unlocked keyring answers at once and a locked one asks the person.
// Errors name the source and never have a part of the secret. From then on no other process of this user can read this
// process's memory, and it writes no core file.
func Print(w io.Writer, args []string) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	var value []byte
	var err error
	switch {
	case len(args) == 3 && args[0] == "age":
		value, err = fromAge(args[1], args[2])
	case len(args) == 3 && args[0] == "keyring":
		value, err = fromKeyring(args[1], args[2])
	case len(args) == 2 && args[0] == "kernel":
		value, err = fromKernel(args[1])
	default:
		return errors.New("invalid source; expected age FILE IDENTITY, keyring SERVICE ACCOUNT or kernel DESCRIPTION")
	}
	switch {
	case err != nil:
		return err
	case len(value) == 0:
		return errors.New("the secret is empty")
	case len(value) > maxValue:
		return errors.New("the secret is longer than 16 KiB")
	}
	_, err = w.Write(value)
	return err
}

// fromAge decrypts the file at path, which is binary or text (PEM), with the identities in another file: those that
// age-keygen writes, or one private SSH key without a passphrase.
func fromAge(path, identity string) ([]byte, error) {
	keys, err := identities(identity)
	if err != nil {
		return nil, err
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var encrypted io.Reader = bytes.NewReader(file)
	if bytes.HasPrefix(bytes.TrimLeft(file, " \t\r\n"), []byte(ascii.Header)) {
		encrypted = ascii.NewReader(encrypted)
	}
	plain, err := age.Decrypt(encrypted, keys...)
	if err != nil {
		return nil, fmt.Errorf("decrypting %s with the identity in %s: %w", path, identity, err)
	}
	value, err := io.ReadAll(io.LimitReader(plain, maxValue+1))
	if err != nil {
		return nil, fmt.Errorf("decrypting %s: %w", path, err)
	}
	return value, nil
}

// identities returns the identities in the file at path.
func identities(path string) ([]age.Identity, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		key, err := agessh.ParseIdentity(text)
		if err != nil {
			return nil, fmt.Errorf("the SSH key %s (one with a passphrase cannot be used, since nobody is there to type it): %w", path, err)
		}
		return []age.Identity{key}, nil
	}
	keys, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		// The library's error may quote the line with the key.
		return nil, fmt.Errorf("%s has no identity of age (one that is encrypted itself cannot be used)", path)
	}
	return keys, nil
}

// fromKeyring returns the secret that a desktop's keyring (Secret Service) has for an account at a service: what
// "secret-tool store service SERVICE username ACCOUNT" stored.
func fromKeyring(service, account string) ([]byte, error) {
	value, err := keyring.Get(service, account)
	if errors.Is(err, keyring.ErrNotFound) {
		return nil, fmt.Errorf("the keyring has no secret with service %q and username %q", service, account)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the keyring on the session bus (DBUS_SESSION_BUS_ADDRESS): %w", err)
	}
	return []byte(value), nil
}

// fromKernel returns the payload of the kernel's key of type user with this description (keyctl add user
// DESCRIPTION … @u), from the keyring of the session or of the user.
func fromKernel(description string) ([]byte, error) {
	var missing error
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING} {
		id, err := unix.KeyctlSearch(ring, "user", description, 0)
		if err != nil {
			missing = err
			continue
		}
		value := make([]byte, maxValue+1)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, value, 0)
		if err != nil {
			return nil, fmt.Errorf("reading the kernel's key %q: %w", description, err)
		}
		return value[:min(n, len(value))], nil
	}
	return nil, fmt.Errorf("neither the session's nor the user's keyring in the kernel has a user key %q: %w", description, missing)
}
