// Package cosign has the requests and answers with which a witness cosigns the checkpoint of an evidence log, by the
// protocol C2SP tlog-witness. It opens no connection: the program snapfs-serve sends the request for the command
// snapfs evidence cosign, so that no other command starts slower. No sandbox waits for a network.
package cosign

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"golang.org/x/mod/sumdb/tlog"
)

// A Request is sent to a witness by HTTP POST.
type Request struct {
	URL  string `json:"url"`
	Body string `json:"body"`
}

// An Answer is the status and the body of the witness's response.
type Answer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// RequestOf returns the request to the witness at base to cosign a signed checkpoint of an evidence log, with the proof
// that the log continues its first old records.
func RequestOf(base string, old int64, proof tlog.TreeProof, checkpoint []byte) (Request, error) {
	address, err := url.JoinPath(base, "add-checkpoint")
	if err != nil || !strings.HasPrefix(address, "http") {
		return Request{}, errs.New("asking a witness", base, errs.ErrInvalid, "it is no URL with http or https")
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", old)
	for _, h := range proof {
		fmt.Fprintln(&body, h)
	}
	body.WriteByte('\n')
	body.Write(checkpoint)
	return Request{address, body.String()}, nil
}

// Lines returns the cosignatures in the answer of the witness at base. If the witness has last cosigned the log at
// another size than the request said, Lines returns an error and this size as other, which is -1 else. Errors:
// errs.ErrNotFound, if the witness does not know the log; errs.ErrCorrupt, if the log does not continue the one that it
// has cosigned; errs.ErrDenied.
func (a Answer) Lines(base string) (lines []string, other int64, err error) {
	switch a.Status {
	case 200:
		return strings.Split(strings.TrimSuffix(a.Body, "\n"), "\n"), -1, nil
	case 409:
		size, err := strconv.ParseInt(strings.TrimSpace(a.Body), 10, 64)
		if err != nil || size < 0 {
			return nil, -1, errs.New("asking a witness", base, errs.ErrCorrupt, "it answers with 409 and no size")
		}
		return nil, size, errs.New("asking a witness", base, errs.ErrInvalid, "it has last cosigned "+strconv.FormatInt(size, 10)+" records")
	case 404:
		return nil, -1, errs.New("asking a witness", base, errs.ErrNotFound, "it does not know this log (404)")
	case 422:
		return nil, -1, errs.New("asking a witness", base, errs.ErrCorrupt, "the record does not continue the one that it has cosigned (422)")
	}
	return nil, -1, errs.New("asking a witness", base, errs.ErrDenied, "it answers with status "+strconv.Itoa(a.Status))
}
