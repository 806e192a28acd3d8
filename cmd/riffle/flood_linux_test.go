//go:build long

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// A host floods a relay with questions for rounds that nobody opened, 1,250 connections from each of its addresses
// and two questions at a time on each: no report is lost, and rounds take less than twice as long.
func TestFloodOfARelayBySockets(t *testing.T) {
	const conns = 1250 // what an address-share of an eighth lets one address hold
	took := func(t *testing.T, from ...string) time.Duration {
		d := deploy(t, scenario{clients: 12, processes: 2, rounds: 4, spread: 4 * time.Second, relay: true})
		d.reach(1, patience)
		c, err := config.Load[config.Relay](d.l.Config(operate.RoleRelay))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var opened, asked, failed atomic.Int64
		for i := range conns {
			for _, ip := range from {
				all.Go(func() { floodBy(ctx, ip, c.Listen, time.Duration(i)*time.Millisecond, &opened, &asked, &failed) })
			}
		}
		begun := time.Now()
		d.reach(d.rounds, patience)
		span := time.Since(begun)
		cancel()
		all.Wait()
		t.Logf("from %v: three rounds in %v; %d connections, %d answers, %d ended", from, span.Round(time.Millisecond), opened.Load(), asked.Load(), failed.Load())
		if len(from) > 0 && asked.Load() == 0 {
			t.Error("the flood got no answer")
		}
		d.whole(patience)
		return span
	}
	quiet := took(t)
	for name, from := range map[string][]string{
		"the clients' own network": {"127.0.0.9"},
		"five others":              {"127.1.0.1", "127.2.0.1", "127.3.0.1", "127.4.0.1", "127.5.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if span := took(t, from...); span > 2*quiet {
				t.Errorf("three rounds took %v, %v without the flood", span, quiet)
			}
		})
	}
}

// floodBy asks by one connection after another from an address, twice at a time, until the context ends.
func floodBy(ctx context.Context, ip, to string, after time.Duration, opened, answers, ended *atomic.Int64) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	for ctx.Err() == nil {
		c := &http.Transport{ForceAttemptHTTP2: true, MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				opened.Add(1)
				return dialer.DialContext(ctx, network, to)
			}}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				for askFlooding(ctx, c, to) == nil {
					answers.Add(1)
					select { // 1,250 connections then ask some 1,600 times a second
					case <-ctx.Done():
					case <-time.After(1500 * time.Millisecond):
					}
				}
				ended.Add(1)
			})
		}
		both.Wait()
		c.CloseIdleConnections()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func askFlooding(ctx context.Context, c *http.Transport, to string) error {
	var round [32]byte
	rand.Read(round[:])
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/v1/enrolment?round=%x", to, round), nil)
	if err != nil {
		return err
	}
	a, err := c.RoundTrip(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return err
}
