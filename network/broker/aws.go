package broker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/placeholder"
)

// A request to AWS has no key in it, only a signature that was made with one (Signature Version 4). So the proxy
// verifies the signature with the placeholder, and signs the request anew with the real key.

// signing is the only algorithm of signatures that the proxy verifies and makes.
const signing = "AWS4-HMAC-SHA256"

// awsCredentials returns the keys of AWS in value, the JSON form of network.AWSKeys.
func awsCredentials(value []byte) (*aws.Credentials, error) {
	var k network.AWSKeys
	if json.Unmarshal(value, &k) != nil || k.ID == "" || k.Key == "" { // the error may have a key in it
		return nil, errors.New("its value has no keys of AWS")
	}
	if strings.ContainsFunc(k.ID+k.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("its value has a blank or control character in a key id or session token")
	}
	return &aws.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Key, SessionToken: k.Token}, nil
}

// signer returns the secret of AWS with whose placeholder the sandbox's request r is signed, or nil. inHeader is set if
// the signature is in a header, and not in the query.
func (c *exchange) signer(r *http.Request) (s *secret, inHeader bool) {
	for _, s := range c.broker.secrets {
		if s.aws == nil {
			continue
		}
		id := placeholder.KeyID(s.Placeholder)
		if slices.ContainsFunc(r.Header["Authorization"], func(v string) bool { return strings.Contains(v, id) }) {
			return s, true
		}
		if plain, err := url.QueryUnescape(r.URL.RawQuery); strings.Contains(r.URL.RawQuery, id) || err == nil && strings.Contains(plain, id) {
			return s, false
		}
	}
	return nil, false
}

// signed reports whether a header of the sandbox's request r has a signature that the proxy replaces.
func (c *exchange) signed(r *http.Request) bool {
	_, in := c.signer(r)
	return in
}

// resign signs out, the request to the server, with the real keys if r, the sandbox's request from which out was made,
// is signed with the placeholder of a secret of AWS. It refuses a signature that is not the placeholder's, and the
// kinds of signatures that the proxy cannot make. It adds the secret's name to those that j has used.
func (c *exchange) resign(r, out *http.Request, j *injection) *refusal {
	s, inHeader := c.signer(r)
	if s == nil {
		return nil
	}
	refuse := func(format string, args ...any) *refusal {
		return &refusal{status: http.StatusForbidden, why: fmt.Sprintf("the secret %s of AWS: ", s.Name) + fmt.Sprintf(format, args...)}
	}
	if why := s.refuses(j.request); why != "" {
		return &refusal{status: http.StatusForbidden, why: why}
	}
	if !inHeader {
		return refuse("a presigned URL, whose signature is in the query, is not supported: sign headers")
	}
	g, err := readSignature(r.Header)
	if err != nil {
		return refuse("%v", err)
	}
	if anybodys(c.to.Name) && !s.names(c.to.Name) {
		return refuse("%s may be anybody's server: name it as a host of the secret, without a star", c.to.Name)
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case strings.HasPrefix(payload, "STREAMING-") && payload != "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return refuse("the payload %.60q, whose chunks are signed, is not supported", payload)
	case !slices.Contains(g.headers, "x-amz-content-sha256"):
		text, no := c.broker.hold(out)
		if no != nil {
			return no
		}
		digest := sha256.Sum256(text)
		payload = hex.EncodeToString(digest[:])
	}
	mine := aws.Credentials{AccessKeyID: placeholder.KeyID(s.Placeholder), SecretAccessKey: s.Placeholder}
	want, err := g.sign(r, r.Host, r.Header, mine, payload)
	if err != nil {
		return refuse("%v", err)
	}
	if subtle.ConstantTimeCompare([]byte(signatureIn(want.Get("Authorization"))), []byte(g.signature)) != 1 {
		return refuse("the signature is not that of the placeholder key")
	}
	real, err := g.sign(out, out.Host, out.Header, *s.aws, payload)
	if err != nil {
		return refuse("%v", err)
	}
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v := real.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	j.used = append(j.used, s.Name)
	return nil
}

