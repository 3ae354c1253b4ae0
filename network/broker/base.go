package broker

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/network"
)

// baseAt returns the secret whose base URL, an address of the proxy that stands for one server of the secret,
// has this port, or nil.
func (b *Broker) baseAt(at uint16) *secret {
	for _, s := range b.secrets {
		if s.Base != nil && s.Base.At == at {
			return s
		}
	}
	return nil
}

// Base returns the server for which the port at of the proxy's own addresses stands inside the sandbox, because
// a secret has a base URL. ok is false if the port stands for none. The proxy connects to the server and calls
// [Broker.Serve] with the port in [Target.At].
func (b *Broker) Base(at uint16) (name string, port uint16, ok bool) {
	if s := b.baseAt(at); s != nil {
		return network.Fold(s.Base.Name), s.Base.Port, true
	}
	return "", 0, false
}

// secure reports whether the requests of the connection go to the server over TLS: those that came over TLS, and
// those that came by a base URL, in plain HTTP inside.
func (c *exchange) secure() bool { return c.tls || c.base != nil }

// checkHost returns a refusal for a request that names another server than the connection's. A request that
// came by a base URL must name that URL's address, and have no URL of its own (the absolute form of a proxy).
func (c *exchange) checkHost(r *http.Request) *refusal {
	if c.base == nil {
		if !c.isHost(r.Host) || r.URL.Host != "" && !c.isHost(r.URL.Host) {
			return &refusal{status: http.StatusMisdirectedRequest, why: fmt.Sprintf("the request is for %.100q, and the connection for %s", r.Host, c.to.Name)}
		}
		return nil
	}
	to, err := netip.ParseAddrPort(r.Host)
	own := err == nil && (to.Addr() == network.Gateway4().Addr() || to.Addr() == network.Gateway6().Addr()) && to.Port() == c.to.At
	switch {
	case r.Method == http.MethodConnect || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/"):
		return &refusal{status: http.StatusMethodNotAllowed, why: "the base URL is no proxy: the request names a whole URL, or is CONNECT"}
	case !own:
		return &refusal{status: http.StatusMisdirectedRequest, why: fmt.Sprintf("the request is for %.100q, and the base URL is for %s", r.Host, c.to.Name)}
	}
	return nil
}

// checkBase returns a refusal for the request q if it came by a base URL and is not below that URL's path, or if
// the methods and paths of the URL's secret do not allow it, with or without a placeholder.
func (c *exchange) checkBase(q network.Request) *refusal {
	if c.base == nil {
		return nil
	}
	if dir := c.base.Base.Path; dir != "" && q.Path != dir && !strings.HasPrefix(q.Path, dir+"/") {
		return &refusal{status: http.StatusForbidden, why: fmt.Sprintf("the base URL of the secret %s leads to %s only", c.base.Name, dir)}
	}
	if why := c.base.refuses(q); why != "" {
		return &refusal{status: http.StatusForbidden, why: why}
	}
	return nil
}

// hostOf returns the Host header with which the sandbox's request r goes to the server: the client's own, or the
// server's name if the client named another address for it, or none.
func (c *exchange) hostOf(r *http.Request) string {
	if c.base != nil && c.to.Port != httpsPort {
		return c.to.Name + ":" + strconv.Itoa(int(c.to.Port))
	}
	if c.base != nil || r.Host == "" {
		return c.to.Name
	}
	return r.Host
}

const httpsPort = 443

// authorize adds the header Authorization with the secret to out, a request to the server that came by a base URL and
// has none, if the base URL asks for it (see [network.BrokerBase.Auth]). j inserts the secret and notes it.
func (c *exchange) authorize(out *http.Request, j *injection) {
	if c.base == nil || out.Header.Get("Authorization") != "" {
		return
	}
	switch c.base.Base.Auth {
	case network.AuthBearer:
		out.Header.Set("Authorization", j.header("Bearer "+c.base.Placeholder))
	case network.AuthToken:
		out.Header.Set("Authorization", j.header("Basic "+base64.StdEncoding.EncodeToString([]byte("__token__:"+c.base.Placeholder))))
	}
}

// inside returns value, of the header name of the server's response, as the client in the sandbox gets it. If the
// request r came by a base URL, the server's own URLs in a redirect or a link become those of the base URL.
func (c *exchange) inside(r *http.Request, name, value string) string {
	if c.base == nil || name != "Location" && name != "Content-Location" && name != "Link" {
		return value
	}
	origin := "https://" + c.to.Name
	if c.to.Port == httpsPort {
		value = strings.ReplaceAll(value, origin+"/", "http://"+r.Host+"/")
	}
	return strings.ReplaceAll(value, origin+":"+strconv.Itoa(int(c.to.Port))+"/", "http://"+r.Host+"/")
}
