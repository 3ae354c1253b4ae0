//go:build linux

package prove

import (
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// planLabels plans a probe that sends args[1], the content of a file with a label, to a server, args[0], that a network
// rule allows. Other content must pass.
func planLabels(args []string) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"send the content of a labelled file to " + args[0], func() outcome {
		if status, err := statusOf(host, port, "POST", HTTPRulePath, "hello"); err != nil || status != 200 {
			return untried("%s itself does not answer: %s", args[0], answerText(status, err))
		}
		status, err := statusOf(host, port, "POST", HTTPRulePath, args[1])
		switch {
		case err == nil && status == 200:
			return crossed("the server replied")
		case err == nil && status == 403:
			return held("status 403")
		}
		return untried("%s", answerText(status, err))
	}}, err
}

// planAsk plans a probe that connects to a server by a name, args[0], about which the sandbox's proxy asks a person who
// does not answer.
func planAsk(args []string) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"reach " + args[0] + ", about which nobody has answered", func() outcome {
		at, ok := addressOf(host)
		if !ok {
			return held("the name has no address, and nobody is asked")
		}
		began := time.Now()
		c, err := net.DialTimeout("tcp", net.JoinHostPort(at, port), answerTime)
		if err == nil {
			hangUp(c)
			return crossed("connected")
		}
		return held("%v after %.1f s", why(err), time.Since(began).Seconds())
	}}, err
}

// planBaseURL plans a probe that uses the URL in the variable args[0], which leads to one path of a server of a secret,
// for a path beside it, and looks for the secret as the probe secret does: args[1] is the variable with the placeholder,
// and args[2] the digest. The proxy passes a request for the right path on, and the server need not answer that.
func planBaseURL(args []string) (attempt, error) {
	return attempt{"use the base URL in the variable " + args[0] + " for another path", func() outcome {
		base, err := url.Parse(os.Getenv(args[0]))
		if err != nil || base.Host == "" {
			return untried("the variable has no URL")
		}
		if o := findSecret(args[1], args[2]); !o.held {
			return o
		}
		status, err := statusOf(base.Hostname(), base.Port(), "GET", base.Path, "")
		if err != nil || status == 403 {
			return untried("%s itself does not answer: %s", base, answerText(status, err))
		}
		switch status, err = statusOf(base.Hostname(), base.Port(), "GET", "/other", ""); {
		case err != nil:
			return untried("%v", err)
		case status != 403:
			return crossed("the request was passed on: status %d", status)
		}
		return held("status 403, and no process has the key")
	}}, nil
}

// planOtherName plans a probe that reads a hidden file by another of its names, the path args[0]. args[1] is the file's
// content.
func planOtherName(args []string) (attempt, error) {
	return attempt{"read a hidden file by its other name " + args[0], func() outcome {
		text, err := os.ReadFile(args[0])
		switch {
		case strings.Contains(string(text), args[1]):
			return crossed("it was read")
		case err != nil:
			return held("%v", why(err))
		}
		return held("it has another content")
	}}, nil
}
