package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
	"github.com/snapfs/snapfs/network/placeholder"
)

// A proxy that reads requests gets the values of the secrets by descriptors, at each start of its process. They are
// in no message, and this process holds only what its own environment has anyway.

// A brokered is the additional state of a [Proxy] whose process reads the sandbox's HTTP requests, to insert
// secrets into them or to count them against a budget.
type brokered struct {
	dir    string // of the sandbox
	policy catalog.Policy
	pauses bool // the sandbox pauses when its budget is spent
	// public is what the proxy's process said at its start.
	public network.BrokerPublic
}

// newBrokered returns the additional state for a sandbox whose network proxy reads its HTTP requests, or nil
// if the sandbox's policy needs none. It creates the sandbox's ledger, the file that counts its requests. In
// an existing ledger it lowers the limits to those that the administrator's policy (/etc/snapfs/policy.toml)
// now has.
func (eg *Gateway) newBrokered(rec *catalog.Record) (*brokered, error) {
	need, err := hostfs.Brokered(rec.Policy)
	if err != nil || !need {
		return nil, err
	}
	b := &brokered{dir: eg.Catalog.Path(rec.Name), policy: rec.Policy, pauses: PausesWhenSpent(rec)}
	l := rec.Policy.Budget
	switch {
	case l == nil:
	case budget.HasLimits(b.dir):
		err = lower(b.dir)
	default:
		err = budget.SetLimits(b.dir, limitsOf(l))
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// environ returns the environment for the sandbox's network proxy process: that of this process without the
// variables that contain secrets. nil means all of this process's. b may be nil.
func (b *brokered) environ() []string {
	if b == nil {
		return nil
	}
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return b.isSource(name)
	})
}

// isSource reports whether the variable name of the host contains a secret of the sandbox.
func (b *brokered) isSource(name string) bool {
	return slices.ContainsFunc(b.policy.Secrets, func(s catalog.Secret) bool {
		return s.Env == name || s.AWS != "" && slices.Contains(awsVariables(), name)
	})
}

// sendBroker sends a new network proxy process the secrets that it inserts into the sandbox's HTTP requests,
// with a file descriptor for the value of each. The caller holds o.life.
func (o *Proxy) sendBroker() error {
	b := o.brokered
	if b == nil {
		return nil
	}
	c := &network.BrokerConfig{Sandbox: o.log.name}
	if l := b.policy.Budget; l != nil {
		c.Ledger, c.Metered, c.Pauses = b.dir, l.Hosts, b.pauses
		for _, p := range l.Prices {
			c.Prices = append(c.Prices, budget.Price(p))
		}
	}
	var values []*os.File
	defer func() {
		for _, f := range values {
			f.Close()
		}
	}()
	for i := range b.policy.Secrets {
		s := &b.policy.Secrets[i]
		f, err := openSecret(s, o.program)
		if err != nil {
			return err
		}
		values = append(values, f)
		c.Secrets = append(c.Secrets, network.BrokerSecret{
			Name: s.Name, Placeholder: b.public.Placeholders[s.Name], Hosts: s.Hosts, Methods: s.Methods, Paths: s.Paths, Body: s.Body, AWS: s.AWS != "", Base: baseOf(i, s),
		})
	}
	if b.policy.Data.Labelled() {
		f, err := leak.OpenLabels(b.dir)
		if err != nil {
			return err
		}
		values, c.Labels = append(values, f), true
	}
	msg, err := exactjson.Encode(network.Message{Broker: c})
	if err != nil {
		return err
	}
	return o.conn.Send(msg, values...)
}

// secretTime bounds how long a command may run that the user set to print a secret, which the network proxy inserts
// into requests. Then snapfs ends it, and the start of the proxy fails.
const secretTime = 20 * time.Second

// maxReason is how many bytes of a program's error [decrypted] returns.
const maxReason = 1 << 10

