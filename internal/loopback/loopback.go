// Package loopback says what is this machine only: an address to listen on, and
// the Host of a request. A page on loopback that answers to any other Host can be
// read by any web site whose name is made to point at 127.0.0.1.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Address says whether only this machine can reach an address to listen on.
func Address(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isHost(host)
}

// Host says whether a request's Host, with or without a port, names this machine.
func Host(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return isHost(host)
}

func isHost(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
