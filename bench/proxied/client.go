//go:build linux

package proxied

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
)

// Role is the name of the part of a process that calls [Request].
const Role = "requests"

// connections is how many connections a client has at once when it measures how many requests are answered in a
// second.
const connections = 16

// An order says to which URL [Request] sends its requests: Rounds one after another, and then Many at once. If Address
// is set it connects there instead.
type order struct {
	URL, Address string
	Rounds, Many int
}

// Request is the main function of a client: it sends requests with the variable API_KEY as a header, and writes its
// rates to out as JSON. ask is its order as JSON text. Errors: those of requests, and any answer but 200.
func Request(ctx context.Context, ask string, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(ask), &o); err != nil {
		return err
	}
	t := &http.Transport{MaxIdleConnsPerHost: connections, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true) // as nginx speaks to the server
	if o.Address != "" {
		t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, o.Address)
		}
	}
	defer t.CloseIdleConnections()
	c := &client{http: &http.Client{Transport: t}, url: o.URL, key: os.Getenv("API_KEY")}
	took := make([]time.Duration, o.Rounds)
	for i := range took {
		began := time.Now()
		if err := c.get(ctx); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	second, err := c.crowd(ctx, o.Many)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(rates{Median: timing.Median(took), Second: second})
}

// A client sends requests with a key. It is safe for concurrent use.
type client struct {
	http     *http.Client
	url, key string
}

// crowd sends n requests on all connections at once, and returns how many were answered in a second.
func (c *client) crowd(ctx context.Context, n int) (float64, error) {
	var all sync.WaitGroup
	failures := make([]error, connections)
	began := time.Now()
	for i := range failures {
		all.Go(func() {
			for k := 0; k < n/connections && failures[i] == nil; k++ {
				failures[i] = c.get(ctx)
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(failures...)
}

// get sends one request.
func (c *client) get(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	q.Header.Set(header, c.key)
	r, err := c.http.Do(q)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, text)
	}
	return err
}
