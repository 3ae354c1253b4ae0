package broker

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/snapfs/snapfs/internal/units"
)

// maxHeld is how many bytes of request bodies the proxy of one sandbox holds in memory at the same time, four of the
// largest. A request beyond it is refused, and may be sent again a little later.
const maxHeld = 4 * maxBody

// A room is memory for the bodies that all requests of one sandbox hold. The zero value has none.
type room struct {
	mu         sync.Mutex
	most, used int64
}

// take changes what is reserved for one body from was to n bytes, or returns a refusal if so many are not free.
func (m *room) take(was, n int64) *refusal {
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

// A heldBody is the whole body of a request in memory. It gives up the memory when it was read or closed.
type heldBody struct {
	room  *room
	mu    sync.Mutex // guards the fields below
	text  []byte
	rest  bytes.Reader // of text
	taken int64        // the bytes that room has reserved for it
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

// Close gives up the memory. It may be called twice, also while another goroutine reads.
func (h *heldBody) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free()
	return nil
}

func (h *heldBody) free() {
	h.room.take(h.taken, 0)
	h.text, h.taken = nil, 0
	h.rest.Reset(nil)
}

// fill reads body to its end, which is about size bytes long, or -1 if nobody knows. It returns a refusal if the body is
// longer than most, if it was cut short, or if the room has no place for it.
func (h *heldBody) fill(body io.Reader, size, most int64) *refusal {
	const first = 64 << 10
	switch {
	case size > most:
		return longBody(most)
	case size < 0:
		size = first
	}
	for ; ; size = min(2*size, most) {
		if no := h.room.take(h.taken, size); no != nil {
			return no
		}
		h.taken = size
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
// request then has it as its body. Bodies longer than maxBody are refused, and those for which other requests leave no
// memory.
func (b *Broker) hold(out *http.Request) ([]byte, *refusal) {
	if h, ok := out.Body.(*heldBody); ok {
		return h.text, nil
	}
	h, was := &heldBody{room: &b.room}, out.Body
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

// setBody replaces the body of a request, which hold has returned, by text. It refuses one that the memory has no place
// for.
func (b *Broker) setBody(out *http.Request, text []byte) *refusal {
	h, ok := out.Body.(*heldBody)
	if !ok {
		h = &heldBody{room: &b.room}
		out.Body = h
	}
	if no := b.room.take(h.taken, int64(cap(text))); no != nil {
		return no
	}
	h.taken, h.text = int64(cap(text)), text
	h.rest.Reset(text)
	if out.ContentLength = int64(len(text)); len(text) == 0 {
		out.Body = http.NoBody
		_ = h.Close() // it frees memory
	}
	return nil
}
