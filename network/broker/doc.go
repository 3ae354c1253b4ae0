// Package broker reads the HTTP requests of a sandbox at the proxy, and puts secrets in where the sandbox has
// placeholders.
//
//	client inside ─► TLS with the sandbox's own CA ─► broker ─► TLS, verified strictly ─► server
//
// A [Broker] takes the connections to names that a secret, a rule with methods or a budget is for. It ends TLS with
// a certificate of a CA that only the sandbox trusts. It reads each request, decides on it, and writes a request of
// its own to the server: no byte of the client's framing reaches the server, so a request cannot hide another one.
//
// # What the broker verifies
//
//   - The request is for the name that the connection was allowed for, and asks for no upgrade to another protocol.
//   - A network rule allows the method and the path, in the form of httprule.Clean, which is also what is sent on.
//   - Each placeholder in it is of this start of the sandbox, and its secret is for this server, method and path,
//     over TLS. The broker replaces placeholders in headers, also in Basic credentials, and in the query; in a body
//     only if the secret says so.
//   - The budget has room for the request.
//
// A secret may have a base URL: a port of the proxy's own addresses, in plain HTTP, which stands for one server. There
// the request must name that port, be below the URL's path, and be allowed by the secret with or without a placeholder.
//
// A secret may be keys of AWS, which are in no request. The broker verifies that the placeholder keys signed the
// request, and signs it anew.
//
// Every refusal is a response with a 4xx status, a reason in words, and an event.
//
// A response in which a server repeats a secret has the placeholder instead: in headers and bodies, as it is and in
// the usual encodings. A server that transforms a secret in another way, or sends it elsewhere, is trusted with it.
//
// Read [Broker], then exchange. The package must not know sandboxes, TUN devices or where secrets come from.
package broker
