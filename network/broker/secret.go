package broker

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/httprule"
	"github.com/snapfs/snapfs/network/placeholder"
)

// A secret is one of the sandbox's secrets (credentials) with its value. The proxy inserts it into the
// sandbox's requests in place of a placeholder.
type secret struct {
	network.BrokerSecret
	value []byte
	rules network.Rules    // of its hosts
	forms [][]byte         // of the value, see placeholder.Forms
	aws   *aws.Credentials // with which requests are signed anew; value is then the secret key. Otherwise nil
}

// maxValue is the maximum length of a secret in bytes; the proxy does not start with a longer one. A secret
// must fit into a header of a request.
const maxValue = 16 << 10

func newSecret(s network.BrokerSecret, value []byte) (*secret, error) {
	value = bytes.TrimRight(value, "\r\n")
	var keys *aws.Credentials
	if s.AWS {
		var err error
		if keys, err = awsCredentials(value); err != nil {
			return nil, err
		}
		value = []byte(keys.SecretAccessKey)
	}
	switch {
	case len(value) == 0:
		return nil, errors.New("its value is empty")
	case len(value) > maxValue:
		return nil, errors.New("its value is longer than 16 KiB")
	case bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, errors.New("its value has a line end or another control character, which no header can have")
	case placeholder.Find(value) >= 0:
		return nil, errors.New("its value is a placeholder of another sandbox")
	}
	rules, err := network.Parse(strings.Join(s.Hosts, ","))
	if err != nil {
		return nil, err
	}
	if s.Placeholder == "" {
		s.Placeholder = placeholder.New(value)
	}
	one := &secret{BrokerSecret: s, value: value, rules: rules, aws: keys}
	if len(value) >= minRedacted {
		one.forms = placeholder.Forms(value)
	}
	if keys != nil && len(keys.SessionToken) >= minRedacted {
		one.forms = append(one.forms, placeholder.Forms([]byte(keys.SessionToken))...)
	}
	return one, nil
}

// minRedacted is the length in bytes below which a secret is not searched for in responses: a shorter one is
// in most of them by chance.
const minRedacted = 6

// reaches reports whether the proxy must read the sandbox's connections to name on port because of this
// secret. These include plain HTTP to the secret's servers, so that a placeholder there is refused.
func (s *secret) reaches(name string, port uint16) bool {
	if _, ok := s.rules.Name(name, port); ok {
		return true
	}
	_, ok := s.rules.Resolves(name)
	return ok && port == 80
}

// refuses returns why the secret must not be inserted into the sandbox's request q, such as for another host,
// or "" if it may.
func (s *secret) refuses(q network.Request) string {
	if _, ok := s.rules.Name(q.Name, q.Port); !ok {
		return fmt.Sprintf("the secret %s is not for %s:%d, only for %s", s.Name, q.Name, q.Port, s.rules)
	}
	if !q.TLS {
		return fmt.Sprintf("the secret %s is sent over TLS only, and this is plain HTTP", s.Name)
	}
	if len(s.Methods) > 0 && !slices.Contains(s.Methods, q.Method) {
		return fmt.Sprintf("the secret %s is not for the method %s, only for %s", s.Name, q.Method, strings.Join(s.Methods, ", "))
	}
	if len(s.Paths) > 0 && !slices.ContainsFunc(s.Paths, func(p string) bool { return httprule.MatchPath(p, q.Path) }) {
		return fmt.Sprintf("the secret %s is not for the path %s, only for %s", s.Name, q.Path, strings.Join(s.Paths, ", "))
	}
	return ""
}

// An injection replaces the placeholders in one request of the sandbox by the secrets for which they stand,
// and notes which secrets were used.
type injection struct {
	broker  *Broker
	request network.Request
	used    []string // names of secrets
	why     string   // of a refusal
	// undo are the texts that were put in, with those that they replaced, for the response.
	undo []pair
}

// replace returns text, a part of the request, with each placeholder replaced by its secret. encode converts
// the secret's value to the form of that part. A secret that is not for this request sets j.why.
func (j *injection) replace(text string, encode func(string) string) string {
	if j.why != "" || !strings.Contains(text, placeholder.Mark) {
		return text
	}
	for _, s := range j.broker.secrets {
		if !strings.Contains(text, s.Placeholder) {
			continue
		}
		if j.why = s.refuses(j.request); j.why == "" && s.aws != nil {
			j.why = "the secret access key " + s.Name + " itself, which clients only sign with"
		}
		if j.why != "" {
			return text
		}
		if !slices.Contains(j.used, s.Name) {
			j.used = append(j.used, s.Name)
		}
		text = strings.ReplaceAll(text, s.Placeholder, encode(string(s.value)))
	}
	if placeholder.Find([]byte(text)) >= 0 {
		j.why = "a placeholder of another sandbox, or of an earlier start of this one: read the variable again"
	}
	return text
}

func same(s string) string { return s }

// headers returns the values of a header with placeholders replaced, as header replaces them. Without a placeholder it
// returns values itself.
func (j *injection) headers(values []string) []string {
	for i, v := range values {
		if inserted := j.header(v); inserted != v {
			values = slices.Clone(values)
			values[i] = inserted
		}
	}
	return slices.Clip(values)
}

// header returns the value of a header with placeholders replaced by secrets, also within Basic credentials.
func (j *injection) header(value string) string {
	scheme, coded, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return j.replace(value, same)
	}
	coded = strings.TrimSpace(coded)
	plain, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		if plain, err = base64.RawStdEncoding.DecodeString(coded); err != nil {
			return j.replace(value, same)
		}
	}
	replaced := j.replace(string(plain), same)
	if replaced == string(plain) {
		return value
	}
	real := base64.StdEncoding.EncodeToString([]byte(replaced))
	j.undo = append(j.undo, pair{from: []byte(real), to: []byte(coded)})
	return scheme + " " + real
}

// query returns the raw query of a URL with placeholders replaced by secrets. A placeholder has only letters
// and digits, which a query contains unescaped.
func (j *injection) query(raw string) string {
	if plain, err := url.QueryUnescape(raw); err == nil && strings.Contains(plain, placeholder.Mark) && !strings.Contains(raw, placeholder.Mark) {
		j.why = "a placeholder that is escaped in the query"
		return raw
	}
	return j.replace(raw, url.QueryEscape)
}

// pairs returns the texts to replace by placeholders in the response, longest first: every form of every secret,
// whichever server answers. The caller must not change them.
func (j *injection) pairs() []pair {
	if len(j.undo) == 0 {
		return j.broker.pairs
	}
	return sortPairs(slices.Concat(j.undo, j.broker.pairs))
}

// given reports whether the server of the request may get the secret s.
func (j *injection) given(s *secret) bool {
	_, known := s.rules.Name(j.request.Name, j.request.Port)
	return known
}

// pairsOf returns the forms of all secrets with the placeholders that replace them, longest first.
func pairsOf(secrets []*secret) (all []pair) {
	for _, s := range secrets {
		for _, f := range s.forms {
			if len(f) >= minRedacted {
				all = append(all, pair{f, []byte(s.Placeholder), s})
			}
		}
	}
	return sortPairs(all)
}
