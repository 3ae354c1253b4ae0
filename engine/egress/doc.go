// Package egress runs the network proxy process of one sandbox and keeps its
// journal: which names and addresses were allowed, and which were refused.
//
// Read [Gateway] first, then the proxy. The rules themselves are package
// network's, and the TCP/IP stack is in the proxy's own program.
package egress
