// Package loopback recognises addresses and request Hosts that mean this machine only, and requests of
// other sites' pages. A page on loopback must refuse any other Host: otherwise a web site whose name is
// made to point at 127.0.0.1 can read the page.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Address says whether a listening address can be reached from this machine only.
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
