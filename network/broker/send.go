package broker

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/placeholder"
)

// hopHeaders are the HTTP headers that concern one connection and are not passed on (RFC 9110, 7.6.1).
var hopHeaders = [...]string{"Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "Te", "Expect", "Content-Length", "Host"}

// send sends the request r to the server, with secrets inserted, and passes the response on to w. It returns
// a refusal if nothing was written to w. rule is the network rule that allowed the request.
func (c *exchange) send(w http.ResponseWriter, r *http.Request, q network.Request, rule string) *refusal {
	j := &injection{broker: c.broker, request: q}
	out, no := c.request(r, q, j)
	if out != nil {
		defer func() { _ = out.Body.Close() }() // one that is held in memory gives it up
	}
	if no == nil && j.why != "" {
		no = &refusal{status: http.StatusForbidden, why: j.why, rule: rule}
	}
	if no != nil {
		return no
	}
	bill, no := c.broker.reserve(out, q)
	if no != nil {
		return no
	}
	ev := c.event(q, rule, "")
	ev.Secrets = j.used
	c.refused(ev)
	ctx := r.Context()
	if bill.drains() {
		var end func()
		ctx, end = c.drained(ctx, bill)
		defer end()
	}
	response, err := c.roundTrip(ctx, r, out)
	if err != nil {
		bill.settle(0)
		if over := bill.refused(); over != nil {
			return over
		}
		return unreachable(err, j.pairs())
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	return c.answer(w, r, response, j, bill)
}

// request returns the request to send to the server, made from the sandbox's request r, with secrets inserted
// by j.
func (c *exchange) request(r *http.Request, q network.Request, j *injection) (*http.Request, *refusal) {
	scheme := "http"
	if c.secure() {
		scheme = "https"
	}
	out := &http.Request{
		Method: r.Method, Host: c.hostOf(r), Header: make(http.Header, len(r.Header)+2), Body: r.Body, ContentLength: r.ContentLength, Trailer: r.Trailer,
		URL: &url.URL{Scheme: scheme, Host: c.to.Name + ":" + strconv.Itoa(int(c.to.Port)), RawQuery: j.query(r.URL.RawQuery)},
	}
	var err error
	if out.URL.Path, err = url.PathUnescape(q.Path); err != nil {
		return nil, &refusal{status: http.StatusBadRequest, why: err.Error()}
	}
	out.URL.RawPath = q.Path
	dropped := hopHeaders[:]
	for _, list := range r.Header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			dropped = append(slices.Clip(dropped), http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range r.Header {
		if slices.Contains(dropped, name) {
			continue
		}
		if len(name) >= placeholder.Len && placeholder.Find([]byte(strings.ToLower(name))) >= 0 {
			j.why = "a placeholder in the name of a header"
		}
		out.Header[name] = j.headers(values)
	}
	c.authorize(out, j)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // none, rather than that of this library
	}
	if strings.Contains(strings.ToLower(r.Header.Get("Te")), "trailers") {
		out.Header.Set("Te", "trailers")
	}
	if c.searches() {
		// What cannot be searched must not come, nor a secret in two halves.
		out.Header.Set("Accept-Encoding", "identity")
		if !c.signed(r) { // the server gets a signature, and no secret that it could return
			out.Header.Del("Range")
			out.Header.Del("If-Range")
		}
	}
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	if no := c.body(out, j); no != nil || j.why != "" {
		return out, no
	}
	return out, c.resign(r, out, j)
}

// searches reports whether the proxy must search the bodies of responses to the sandbox, for secrets that the
// server repeats or for the model tokens used. Without that a body is only copied.
func (c *exchange) searches() bool { return len(c.broker.secrets) > 0 || c.broker.meters(c.to.Name) }

// body replaces placeholders in the body of the request out by the secrets that may be inserted there. It
// reads the whole body for that.
func (c *exchange) body(out *http.Request, j *injection) *refusal {
	if out.Body == http.NoBody || j.why != "" ||
		!slices.ContainsFunc(c.broker.secrets, func(s *secret) bool { return s.Body && s.refuses(j.request) == "" }) {
		return nil
	}
	text, no := c.broker.hold(out)
	if no != nil {
		return no
	}
	for _, s := range c.broker.secrets {
		if !s.Body || s.refuses(j.request) != "" {
			continue
		}
		n := bytes.Count(text, []byte(s.Placeholder))
		if n == 0 {
			continue
		}
		if len(text)+n*(len(s.value)-len(s.Placeholder)) > maxBody {
			return longBody(maxBody)
		}
		text = bytes.ReplaceAll(text, []byte(s.Placeholder), s.value)
		j.used = append(j.used, s.Name)
	}
	return c.broker.setBody(out, text)
}

// answer passes the server's response on to w, the sandbox, with secrets replaced by their placeholders, and
// settles bill, the request's cost in the sandbox's budget. It returns a refusal if nothing was written to w.
func (c *exchange) answer(w http.ResponseWriter, r *http.Request, response *http.Response, j *injection, bill *bill) *refusal {
	status := response.StatusCode
	defer func() { bill.settle(status) }()
	if status == http.StatusSwitchingProtocols {
		return &refusal{status: http.StatusBadGateway, failed: true, why: "the server switched to another protocol unasked"}
	}
	pairs := j.pairs()
	body, length := io.Reader(response.Body), response.ContentLength
	if c.searches() && r.Method != http.MethodHead && response.Body != http.NoBody {
		coding := strings.ToLower(strings.Join(response.Header.Values("Content-Encoding"), ","))
		switch coding {
		case "", "identity":
		case "gzip", "x-gzip":
			unzip, err := gzip.NewReader(response.Body)
			if err != nil {
				return unreachable(err, pairs)
			}
			body = unzip
			response.Header.Del("Content-Encoding")
		default:
			return &refusal{status: http.StatusBadGateway, failed: true, why: "the server answered in the encoding " + coding + ", which cannot be searched for secrets"}
		}
		length = -1
		body = bill.meter(response, body)
		if len(pairs) > 0 {
			search := newRedactor(body, pairs, bufferSize(response, redactSize))
			search.got = j.given
			body = search
		}
	}
	h := w.Header()
	for name, values := range response.Header {
		if slices.Contains(hopHeaders[:], name) {
			continue
		}
		for i, v := range values {
			values[i] = replaceText(c.inside(r, name, v), pairs)
		}
		name = replaceText(name, pairs)
		h[name] = append(values[:len(values):len(values)], h[name]...)
	}
	if length >= 0 || r.Method == http.MethodHead && response.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(response.ContentLength, 10))
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // none, rather than a guess
	}
	for name := range response.Trailer {
		h.Add("Trailer", name)
	}
	w.WriteHeader(status)
	c.copyBody(w, body, bill, make([]byte, bufferSize(response, copySize)))
	for name, values := range response.Trailer {
		for _, v := range values {
			h.Add(http.TrailerPrefix+name, replaceText(v, pairs))
		}
	}
	return nil
}

