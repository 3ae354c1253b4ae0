package selftest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/internal/run"
)

// secretVariable is the variable with the placeholder of the secret that the self-test makes for its probes, the
// programs in a sandbox that look for the secret itself.
const secretVariable = "SNAPFS_PROVE_SECRET"

// newSecret returns the secret for a self-test's sandbox: a program prints its value, and the network proxy inserts it
// into requests to the server to, a name and a port.
func newSecret(value, to string) catalog.Secret {
	echo, _ := run.Look("echo") // without it the sandbox does not start, and the report says why
	return catalog.Secret{Name: "snapfs-prove", Command: []string{echo, value}, Hosts: []string{to}, As: secretVariable}
}

func digestOf(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// labelsTrial returns the test of a label: a file of the host is labelled secret, and the probe in the sandbox sends
// its content to a server that the network rules allow.
func labelsTrial(host *probeHost) trial {
	text := strings.Repeat(catalog.NewID(), 10)
	return trial{probe: "labels", args: []string{host.web, text}, prepare: func(req *hostfs.Request) (func(), error) {
		dir, err := os.MkdirTemp("", "snapfs-prove-")
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "labelled")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		req.Policy.Data = changed(req.Policy.Data, func(d *catalog.Data) { d.Secret = append(slices.Clone(d.Secret), file) })
		return func() { os.RemoveAll(dir) }, nil //nolint:errcheck // it is a temporary directory
	}}
}

// hostName is the name by which a sandbox reaches the host's loopback interface, if a rule or a person allows it.
const hostName = "host.snapfs"

// askTrial returns the test of --ask: the probe in the sandbox connects to a service of the host that no rule allows,
// and nobody answers the question about it.
func askTrial(host *probeHost) trial {
	return trial{probe: "ask", args: []string{net.JoinHostPort(hostName, host.port)}, rule: func(policy *catalog.Policy) {
		policy.Ask, policy.Denied = time.Second, "" // no wait is shorter
	}}
}

// baseTrial returns the test of a base URL, by which programs in a sandbox reach one server of a secret without TLS.
// The URL leads to one path of a server that breaks off TLS: what the proxy passes on gets the status 502.
func baseTrial(host *probeHost) trial {
	value := catalog.NewID() + catalog.NewID()
	const url = "SNAPFS_PROVE_URL"
	return trial{probe: "base-url", args: []string{url, secretVariable, digestOf(value)}, rule: func(policy *catalog.Policy) {
		secret := newSecret(value, host.served)
		secret.Base = &catalog.BaseURL{Variable: url, Host: host.served, Path: prove.HTTPRulePath}
		policy.Secrets = append(slices.Clone(policy.Secrets), secret)
	}}
}

// awsTrial returns the test of keys of AWS, with which the proxy signs requests anew: a program prints made-up ones,
// and the probe sends requests to one path of their server by a base URL, since it has no TLS. What the proxy passes on
// gets the status 502, as from baseTrial's server.
func awsTrial(host *probeHost) trial {
	key := catalog.NewID() + catalog.NewID()
	const url = "SNAPFS_PROVE_URL"
	return trial{probe: "aws", args: []string{url, digestOf(key)}, rule: func(policy *catalog.Policy) {
		secret := newSecret(fmt.Sprintf(`{"id":"AKIASNAPFSPROVE","key":%q}`, key), host.served)
		secret.AWS, secret.As, secret.Paths = catalog.AWSCommand, "AWS_SECRET_ACCESS_KEY", []string{prove.HTTPRulePath}
		secret.Base = &catalog.BaseURL{Variable: url, Host: host.served}
		policy.Secrets = append(slices.Clone(policy.Secrets), secret)
	}}
}

// otherNameTrial returns the test of hidden files with several names: a workspace has a hard link of a file that the
// policy hides, and the probe in the sandbox reads the file by that name.
func otherNameTrial() trial {
	text := catalog.NewID()
	const name = "other"
	return trial{probe: "other-name", args: []string{name, text}, prepare: func(req *hostfs.Request) (func(), error) {
		dir, err := tempWorkspace()
		if err != nil {
			return nil, err
		}
		hidden, workspace := filepath.Join(dir, "hidden"), filepath.Join(dir, "workspace")
		err = errors.Join(os.Mkdir(workspace, 0o755), os.WriteFile(hidden, []byte(text), 0o600))
		if err = errors.Join(err, os.Link(hidden, filepath.Join(workspace, name))); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		req.Workspace, req.Backend, req.Policy.Data = workspace, "", nil // those of the request may not hold there
		req.Policy.Hide = append(slices.Clone(req.Policy.Hide), hidden)
		return func() { os.RemoveAll(dir) }, nil //nolint:errcheck // it is a temporary directory
	}}
}
