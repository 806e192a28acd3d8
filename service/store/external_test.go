package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// authority makes a self-signed certificate for loopback and its files.
func authority(t *testing.T, dir string) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "store test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	pair, err = tls.LoadX509KeyPair(cert, key)
	must(t, err)
	return pair, cert, key
}

func secret(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// An external server that asks who one is, and has a certificate of its own: with what
// it wants the store opens, without it does not, and no error shows a secret.
func TestExternalServerWithCredentials(t *testing.T) {
	dir := t.TempDir()
	pair, cert, key := authority(t, dir)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	const password = "correct horse battery"
	for name, c := range map[string]struct {
		options func(*server.Options)
		good    Config
		bad     map[string]Config
	}{
		"user": {func(o *server.Options) { o.Username, o.Password = "riffle", password }, Config{User: "riffle", Password: secret(t, password+"\n"), TLSCA: cert},
			map[string]Config{
				"nobody": {TLSCA: cert}, "another password": {User: "riffle", Password: secret(t, "wrong horse"), TLSCA: cert},
				"another authority": {User: "riffle", Password: secret(t, password)}, "no password": {User: "riffle", TLSCA: cert},
				"two lines": {User: "riffle", Password: secret(t, password+"\nx"), TLSCA: cert}, "no file": {User: "riffle", Password: dir + "/none", TLSCA: cert},
				"both": {User: "riffle", Password: secret(t, password), Token: secret(t, password), TLSCA: cert},
			}},
		"token": {func(o *server.Options) { o.Authorization = password }, Config{Token: secret(t, password), TLSCA: cert},
			map[string]Config{"nobody": {TLSCA: cert}, "another": {Token: secret(t, "wrong horse"), TLSCA: cert}}},
		"certificate": {func(o *server.Options) {
			o.TLSVerify, o.TLSConfig.ClientAuth, o.TLSConfig.ClientCAs = true, tls.RequireAndVerifyClientCert, pool
		}, Config{TLSCert: cert, TLSKey: key, TLSCA: cert}, map[string]Config{"nobody": {TLSCA: cert}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &server.Options{ServerName: "external", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true,
				JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30, TLS: true, TLSTimeout: 5,
				TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}}
			c.options(o)
			s, err := server.NewServer(o)
			must(t, err)
			s.Start()
			defer func() { s.Shutdown(); s.WaitForShutdown() }()
			if !s.ReadyForConnections(10 * time.Second) {
				t.Fatal("the server does not start")
			}
			with := func(k Config) Config {
				k.Domain, k.URL, k.Replicas, k.Timeout = "shuffler", "tls://"+s.Addr().String(), 1, 5*time.Second
				return k
			}
			must(t, Init(t.Context(), with(c.good)))
			st, err := Open(t.Context(), with(c.good))
			must(t, err)
			_, err = st.Put(t.Context(), "round.1", []byte("open"), 0)
			must(t, err)
			must(t, st.Close())
			for what, k := range c.bad {
				st, err := Open(t.Context(), with(k))
				if err == nil {
					st.Close()
					t.Errorf("%s: opened", what)
				} else if strings.Contains(err.Error(), "horse") {
					t.Errorf("%s: the error shows the secret: %v", what, err)
				}
			}
		})
	}
}
