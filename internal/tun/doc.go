// Package tun sets up TUN interfaces (Documentation/networking/tuntap.rst), through which a sandbox's network
// traffic reaches its proxy.
package tun