// Sizes in bytes of the buffers for searching the body of a response for secrets, and for copying it.
const (
	redactSize = 16 << 10
	copySize   = 32 << 10
)

// bufferSize returns the size of a buffer for the body of a response: most, or less if the whole body is shorter. Most
// bodies are shorter, and allocating a large buffer costs more than the rest of the copying.
func bufferSize(response *http.Response, most int64) int64 {
	if response.ContentLength < 0 {
		return most
	}
	return min(most, response.ContentLength+1)
}

// copyBody copies the body of a response to the client in the sandbox, each part within [flushTime]; buf is its
// buffer. If the client has closed the connection, it reads on if the sandbox's budget needs the tokens used, which
// the end of the response reports.
func (c *exchange) copyBody(w http.ResponseWriter, body io.Reader, bill *bill, buf []byte) {
	out := newPartWriter(w)
	defer out.end()
	gone := false
	for {
		n, err := body.Read(buf)
		if n > 0 && !gone {
			gone = out.write(buf[:n], errors.Is(err, io.EOF)) != nil
		}
		if gone && !bill.drains() {
			return
		}
		if errors.Is(err, io.EOF) {
			bill.ended()
			return
		}
		if err != nil {
			if !gone {
				panic(http.ErrAbortHandler) //nolint:forbidigo // the way of net/http to cut a response: the client must not take a part for the whole
			}
			return
		}
	}
}

// drained returns a context for a request whose response must be read to its end for the tokens used. After ctx, the
// client's context, has ended, the request continues for drainTime. The caller calls end.
func (c *exchange) drained(ctx context.Context, bill *bill) (_ context.Context, end func()) {
	drained, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stops := []func() bool{
		context.AfterFunc(ctx, func() { bill.clientGone(cancel) }),
		// A connection that the proxy cuts cancels what it drains, and so does a proxy that ends.
		context.AfterFunc(c.ctx, cancel),
		context.AfterFunc(c.broker.ctx, cancel),
	}
	return drained, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// drainTime is how long a response is read on for the model tokens that it reports at its end, after its
// client has closed the connection. Then the request is cancelled.
const drainTime = 30 * time.Second
