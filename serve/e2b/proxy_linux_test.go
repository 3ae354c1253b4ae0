package e2b_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b"
)

// TestAPortOfTheHostRequiresTheToken: with the host's network, a sandbox's ports are all of the host's. Cost: half a
// second.
func TestAPortOfTheHostRequiresTheToken(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t, func(o *e2b.Options) { o.Rules.Policy.Network = "host" })
	s := d.create(nil)
	_, _, stop := s.begin(shell("sleep 1000"))
	defer stop()
	var visits, leaks atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		if r.Header.Get("X-Access-Token") != "" {
			leaks.Add(1)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	defer service.Close()
	portOf := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Port()
	}
	hostOf := func(address string) string { return portOf(address) + "-" + s.SandboxID + "." + s.Domain }
	for _, token := range []string{"", "wrong"} {
		d.refuses(http.StatusForbidden, "X-Access-Token", http.MethodGet, "/", nil, "Host", hostOf(service.URL), "X-Access-Token", token)
		d.refuses(http.StatusForbidden, "X-Access-Token", http.MethodGet, "/", nil, "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", portOf(service.URL), "X-Access-Token", token)
		d.refuses(http.StatusForbidden, "X-Access-Token", http.MethodGet, "/", nil, "Host", hostOf(d.url), "X-Access-Token", token)
	}
	if visits.Load() != 0 {
		t.Error("a client without the token reached the service")
	}
	d.refuses(http.StatusTeapot, "", http.MethodGet, "/", nil, "Host", hostOf(service.URL), "X-Access-Token", s.Token)
	if visits.Load() != 1 || leaks.Load() != 0 {
		t.Errorf("%d visits, %d with the token", visits.Load(), leaks.Load())
	}
	d.refuses(http.StatusLoopDetected, "itself", http.MethodGet, "/", nil, "Host", hostOf(d.url), "X-Access-Token", s.Token)
	d.refuses(http.StatusBadRequest, "no port", http.MethodGet, "/", nil, "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "0", "X-Access-Token", s.Token)
}

// TestARefusedRequestResumesNothing: nor do the ports that clients ask for grow without a bound. Cost: a second.
func TestARefusedRequestResumesNothing(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(M{"autoPause": true, "autoResume": M{"enabled": true}, "network": M{"allowPublicTraffic": false}})
	path := "/sandboxes/" + s.SandboxID
	state := func() string {
		t.Helper()
		var is struct{ State string }
		d.do(http.StatusOK, http.MethodGet, path, nil, &is)
		return is.State
	}
	d.do(http.StatusNoContent, http.MethodPost, path+"/pause", nil, nil)
	hostOf := func(port int) string { return strconv.Itoa(port) + "-" + s.SandboxID + "." + s.Domain }
	for _, token := range []string{"", "wrong"} {
		d.refuses(http.StatusForbidden, "require", http.MethodGet, "/", nil, "Host", hostOf(8123), "E2b-Traffic-Access-Token", token)
	}
	if is := state(); is != "paused" {
		t.Errorf("after a refused request the sandbox is %s", is)
	}
	_, _, stop := s.begin(shell("sleep 1000"))
	defer stop()
	for port := range supervise.MaxProxyPorts {
		d.refuses(http.StatusBadGateway, "port is not open", http.MethodGet, "/", nil, "Host", hostOf(port+1), "E2b-Traffic-Access-Token", s.Traffic)
	}
	d.refuses(http.StatusInsufficientStorage, "ports of the sandbox already", http.MethodGet, "/", nil, "Host", hostOf(9000), "E2b-Traffic-Access-Token", s.Traffic)
	d.refuses(http.StatusBadGateway, "port is not open", http.MethodGet, "/", nil, "Host", hostOf(1), "E2b-Traffic-Access-Token", s.Traffic)
	if is := state(); is != "running" {
		t.Errorf("the sandbox is %s", is)
	}
}