// anybodys reports whether the server called name is one that any customer of AWS may run under a name of AWS.
func anybodys(name string) bool {
	return slices.ContainsFunc([]string{".execute-api.", ".lambda-url.", ".elb.", ".on.aws", ".awsapprunner.", ".elasticbeanstalk.", ".cloudfront.", ".compute."}, func(part string) bool {
		return strings.Contains(name+".", part) || strings.HasSuffix(name, part)
	})
}

// names reports whether the secret's hosts have the server called name without a star.
func (s *secret) names(name string) bool {
	return slices.ContainsFunc(s.Hosts, func(host string) bool {
		host, _, _ = strings.Cut(host, ":")
		return network.Fold(host) == name
	})
}

// maxSkew is how far the time of a signature may be from the proxy's clock. AWS refuses others, too.
const maxSkew = 15 * time.Minute

// A signature is the content of the header Authorization of a request to AWS, with the time of its signature.
type signature struct {
	when            time.Time
	region, service string
	headers         []string // that are signed, in lower case
	signature       string
}

// readSignature returns the signature in h, the headers of a request.
func readSignature(h http.Header) (g signature, err error) {
	values := h["Authorization"]
	algorithm, rest, _ := strings.Cut(strings.Join(values, " "), " ")
	if len(values) != 1 || algorithm != signing {
		return g, fmt.Errorf("the signature %.40q is not supported, only one %s", algorithm, signing)
	}
	if h.Get("X-Amz-Security-Token") != "" {
		return g, errors.New("the placeholder keys have no session token: unset AWS_SESSION_TOKEN")
	}
	part := map[string]string{}
	for one := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		part[name] = value
	}
	scope := strings.Split(part["Credential"], "/") // ID/20260131/us-east-1/s3/aws4_request
	const members = 5
	if len(scope) != members || scope[members-1] != "aws4_request" || part["SignedHeaders"] == "" || part["Signature"] == "" {
		return g, errors.New("the header Authorization is malformed")
	}
	g.when, err = time.Parse("20060102T150405Z", h.Get("X-Amz-Date"))
	if err != nil || g.when.Format("20060102") != scope[1] {
		return g, errors.New("the header X-Amz-Date is not that of the signature")
	}
	if skew := time.Since(g.when).Abs(); skew > maxSkew {
		return g, fmt.Errorf("the signature is for a time %s from now, and at most %s is allowed", skew.Round(time.Minute), maxSkew)
	}
	g.region, g.service, g.headers, g.signature = scope[2], scope[3], strings.Split(part["SignedHeaders"], ";"), part["Signature"]
	return g, nil
}

// sign returns the headers with which keys sign the request r to host: those of g that h has, and the signature.
// payload is the digest of the body, or a word that stands for it. r stays as it is.
func (g *signature) sign(r *http.Request, host string, h http.Header, keys aws.Credentials, payload string) (http.Header, error) {
	one := &http.Request{Method: r.Method, Host: host, Header: http.Header{}, URL: &url.URL{
		Scheme: "https", Host: host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery,
	}}
	for _, name := range g.headers {
		key := http.CanonicalHeaderKey(name)
		switch {
		case name == "content-length":
			one.ContentLength = r.ContentLength
		case name != "host" && key != "X-Amz-Security-Token" && len(h[key]) > 0:
			one.Header[key] = slices.Clone(h[key])
		}
	}
	err := v4.NewSigner().SignHTTP(context.Background(), keys, one, payload, g.service, g.region, g.when, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = g.service == "s3" || strings.HasPrefix(g.service, "s3-") // its keys are escaped once
	})
	return one.Header, err
}

// signatureIn returns the signature in the value of a header Authorization.
func signatureIn(authorization string) string {
	_, s, _ := strings.Cut(authorization, "Signature=")
	return s
}
