package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/localsocket"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// maxAdmin is the largest number of connections to the operators' address.
const maxAdmin = 64

// plainServer serves HTTP without TLS.
type plainServer struct {
	listener net.Listener
	handler  http.Handler
	socket   string // the path of a socket, which ends with the server; "": none
}

// close ends a server that does not serve.
func (p *plainServer) close() error {
	err := p.listener.Close()
	if p.socket != "" {
		if gone := os.Remove(p.socket); !errors.Is(gone, fs.ErrNotExist) { // somebody may have cleaned up
			err = errors.Join(err, gone)
		}
	}
	return err
}

// newAdmin listens on the operators' address: /healthz, /readyz, /metrics. Its requests
// change nothing, and it is plain HTTP. Let it listen on loopback, where the Host must be
// loopback's too, or on a network of your own. ready returns why requests cannot be served
// now; nil if they can.
func newAdmin(address string, ready func(context.Context) error, metrics func() []endpoint.Metric, log *slog.Logger) (*plainServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("operate: admin: %v", err)
	}
	log.Info("listening", "server", "admin", "address", l.Addr().String())
	return &plainServer{listener: endpoint.LimitListener(l, maxAdmin), handler: adminHandler(address, ready, metrics)}, nil
}

// adminHandler answers /healthz, /readyz and /metrics.
func adminHandler(address string, ready func(context.Context) error, metrics func() []endpoint.Metric) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if err := ready(ctx); err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		plain(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if err := writeMetrics(&b, append(metrics(), processMetrics()...)); err != nil {
			plain(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	})
	local := loopback.Address(address)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case local && !loopback.Host(r.Host):
			plain(w, http.StatusMisdirectedRequest, "this address is for this machine only: ask for it by 127.0.0.1 or localhost\n")
		case loopback.Foreign(r, false):
			plain(w, http.StatusForbidden, "other pages may not ask here\n")
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// run serves short requests until ctx ends, and removes the socket if it served on one.
func (p *plainServer) run(ctx context.Context) error {
	s := &http.Server{Handler: p.handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 90 * time.Second, MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(p.listener) }()
	select {
	case err := <-done:
		return errors.Join(fmt.Errorf("operate: %v", err), p.close())
	case <-ctx.Done():
	}
	defer p.close()
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.Shutdown(grace)
	if err != nil {
		err = s.Close()
	}
	<-done
	return err
}

// newSocketServer listens on a Unix socket of mode 0600: permission to open the file is
// permission to operate the role. A socket that a process left behind is replaced; one that
// answers is refused.
func newSocketServer(path string, h http.Handler) (*plainServer, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("operate: %s exists and is not a socket", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("operate: another process serves %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("operate: %w", err)
		}
	}
	l, err := listenPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	return &plainServer{listener: l, handler: h, socket: path}, nil
}

// listenPrivately makes a socket of mode 0600. A socket's first mode is what the umask leaves, so it is made where
// nobody else can reach it, and gets its name when it has its mode.
func listenPrivately(path string) (_ net.Listener, err error) {
	if runtime.GOOS == "windows" { // files have access lists there, and no modes
		return net.Listen("unix", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s") // its mode is 0700; a socket's path must be short
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	first := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the first name, which may be another's by then
	if err = os.Chmod(first, 0o600); err == nil {
		err = os.Rename(first, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(first))
	}
	return l, nil
}

// newSocketClient returns a client of a server on a socket; the host in its URLs does not matter. The server must
// be of the same user or root's, as the socket's mode says. Root asks anybody's.
func newSocketClient(path string) *http.Client {
	dial := localsocket.Dial
	if os.Getuid() == 0 {
		dial = func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return dial(ctx, path)
		},
	}}
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// writeMetrics writes the text format of Prometheus, version 0.0.4. It writes families of one
// name as one family; they must agree in kind.
func writeMetrics(w io.Writer, metrics []endpoint.Metric) error {
	var order []string
	byName := map[string]*endpoint.Metric{}
	for _, m := range metrics {
		if !metricName(m.Name) {
			return fmt.Errorf("operate: %q is not a name of a metric", m.Name)
		}
		have := byName[m.Name]
		if have == nil {
			one := m
			one.Samples = nil
			have, order = &one, append(order, m.Name)
			byName[m.Name] = have
		}
		if have.Kind != m.Kind {
			return fmt.Errorf("operate: metric %s is a %s and a %s", m.Name, have.Kind, m.Kind)
		}
		have.Samples = append(have.Samples, m.Samples...)
	}
	var b bytes.Buffer
	for _, name := range order {
		m := byName[name]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, escapeHelp.Replace(m.Help), m.Name, m.Kind)
		for _, s := range m.Samples {
			b.WriteString(m.Name)
			if len(s.Labels)%2 != 0 {
				return fmt.Errorf("operate: metric %s has a label without a value", m.Name)
			}
			for i := 0; i < len(s.Labels); i += 2 {
				if !metricName(s.Labels[i]) {
					return fmt.Errorf("operate: %q is not a name of a label", s.Labels[i])
				}
				fmt.Fprintf(&b, `%c%s="%s"`, "{,"[min(i, 1)], s.Labels[i], escapeLabel.Replace(s.Labels[i+1]))
			}
			if len(s.Labels) > 0 {
				b.WriteByte('}')
			}
			b.WriteByte(' ')
			b.WriteString(strconv.FormatFloat(s.Value, 'g', -1, 64))
			b.WriteByte('\n')
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func metricName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
