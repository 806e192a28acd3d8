package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/internal/durable"
)

// serverLog collects the embedded server's errors and warnings. Nothing is printed; the last
// one is added to the errors of the calls that fail because of it.
type serverLog struct {
	mu   sync.Mutex
	last string
	full bool
	// filled ends when full is set, because the server never answers the write that met the
	// full disk.
	filled context.Context
	fill   context.CancelFunc
}

func newServerLog() *serverLog {
	l := &serverLog{}
	l.filled, l.fill = context.WithCancel(context.Background())
	return l
}

func (l *serverLog) keep(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
	text := strings.ToLower(l.last)
	l.full = l.full || strings.Contains(text, "no space left") || strings.Contains(text, "out of file resources") ||
		strings.Contains(text, "out of resources")
	if l.full {
		l.fill()
	}
}

func (l *serverLog) Errorf(format string, v ...any) { l.keep(format, v...) }
func (l *serverLog) Fatalf(format string, v ...any) { l.keep(format, v...) }
func (l *serverLog) Noticef(string, ...any)         {}
func (l *serverLog) Warnf(format string, v ...any)  { l.keep(format, v...) }
func (l *serverLog) Debugf(string, ...any)          {}
func (l *serverLog) Tracef(string, ...any)          {}

func (l *serverLog) lastError() (text string, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.full
}

// startServer locks the directory and starts a server that listens to nobody, prints nothing
// and handles no signals.
func (s *Store) startServer() (err error) {
	dir := s.config.Dir
	if err := refuseClustered(dir); err != nil {
		return err
	}
	if s.unlock, err = durable.Lock(filepath.Join(dir, "lock")); err != nil {
		if errors.Is(err, durable.ErrLocked) {
			err = ErrLocked
		}
		return fmt.Errorf("store: %s: %w", dir, err)
	}
	if err := s.finishInterrupted(); err != nil {
		return err
	}
	if err := s.settleAll(); err != nil {
		return err
	}
	// The directory is made here so that the server does not choose its mode.
	if err := durable.MkdirAll(filepath.Join(dir, server.JetStreamStoreDir), 0o700); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	o := &server.Options{
		ServerName: "riffle-" + s.config.Domain, DontListen: true, NoLog: true, NoSigs: true,
		MaxPayload: maxPayload, JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: s.config.MaxBytes, DisableJetStreamBanner: true,
	}
	if s.server, err = server.NewServer(o); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.log = newServerLog()
	s.server.SetLoggerV2(s.log, false, false, false)
	s.server.Start()
	if !s.server.ReadyForConnections(s.config.Timeout) || !s.server.JetStreamEnabled() {
		text, full := s.log.lastError()
		if full {
			return fmt.Errorf("store: %s: %w (%s)", dir, ErrFull, text)
		}
		return fmt.Errorf("store: the embedded server did not start in %s: %s", dir, text)
	}
	return nil
}

// refuseClustered fails if a clustered server has used the directory: it looks for the
// server's own group, and for those of replicated streams.
func refuseClustered(dir string) error {
	found, err := filepath.Glob(filepath.Join(globEscape(dir), server.JetStreamStoreDir, "*", "_js_", "*"))
	if err != nil {
		return fmt.Errorf("store: %s: %w", dir, err)
	}
	if len(found) != 0 {
		return fmt.Errorf("store: %s was opened by a clustered server, which deletes the streams of a standalone one; refusing: %w",
			dir, ErrClustered)
	}
	return nil
}

func globEscape(path string) string {
	if filepath.Separator == '\\' {
		return path // Windows has no escape, and no * or ? in names
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// awaitRemoval waits until a deleted stream's files are gone, which the server removes in the
// background, and the removal is on disk.
func (s *Store) awaitRemoval(name string) error {
	dir := s.streamDir(name)
	parent := filepath.Dir(dir)
	deadline := time.Now().Add(s.config.Timeout)
	for _, path := range []string{dir, filepath.Join(parent, "."+name)} {
		for {
			_, err := os.Stat(path)
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			if err != nil {
				return fmt.Errorf("store: %w", err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("store: the files of %s are still there: %s", name, path)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return durable.SyncDir(parent)
}
