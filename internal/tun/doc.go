// Package tun sets up TUN interfaces (Documentation/networking/tuntap.rst).
package tun
