//go:build linux

package prove

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// Variables of AWS's own clients, with the placeholders of a secret of AWS inside a sandbox.
const (
	awsID  = "AWS_ACCESS_KEY_ID"
	awsKey = "AWS_SECRET_ACCESS_KEY"
)

// planAWS plans a probe that uses keys of AWS of which the sandbox has placeholders. It looks for the real secret key
// as the probe secret does: args[1] is its digest. Then it sends requests by the URL in the variable args[0], which
// leads to a server that the keys are for on [HTTPRulePath] only: without a signature, with those of other keys, for
// other scopes, and for another path. The proxy passes a request on that the placeholders sign, and the server need not
// answer it.
func planAWS(args []string) (attempt, error) {
	return attempt{"use keys of AWS by the URL in the variable " + args[0] + " with a false signature", func() outcome {
		base, err := url.Parse(os.Getenv(args[0]))
		if err != nil || base.Host == "" {
			return untried("the variable has no URL")
		}
		if o := findSecret(awsKey, args[1]); !o.held {
			return o
		}
		mine := awsSigner{id: os.Getenv(awsID), key: os.Getenv(awsKey), region: "us-east-1", when: time.Now().UTC()}
		send := func(path, headers string) (int, error) {
			return statusWith(base.Hostname(), base.Port(), "GET", path, headers, "")
		}
		if status, err := send(HTTPRulePath, mine.headers(base.Host, HTTPRulePath)); err != nil || status == 403 {
			return untried("a request with the placeholders' signature does not pass: %s", answerText(status, err))
		}
		others := mine
		others.key += "x"
		for _, f := range []struct{ what, path, headers string }{
			{"that another key signed", HTTPRulePath, others.headers(base.Host, HTTPRulePath)},
			{"without a signature", HTTPRulePath, "Authorization: " + awsAlgorithm + " Credential=" + mine.id + "/" + mine.scope() + "\r\n"},
			{"that is signed for another path", HTTPRulePath, mine.headers(base.Host, HTTPRulePath+"/other")},
			{"that is signed for another region", HTTPRulePath, strings.Replace(mine.headers(base.Host, HTTPRulePath), mine.region, "eu-west-1", 1)},
			{"that is signed for another day", HTTPRulePath, mine.yesterday(base.Host, HTTPRulePath)},
			{"for a path that the keys are not for", "/other", mine.headers(base.Host, "/other")},
		} {
			status, err := send(f.path, f.headers)
			switch {
			case err != nil:
				return untried("a request %s: %v", f.what, err)
			case status != 403:
				return crossed("a request %s was passed on: status %d", f.what, status)
			}
		}
		return held("status 403 for each, and no process has the key")
	}}, nil
}

// awsAlgorithm is the name of the signatures of AWS, Signature Version 4.
const awsAlgorithm = "AWS4-HMAC-SHA256"

// An awsSigner signs requests to AWS with keys, for a region and a time.
type awsSigner struct {
	id, key, region string
	when            time.Time
}

// scope returns the credential scope of a signature (date, region, service), for the service s3.
func (s awsSigner) scope() string {
	return strings.Join([]string{s.when.Format("20060102"), s.region, "s3", "aws4_request"}, "/")
}

// yesterday returns what headers does, signed for the day before, but with the time of today.
func (s awsSigner) yesterday(host, path string) string {
	before := s
	before.when = s.when.Add(-24 * time.Hour)
	return strings.Replace(before.headers(host, path), before.stamp(), s.stamp(), 1)
}

func (s awsSigner) stamp() string { return s.when.Format("20060102T150405Z") }

// headers returns the headers, each with its line end, that sign a request GET of a path of host without a body.
func (s awsSigner) headers(host, path string) string {
	const signed = "host;x-amz-content-sha256;x-amz-date"
	empty := hexDigest("")
	request := "GET\n" + path + "\n\nhost:" + host + "\nx-amz-content-sha256:" + empty + "\nx-amz-date:" + s.stamp() + "\n\n" + signed + "\n" + empty
	text := awsAlgorithm + "\n" + s.stamp() + "\n" + s.scope() + "\n" + hexDigest(request)
	key := []byte("AWS4" + s.key)
	for part := range strings.SplitSeq(s.scope(), "/") {
		key = hmacSHA256(key, part)
	}
	return fmt.Sprintf("X-Amz-Date: %s\r\nX-Amz-Content-Sha256: %s\r\nAuthorization: %s Credential=%s/%s, SignedHeaders=%s, Signature=%x\r\n",
		s.stamp(), empty, awsAlgorithm, s.id, s.scope(), signed, hmacSHA256(key, text))
}

func hexDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
