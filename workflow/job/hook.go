package job

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
)

const (
	// skew is how far the time in a request to a webhook may be from this host's time. An older request is
	// refused, because it may be a repetition by somebody else.
	skew = 5 * time.Minute
	// mostUsed is how many requests a webhook accepts within twice the time skew, in which they could be
	// repeated. mostOpen is how many jobs that it submitted may be unfinished at the same time. Beyond
	// either, a request fails with ErrBusy.
	mostUsed = 1000
	mostOpen = 100
)

// A hookRequest is the JSON body of a request to a webhook, which submits, approves or rejects a job. An
// empty body, or an empty action, submits one.
type hookRequest struct {
	Action string `json:"action"` // submit, approve or reject
	Job    int    `json:"job"`
	Plan   string `json:"plan"` // the one that is approved; "" for that of the job
}

// Hook carries out a request to the webhook with this number: it submits the trigger's job, or approves or
// rejects one that the trigger has submitted. signature is "t=SECONDS,v1=HEX", where HEX is the HMAC-SHA256,
// with the webhook's secret, of SECONDS, a dot and the body. A request that is repeated within the five
// minutes that it is valid submits nothing: the result is the same job. Errors: ErrDenied for every request
// that is not signed so by the trigger's secret, also if there is no such trigger; ErrInvalid; ErrBusy for
// too many; those of [Store.Approve] and [Store.Reject].
func (s *Store) Hook(ctx context.Context, number int, signature string, body []byte) (*Job, error) {
	const op = "checking a webhook's request"
	denied := errs.New(op, strconv.Itoa(number), errs.ErrDenied, "the request is not signed with the secret of this trigger, or is older than five minutes", "snapfs job triggers")
	t, err := s.readTrigger(number)
	if err != nil || t.Secret == "" {
		t = &storedTrigger{Secret: "none"} // takes as long as a wrong signature
	}
	id, ok := verify(t.Secret, signature, body, s.now())
	if err != nil || !t.Webhook || !ok {
		return nil, denied
	}
	var q hookRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, errs.New(op, "", errs.ErrInvalid, "the body is no JSON object: "+err.Error())
		}
	}
	switch q.Action {
	case "", "submit":
		return s.fire(number, id, func(t *storedTrigger) error { return s.use(t, id) })
	case "approve", "reject":
		j, err := s.Get(q.Job)
		if err != nil || j.Trigger != number {
			return nil, errs.New(op, strconv.Itoa(q.Job), errs.ErrDenied, "the trigger has not submitted this job")
		}
		if q.Action == "approve" && len(q.Plan) < shortPlan { // a request that comes twice would approve another one
			return nil, errs.New(op, strconv.Itoa(q.Job), errs.ErrInvalid, "approve requires the fingerprint of the plan, or its first 12 digits")
		}
		if q.Action == "reject" {
			return s.Reject(ctx, q.Job)
		}
		return s.Approve(ctx, q.Job, q.Plan)
	}
	return nil, errs.New(op, "", errs.ErrInvalid, fmt.Sprintf("unknown action %q: use submit, approve or reject", q.Action))
}

// use adds the request with the signature id to those that the webhook t has accepted, in memory only. It
// refuses a request if there are too many, or too many open jobs. A repeated request is no error as long as
// its job exists.
func (s *Store) use(t *storedTrigger, id string) error {
	const op = "submitting the job of trigger"
	now := s.now()
	t.Used = slices.DeleteFunc(t.Used, func(u used) bool { return now.After(u.Until) })
	if slices.ContainsFunc(t.Used, func(u used) bool { return u.ID == id }) {
		if j, _ := s.firedAs(t.Number, id); j == nil { // it was removed meanwhile
			return errs.New(op, strconv.Itoa(t.Number), errs.ErrExists, "the request was carried out already")
		}
		return nil
	}
	jobs, err := s.List()
	if err != nil && len(jobs) == 0 {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j Job) bool { return j.Trigger != t.Number || j.State.Final() })
	if len(t.Used) >= mostUsed || len(jobs) >= mostOpen {
		return errs.New(op, strconv.Itoa(t.Number), errs.ErrBusy, "it has too many requests, or too many jobs that have not ended", "snapfs job ls")
	}
	t.Used = append(t.Used, used{id, now.Add(2 * skew).UTC()})
	return nil
}

// verify reports whether signature is valid for a webhook's request with this body at now, by the webhook's
// secret. Its duration does not depend on how much of the signature is right. id is the valid signature.
func verify(secret, signature string, body []byte, now time.Time) (id string, ok bool) {
	stamp, given, found := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	raw, err := hex.DecodeString(given)
	same := hmac.Equal(want, raw)
	seconds, serr := strconv.ParseInt(stamp, 10, 64)
	age := now.Sub(time.Unix(seconds, 0))
	ok = found && err == nil && serr == nil && same && age.Abs() <= skew && strings.HasPrefix(signature, "t=")
	return hex.EncodeToString(want), ok
}
