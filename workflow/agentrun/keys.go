package agentrun

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// fileOf returns the absolute path, on the host, of the file that may hold the agent's key k, or "" for a key
// that comes from a variable.
func (s *Session) fileOf(k key) string {
	switch {
	case k.file == "":
		return ""
	case strings.HasPrefix(k.file, "~/"):
		return filepath.Join(s.home, k.file[2:])
	}
	return filepath.Join(s.config, k.file)
}

// broker adds the agent's keys to the policy p as secrets, which the network proxy inserts into requests.
// given holds the variables that secrets of the profile provide already, which stay. Errors: errs.ErrNotFound
// if the host has no key.
func (s *Session) broker(p *catalog.Policy, given map[string]bool) error {
	found := false
	var reasons []string
	for _, k := range s.kit.keys {
		if given[k.as] { // by the profile, or by a key before
			found = true
			continue
		}
		if found && !s.kit.several {
			break
		}
		secret, why, err := s.secret(k)
		if err != nil {
			return err
		}
		if secret == nil {
			if why != "" {
				reasons = append(reasons, why)
			}
			continue
		}
		found, given[k.as] = true, true
		if err := s.serverOf(k, secret, p); err != nil {
			return err
		}
		p.Secrets = append(slices.Clip(p.Secrets), *secret)
	}
	if !found {
		return s.noKey(reasons)
	}
	return nil
}

// secret returns the description of the agent's key k as a secret for the sandbox's policy. It returns nil if
// the host has no such key, with why it is missing if its file exists. Errors: errs.ErrInvalid for a key that
// has expired.
func (s *Session) secret(k key) (one *catalog.Secret, why string, err error) {
	one = &catalog.Secret{Name: k.name, As: k.as, Hosts: []string{k.host + ":443"}}
	if k.variable != "" {
		value := os.Getenv(k.variable)
		if value == "" {
			return nil, "", nil
		}
		s.values = append(s.values, value)
		one.Env = k.variable
		return one, "", nil
	}
	path := s.fileOf(k)
	value, err := egress.FieldOf(path, k.field)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, err.Error(), nil //nolint:nilerr // another place may have the key
	case expired(path, k.expires):
		return nil, "", errs.New(op, s.Agent, errs.ErrInvalid, "the sign-in in "+path+" has expired; the agent renews it when it runs outside of a sandbox", s.kit.program)
	}
	s.values = append(s.values, value)
	one.File, one.Field = path, k.field
	return one, "", nil
}

// expired reports whether an agent's key has expired: whether the time in the JSON file at path, at the place
// field (names separated by dots) and in milliseconds since 1970, is in the past. It is false for a file
// without such a time.
func expired(path, field string) bool {
	if field == "" {
		return false
	}
	value, _ := egress.ValueAt(path, field) // nil after an error
	ms, ok := value.(float64)
	return ok && time.Now().After(time.UnixMilli(int64(ms)))
}

// serverOf gives the key to another server than its usual one, if a variable of the host such as
// ANTHROPIC_BASE_URL names one: the network then allows that server, the budget counts it, and the sandbox gets
// the variable.
func (s *Session) serverOf(k key, one *catalog.Secret, p *catalog.Policy) error {
	text := os.Getenv(k.base)
	if text == "" {
		return nil
	}
	refuse := func(why string) error {
		return errs.New(op, s.Agent, errs.ErrInvalid, k.base+" "+why, "unset "+k.base)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return refuse("is no URL")
	case u.Scheme != "https":
		return refuse(fmt.Sprintf("is a URL of %s, and a key leaves a sandbox over TLS alone: it must begin with https://", u.Scheme))
	case u.User != nil:
		return refuse("has a user name or password, which would be a secret in the sandbox")
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	host := u.Hostname() + ":" + port
	one.Hosts = []string{host}
	p.Env = append(p.Env, k.base+"="+text)
	s.address = text
	if b := p.Budget; b != nil && !slices.Contains(b.Hosts, u.Hostname()) {
		more := *b
		more.Hosts = append(slices.Clone(b.Hosts), u.Hostname())
		p.Budget = &more
	}
	rules, allowed, err := hostfs.NetworkRules(p.Network)
	if err != nil || !allowed {
		return nil //nolint:nilerr // the engine reports a network that cannot be used
	}
	if number, err := strconv.ParseUint(port, 10, 16); err == nil {
		if _, has := rules.Name(u.Hostname(), uint16(number)); !has {
			p.Network += "," + host
			s.Notices = append(s.Notices, k.base+": the network also allows "+host+", which gets the key")
		}
	}
	return nil
}
