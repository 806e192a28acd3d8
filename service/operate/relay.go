package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/relay"
)

// serveRelay serves a relay, which has neither store nor operator's socket.
func serveRelay(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Relay](path)
	if err != nil {
		return err
	}
	if o.Level != nil {
		o.Level.Set(c.Level)
	}
	cert, _, err := endpoint.LoadCertificate(c.Certificate, c.CertificateKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	to, err := endpoint.NewClient(endpoint.ClientConfig{Pins: c.Shuffler.Pinned, Certificate: &cert})
	if err != nil {
		return err
	}
	defer to.CloseIdleConnections()
	service, err := relay.New(relay.Config{Gateway: c.Shuffler.URL, Client: to, MaxRequest: c.MaxRequest, Log: o.Log})
	if err != nil {
		return err
	}
	front, err := endpoint.NewServer(endpoint.ServerConfig{Name: "clients", Address: c.Listen, Certificate: cert, Origins: c.Origins, Handler: service.Handler(), Known: service.Known,
		MaxBody: c.MaxRequest, MaxConns: c.MaxConnections, Share: c.AddressShare, Rate: c.Rate, Log: o.Log})
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{front.Run, service.Run}
	if c.Admin != config.NoAddress {
		admin, err := newAdmin(c.Admin, service.Ready, func() []endpoint.Metric { return append(front.Metrics(), service.Metrics()...) }, o.Log)
		if err != nil {
			return err
		}
		parts = append(parts, admin.run)
	}
	o.Log.Info("started")
	err = together(ctx, parts...)
	o.Log.Info("ended")
	return err
}

// relay checks a relay's configuration, and whether the shuffler knows it.
func (n *inspection) relay(ctx context.Context, path string) {
	c, err := config.Load[config.Relay](path)
	if n.wrong("configuration", err); err != nil {
		return
	}
	cert, _, err := endpoint.LoadCertificate(c.Certificate, c.CertificateKey)
	if err == nil && !time.Now().Before(cert.Leaf.NotAfter) {
		err = fmt.Errorf("%s has expired on %s: clients do not accept it", c.Certificate, cert.Leaf.NotAfter.Format(time.DateOnly))
	}
	if n.wrong("certificate", err); err != nil {
		return
	}
	to, err := endpoint.NewClient(endpoint.ClientConfig{Pins: c.Shuffler.Pinned, Certificate: &cert})
	if err == nil {
		defer to.CloseIdleConnections()
		var service *relay.Service
		if service, err = relay.New(relay.Config{Gateway: c.Shuffler.URL, Client: to}); err == nil {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if service.Ready(ctx) != nil {
				err = errors.New("the shuffler does not answer, or does not know this relay (relay: pins: in its configuration)")
			}
		}
	}
	n.add("shuffler", err)
}
