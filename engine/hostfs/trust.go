package hostfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/javatrust"
	"github.com/snapfs/snapfs/isolate"
)

// A sandbox whose proxy reads requests trusts a CA of its own. A bundle of this host's certificates and that CA
// covers the host's bundle inside. It is a mount, so it is in no result.

// trustFile is the name of a file in a sandbox's directory: the bundle of CA certificates that the sandbox's
// programs trust.
const trustFile = "trust.pem"

// bundles are the paths at which Linux distributions store the bundle of CA certificates that programs trust.
var bundles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt",
}

// bundlePaths returns the paths of the CA certificate bundles that this host has, each without symbolic links
// and once.
func bundlePaths() (paths []string) {
	for _, p := range bundles {
		real, err := filepath.EvalSymlinks(p)
		if err == nil && !slices.Contains(paths, real) && !slices.ContainsFunc(replaced, func(dir string) bool { return Within(real, dir) }) {
			paths = append(paths, real)
		}
	}
	return paths
}

// TrustVariables returns environment variables, as NAME=VALUE, that name the host's bundle of CA certificates
// to programs that would not read it otherwise.
func TrustVariables() (env []string) {
	paths := bundlePaths()
	if len(paths) == 0 {
		return nil
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		env = append(env, name+"="+paths[0])
	}
	return env
}

// WriteTrust writes the CA bundle of a sandbox in its directory dir: this host's certificates, and the
// certificate ca in PEM of the sandbox's own CA. If the host has a Java runtime, it writes them in the format of
// Java, too. It writes to the existing files and does not replace them, because a running sandbox has them mounted.
func WriteTrust(dir, ca string) error {
	text := []byte{}
	if paths := bundlePaths(); len(paths) > 0 {
		var err error
		if text, err = os.ReadFile(paths[0]); err != nil {
			return err
		}
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, ca...)
	if err := overwrite(filepath.Join(dir, trustFile), text); err != nil || len(javaPaths()) == 0 {
		return err
	}
	store, err := javatrust.Store(text)
	if err != nil {
		return err
	}
	return overwrite(filepath.Join(dir, javaTrustFile), store)
}

// overwrite replaces the content of the file at path, or makes it, for everybody to read. It does not replace the file
// itself, because a running sandbox has it mounted.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

// trust returns the mounts that show a sandbox's own CA bundle at the paths of the host's bundles, and at those of
// its Java runtimes, or none if its proxy reads no requests.
func (hf *Host) trust(rec *catalog.Record) (mounts []isolate.Mount, err error) {
	need, err := Brokered(rec.Policy)
	if err != nil || !need {
		return nil, err
	}
	paths := bundlePaths()
	if len(paths) == 0 {
		return nil, &errs.Error{
			Op: "starting", Subject: rec.Name, Kind: errs.ErrNotSupported, Err: errors.New("this host has no bundle of certificates for the network proxy to add to"),
			Hints: []string{"apt-get install ca-certificates"},
		}
	}
	dir := hf.cat.Path(rec.Name)
	if err := WriteTrust(dir, ""); err != nil {
		return nil, err
	}
	for _, p := range paths {
		mounts = append(mounts, isolate.Mount{Target: p, Source: filepath.Join(dir, trustFile), ReadOnly: true})
	}
	for _, p := range javaPaths() {
		mounts = append(mounts, isolate.Mount{Target: p, Source: filepath.Join(dir, javaTrustFile), ReadOnly: true})
	}
	return mounts, nil
}

// owned returns the host's directory for a sandbox's /tmp, see scratch, and the mounts of its CA bundle, see
// trust.
func (hf *Host) owned(ctx context.Context, rec *catalog.Record) (tmp string, bundle []isolate.Mount, err error) {
	if bundle, err = hf.trust(rec); err != nil {
		return "", nil, err
	}
	tmp, err = hf.scratch(ctx, rec)
	return tmp, bundle, err
}
