package broker

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/snapfs/snapfs/network"
)

// labelWhy is the reason of a refusal of what the proxy cannot read, while the sandbox has labelled files.
const labelWhy = "the sandbox has labelled files (secret or private in [data]), and "

// Labelled reports whether the sandbox has labelled files, whose content may not leave it. So the proxy may pass on
// only what it can search.
func (b *Broker) Labelled() bool { return b.options.Labels != nil }

// HasLabelled returns the reason to refuse a text, such as a name to look up, because it has content of a labelled
// file; "" if it has none.
func (b *Broker) HasLabelled(text []byte) string {
	if len(text) > shortText {
		select {
		case b.searches <- struct{}{}:
			defer func() { <-b.searches }()
		case <-b.ctx.Done():
			return "the proxy ends"
		}
	}
	hits, err := b.options.Labels.Find(text)
	switch {
	case err != nil:
		return err.Error()
	case len(hits) > 0:
		return "it has " + hits[0].String()
	}
	return ""
}

// maxSearches is how many texts of a sandbox are searched for labelled content at the same time, because a search of
// compressed data has some MiB in memory. A text of up to shortText bytes, such as a name to look up, waits for none.
const (
	maxSearches = 4
	shortText   = 512
)

// labelled returns a refusal for the sandbox's request r if a part of it has content of a labelled file, or cannot be
// searched for that: its method, its URL, a header, its body, or a header after the body. q is the request for the
// network rules. It reads the whole body, which r has anew afterwards.
func (c *exchange) labelled(r *http.Request, q *network.Request) *refusal {
	if !c.broker.Labelled() {
		return nil
	}
	path, query := q.Path, r.URL.RawQuery
	if plain, err := url.PathUnescape(path); err == nil {
		path += "\n" + plain
	}
	if why := c.broker.HasLabelled([]byte(path)); why != "" {
		q.Path = "" // it is in the log
		return labelRefusal("the path", why)
	}
	if why := c.broker.HasLabelled([]byte(query)); why != "" {
		return labelRefusal("the query", why)
	}
	if no := c.labelledHeaders(r.Method, r.Header); no != nil {
		return no
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	text, no := c.broker.hold(r)
	if no != nil {
		return no
	}
	for _, coding := range r.Header.Values("Content-Encoding") {
		for one := range strings.SplitSeq(coding, ",") {
			if no := c.labelledCoding(strings.ToLower(strings.TrimSpace(one)), text); no != nil {
				return no
			}
		}
	}
	if why := c.broker.HasLabelled(text); why != "" {
		return labelRefusal("the body", why)
	}
	return c.labelledHeaders("", r.Trailer)
}

// labelledHeaders returns a refusal if the headers, or the method before them, have labelled content.
func (c *exchange) labelledHeaders(method string, h http.Header) *refusal {
	text := []byte(method)
	for name, values := range h {
		for _, v := range values {
			text = append(append(text, '\n'), name+": "+v...)
			if _, coded, ok := strings.Cut(v, " "); ok { // of Basic credentials, which may be shorter than a run of base64
				text = append(append(text, '\n'), coded...)
			}
		}
	}
	if why := c.broker.HasLabelled(text); why != "" {
		return labelRefusal("a header", why)
	}
	return nil
}

// labelledCoding returns a refusal for a body whose Content-Encoding is coding, if it cannot be decoded, or has
// labelled content.
func (c *exchange) labelledCoding(coding string, text []byte) *refusal {
	var plain io.Reader
	var err error
	switch coding {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		plain, err = gzip.NewReader(bytes.NewReader(text))
	case "deflate":
		if plain, err = zlib.NewReader(bytes.NewReader(text)); err != nil {
			plain, err = flate.NewReader(bytes.NewReader(text)), nil // as some clients send it
		}
	default:
		return labelRefusal("the body", fmt.Sprintf("its encoding %.40q cannot be searched for labelled content; send it as it is, or with gzip", coding))
	}
	if err != nil {
		return notCoded(coding, err)
	}
	h := &heldBody{memory: &c.broker.memory}
	defer func() { _ = h.Close() }() // it gives up the memory
	switch no := h.fill(plain, -1, maxDecoded); {
	case no != nil && no.status == http.StatusBadRequest:
		return notCoded(coding, errors.New(no.why))
	case no != nil:
		return no
	}
	if why := c.broker.HasLabelled(h.text); why != "" {
		return labelRefusal("the body", why)
	}
	return nil
}

func notCoded(coding string, err error) *refusal {
	return labelRefusal("the body", "it is no "+coding+", as its Content-Encoding says: "+err.Error())
}

// maxDecoded is how many bytes a compressed body may have, decoded, to be searched for labelled content. While it is
// searched, they count among those that requests hold (maxHeld).
const maxDecoded = 64 << 20

func labelRefusal(part, why string) *refusal {
	return &refusal{status: http.StatusForbidden, why: part + " of the request is refused: " + why}
}

// Unsearchable returns the reason to refuse a connection whose bytes the proxy cannot read, named by what, while the
// sandbox has labelled files; "" without them. b may be nil.
func (b *Broker) Unsearchable(what string) string {
	if b == nil || !b.Labelled() {
		return ""
	}
	return labelWhy + what + " cannot be searched for their content"
}
