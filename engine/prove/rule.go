//go:build linux

package prove

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ruleProbes returns the probes that try to break a rule that a profile can have, in a sandbox with that rule.
// Each takes some milliseconds.
func ruleProbes() []Probe {
	return []Probe{
		{Name: "data", Args: []string{"PATH..."}, plan: planReadOnly},
		{Name: "writable", Args: []string{"PATH..."}, plan: planReadOnly},
		{Name: "readable", Args: []string{"PATH..."}, plan: planRead},
		{Name: "recorded", Args: []string{"PATH"}, plan: planRecorded},
		{Name: "tools", Args: []string{"PROGRAM"}, plan: planProgram},
		{Name: "tools-allow", Args: []string{"PROGRAM"}, plan: planProgram},
		{Name: "tools-digest", Args: []string{"PROGRAM"}, plan: planProgram},
		{Name: "tools-arguments", Args: []string{"PROGRAM"}, plan: planArguments},
		{Name: "other-name", Args: []string{"PATH", "TEXT"}, plan: planOtherName},
		{Name: "approval", Args: []string{"DIRECTORY"}, plan: planApproval},
		{Name: "secret", Args: []string{"VARIABLE", "SHA256"}, plan: planSecret},
		{Name: "tokens", Args: []string{"HOST:PORT"}, plan: planTokens},
		{Name: "http-method", Args: []string{"HOST:PORT"}, plan: func(args []string) (attempt, error) { return planRequest(args, "POST", HTTPRulePath) }},
		{Name: "http-path", Args: []string{"HOST:PORT"}, plan: func(args []string) (attempt, error) { return planRequest(args, "GET", "/other") }},
		{Name: "labels", Args: []string{"HOST:PORT", "TEXT"}, plan: planLabels},
		{Name: "ask", Args: []string{"HOST:PORT"}, plan: planAsk},
		{Name: "base-url", Args: []string{"URL-VARIABLE", "VARIABLE", "SHA256"}, plan: planBaseURL},
		{Name: "aws", Args: []string{"URL-VARIABLE", "SHA256"}, plan: planAWS},
	}
}

// planRead plans a probe that lists directories and reads files, of which the policy of the sandbox allows none.
func planRead(args []string) (attempt, error) {
	return attempt{"read " + strings.Join(args, ", "), func() outcome {
		for _, path := range args {
			f, err := os.Open(path)
			switch {
			case err == nil:
				f.Close()
				return crossed("%s can be read", path)
			case !errors.Is(err, unix.EACCES):
				return untried("%v", err)
			}
		}
		return held("%v", unix.EACCES)
	}}, nil
}

// planRecorded plans a probe that reads the file args[0], after it has given it another name. The first read of the file
// is recorded, or fails; whether the record is there only the host can see.
func planRecorded(args []string) (attempt, error) {
	return attempt{"read " + args[0] + " by another name", func() outcome {
		other := args[0] + ".other"
		if err := os.Rename(args[0], other); err != nil {
			return untried("%v", err)
		}
		_, err := os.ReadFile(other)
		if back := os.Rename(other, args[0]); back != nil {
			return untried("%v", back)
		}
		if err != nil {
			return held("%v", err)
		}
		return crossed("it can be read, and no event says so")
	}}, nil
}

// planSecret plans a probe that looks for a secret in the environments and the arguments of all processes that it
// sees. args[0] is the variable with the placeholder, and args[1] the secret's digest: the secret itself may not be an
// argument.
func planSecret(args []string) (attempt, error) {
	return attempt{"read the secret behind the variable " + args[0], func() outcome {
		return findSecret(args[0], args[1])
	}}, nil
}

// findSecret looks for a secret in the environments and the arguments of all processes that it sees. digest is the
// SHA-256 digest of the secret, and the variable called name has its placeholder.
func findSecret(name, digest string) outcome {
	if os.Getenv(name) == "" {
		return untried("the variable is not set")
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	arguments, err2 := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || err2 != nil || len(environments) == 0 {
		return untried("/proc lists no process")
	}
	for _, path := range append(environments, arguments...) {
		text, _ := os.ReadFile(path) // of a process that ended, or of another user
		for word := range bytes.SplitSeq(text, []byte{0}) {
			_, value, _ := bytes.Cut(word, []byte("="))
			for _, one := range [][]byte{word, value} {
				if hexDigest(string(one)) == digest {
					return crossed("%s has it", path)
				}
			}
		}
	}
	return held("a placeholder is there, and no process has the secret")
}

// planTokens plans a probe that asks a server, args[0], for more tokens of a language model than the budget of its
// sandbox has.
func planTokens(args []string) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"use more tokens than the budget has, of " + args[0], func() outcome {
		const question = `{"model":"m","max_tokens":8,"messages":[]}`
		for n := range 3 {
			status, err := statusOf(host, port, "POST", "/v1/messages", question)
			switch {
			case err == nil && status == 200 && n > 0:
				return crossed("a request beyond the budget was answered")
			case err == nil && status == 200:
			case err == nil && status == 429 && n > 0:
				return held("status 429 after %d tokens", ProofUsage)
			default:
				return untried("request %d: %s", n+1, answerText(status, err))
			}
		}
		return untried("no request was refused")
	}}, err
}

// planRequest plans a probe that sends an HTTP request which no network rule allows to a server, args[0], of which
// a rule allows GET and [HTTPRulePath].
func planRequest(args []string, method, path string) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"send " + method + " " + path + " to " + args[0], func() outcome {
		if status, err := statusOf(host, port, "GET", HTTPRulePath, ""); err != nil || status != 200 {
			return untried("%s itself does not answer: %s", args[0], answerText(status, err))
		}
		status, err := statusOf(host, port, method, path, "")
		switch {
		case err == nil && status == 200:
			return crossed("the server replied")
		case err == nil && status == 403:
			return held("status 403")
		}
		return untried("%s", answerText(status, err))
	}}, err
}

// answerTime is how long a probe waits for the reply to a request that reaches a server or is refused with a status.
const answerTime = 20 * time.Second

// statusOf sends an HTTP request, without TLS, to a server by the address that the sandbox's name server has for it,
// and returns the status of the reply. It reads the reply to its end: only then has the proxy counted the tokens in it.
func statusOf(host, port, method, path, body string) (int, error) {
	return statusWith(host, port, method, path, "", body)
}

// statusWith does as statusOf does, with more headers, each with its line end.
func statusWith(host, port, method, path, headers, body string) (int, error) {
	to := net.JoinHostPort(host, port)
	at := to
	if address, ok := addressOf(host); ok {
		at = net.JoinHostPort(address, port)
	}
	c, err := net.DialTimeout("tcp", at, answerTime)
	if err != nil {
		return 0, why(err)
	}
	defer hangUp(c)
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", method, path, to, len(body), headers, body); err != nil {
		return 0, why(err)
	}
	return readStatus(c)
}

// readStatus reads an HTTP reply from r to its end, at most 64 KiB of it, and returns the status in its first line.
func readStatus(r io.Reader) (int, error) {
	reply := bufio.NewReader(io.LimitReader(r, 64<<10))
	line, err := reply.ReadString('\n')
	_, _ = io.Copy(io.Discard, reply) // the status is known, whatever follows
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, why(err)
	}
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return 0, errors.New("the server sent no HTTP status line")
	}
	return strconv.Atoi(fields[1])
}

// answerText returns what statusOf returned as text for the user: the error, or the status.
func answerText(status int, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("status %d", status)
}
