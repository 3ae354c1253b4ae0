package broker

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/snapfs/snapfs/internal/units"
)

// maxHeld is how many bytes of request bodies the proxy of one sandbox holds in memory at the same time: four of the
// largest. The proxy refuses a request beyond it, which the client may send again a little later.
const maxHeld = 4 * maxBody

// A bodyMemory counts the bytes of memory that the held bodies of all requests of one sandbox have reserved. It refuses
// more than most bytes.
type bodyMemory struct {
	mu         sync.Mutex
	most, used int64
}

// reserve changes the reservation of one body from was to n bytes. If that many are not free, it changes nothing and
// returns a refusal.
func (m *bodyMemory) reserve(was, n int64) *refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > was && n-was > m.most-m.used {
		return &refusal{
			status: http.StatusServiceUnavailable, again: true,
			why: "other requests of the sandbox hold " + units.FormatSize(m.used-was) + " of the " + units.FormatSize(m.most) + " for bodies that are read before they are sent; the next request may come when they are over",
		}
	}
	m.used += n - was
	return nil
}

// A heldBody is the whole body of a request in memory. It frees the memory once it is read to its end or closed.
type heldBody struct {
	memory   *bodyMemory
	mu       sync.Mutex // guards the fields below
	text     []byte
	rest     bytes.Reader // the part of text that is not read yet
	reserved int64        // the bytes that memory has reserved for it
}

func (h *heldBody) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.rest.Read(p)
	if err != nil {
		h.free()
	}
	return n, err
}

// Close frees the memory. It may be called twice, also while another goroutine reads.
func (h *heldBody) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free()
	return nil
}

func (h *heldBody) free() {
	h.memory.reserve(h.reserved, 0)
	h.text, h.reserved = nil, 0
	h.rest.Reset(nil)
}

// fill reads body to its end. size is its expected length in bytes, or -1 if that is unknown. fill returns a refusal if
// the body is longer than most, if it is cut short, or if too little memory is free.
func (h *heldBody) fill(body io.Reader, size, most int64) *refusal {
	const first = 64 << 10
	switch {
	case size > most:
		return longBody(most)
	case size < 0:
		size = first
	}
	for ; ; size = min(2*size, most) {
		if no := h.memory.reserve(h.reserved, size); no != nil {
			return no
		}
		h.reserved = size
		text := make([]byte, size)
		n := copy(text, h.text)
		more, err := io.ReadFull(body, text[n:])
		h.text = text[:n+more]
		if err == nil { // there may be more
			var one [1]byte
			if more, err = io.ReadFull(body, one[:]); err == nil {
				if size == most {
					return longBody(most)
				}
				body = io.MultiReader(bytes.NewReader(one[:more]), body)
				size = max(size, first)
				continue
			}
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return &refusal{status: http.StatusBadRequest, why: "the body was cut short: " + err.Error()}
		}
		return nil
	}
}

func longBody(most int64) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, why: fmt.Sprintf("the body is longer than the %d MiB that can be read before it is sent", most>>20)}
}

// hold reads the whole body of a request into memory, to count it or to replace placeholders in it, and returns it. The
// request then has it as its body. hold refuses a body longer than maxBody, and one for which the bodies of other
// requests leave too little memory.
func (b *Broker) hold(out *http.Request) ([]byte, *refusal) {
	if h, ok := out.Body.(*heldBody); ok {
		return h.text, nil
	}
	h, was := &heldBody{memory: &b.memory}, out.Body
	if no := h.fill(was, out.ContentLength, maxBody); no != nil {
		_ = h.Close() // it frees memory
		return nil, no
	}
	_ = was.Close() // it was read
	if cap(h.text) > len(h.text)+len(h.text)/4 {
		h.text = bytes.Clone(h.text)
	}
	out.Body = h
	return h.text, b.setBody(out, h.text)
}

// setBody replaces the held body of a request by text. It returns a refusal if too little memory is free for text.
func (b *Broker) setBody(out *http.Request, text []byte) *refusal {
	h, ok := out.Body.(*heldBody)
	if !ok {
		h = &heldBody{memory: &b.memory}
		out.Body = h
	}
	if no := b.memory.reserve(h.reserved, int64(cap(text))); no != nil {
		return no
	}
	h.reserved, h.text = int64(cap(text)), text
	h.rest.Reset(text)
	if out.ContentLength = int64(len(text)); len(text) == 0 {
		out.Body = http.NoBody
		_ = h.Close() // it frees memory
	}
	return nil
}