// openSecret returns a file from which the value of s, a secret that the network proxy inserts into requests,
// can be read once. The caller closes it. It runs the secret's command if it has one, and proxy, the network proxy's
// program, for a secret that a person keeps encrypted.
func openSecret(s *catalog.Secret, proxy []string) (*os.File, error) {
	refuse := func(err error, hints ...string) error {
		return &errs.Error{Op: "reading the secret", Subject: s.Name, Kind: errs.ErrInvalid, Err: err, Hints: hints}
	}
	if s.AWS != "" && s.AWS != catalog.AWSCommand {
		value, err := awsKeys(s.AWS)
		if err != nil {
			return nil, refuse(err)
		}
		return pipeWith(value)
	}
	if s.Field != "" {
		value, err := FieldOf(s.File, s.Field)
		if err != nil {
			return nil, refuse(err)
		}
		return pipeWith(value)
	}
	if args := s.Reading(); args != nil {
		f, err := decrypted(append(slices.Concat(proxy, []string{network.ReadSecret}), args...))
		if err != nil {
			return nil, refuse(err, readCommand(s))
		}
		return f, nil
	}
	if s.File != "" {
		f, err := os.Open(s.File)
		if err != nil {
			return nil, refuse(err)
		}
		return f, nil
	}
	value, set := os.LookupEnv(s.Env)
	if s.Env != "" && value == "" {
		why := "is not set"
		if set {
			why = "is empty"
		}
		return nil, refuse(fmt.Errorf("the variable %s %s on the host", s.Env, why), "export "+s.Env+"=…")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if s.Env != "" {
		if len(value) > 16<<10 { // what the proxy accepts; a pipe holds 64 KiB
			err = fmt.Errorf("the variable %s is longer than 16 KiB", s.Env)
		} else {
			_, err = w.WriteString(value)
		}
	} else {
		ctx, stop := context.WithTimeout(context.Background(), secretTime)
		err = run.Group(ctx, run.Program{Name: s.Command[0], Args: s.Command[1:], Dir: "/", Stdout: w}, false)
		stop()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(refuse(err), r.Close())
	}
	return r, nil
}

// readCommand returns a command line with which a person finds out whether the encrypted secret s can be read, or stores
// it.
func readCommand(s *catalog.Secret) string {
	if s.Identity != "" {
		return "age -d -i " + errs.Quoted(s.Identity) + " " + errs.Quoted(s.File) + " >/dev/null"
	}
	if description, is := strings.CutPrefix(s.Keyring, catalog.KernelKeyring); is {
		return "keyctl search @u user " + errs.Quoted(description)
	}
	service, account, _ := strings.Cut(s.Keyring, "/")
	return "secret-tool store --label=snapfs service " + errs.Quoted(service) + " username " + errs.Quoted(account)
}

// decrypted returns the reading end of a pipe with what the program of the command line args printed: a secret. The
// error is the line that it printed on its standard error.
func decrypted(args []string) (value *os.File, err error) {
	value, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, says, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, value.Close(), w.Close())
	}
	defer said.Close()
	ctx, stop := context.WithTimeout(context.Background(), secretTime)
	err = run.Group(ctx, run.Program{Name: args[0], Args: args[1:], Dir: "/", Stdout: w, Stderr: says}, false)
	stop()
	err = errors.Join(err, w.Close(), says.Close())
	if err == nil {
		return value, nil
	}
	if why, _ := io.ReadAll(io.LimitReader(said, maxReason)); len(why) > 0 {
		err = errors.New(strings.TrimSpace(string(why)))
	}
	return nil, errors.Join(err, value.Close())
}

// publish stores two kinds of data that a new network proxy process sent. The bundle of certificates lets the
// sandbox's programs trust the proxy, which decrypts their HTTPS requests. By the fingerprints of the
// inserted secrets, snapfs finds a secret that leaked into a changed file before it promotes the file.
func (o *Proxy) publish(p *network.BrokerPublic) error {
	b := o.brokered
	switch {
	case b == nil:
		return nil
	case p == nil:
		return errors.New("the proxy does not read requests: it is of another version of snapfs")
	}
	o.mu.Lock()
	b.public = *p
	o.mu.Unlock()
	return errors.Join(hostfs.WriteTrust(b.dir, p.CA), leak.Store(b.dir, p.Prints))
}

// Variables returns env, the environment of a command in the sandbox, with three kinds of variables added:
// placeholders of the sandbox's secrets, which the network proxy replaces in requests; base URLs of their servers; and
// paths of the bundle of certificates that programs must trust. It leaves out each variable of the host that contains a
// secret, even one that the policy would pass. o may be nil: env unchanged.
func (o *Proxy) Variables(env []string) []string {
	if o == nil || o.brokered == nil {
		return env
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	set := hostfs.TrustVariables()
	for i, s := range o.brokered.policy.Secrets {
		inside := o.brokered.public.Placeholders[s.Name]
		set = append(append(set, s.As+"="+inside), baseVariables(baseOf(i, &s), s.Base)...)
		if s.AWS != "" {
			set = append(set, awsID+"="+placeholder.KeyID(inside))
		}
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return o.brokered.isSource(name) || slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(env, set...)
}
