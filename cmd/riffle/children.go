package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// children are processes of this program that a demo started. A goroutine waits for each, and
// each one's log goes to a file.
type children struct {
	dir string // directory of logs

	mu  sync.Mutex
	all []*child
}

type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	in   io.WriteCloser // its standard input
	says *heard
	done chan struct{}
	err  error // valid when done is closed
}

// heard collects a process's standard output: its log, and whether it has said that it is
// ready.
type heard struct {
	log   io.Writer
	line  []byte
	ready chan struct{} // closed when it is ready
	once  sync.Once
}

func (h *heard) isReady() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

func (h *heard) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(h.line) <= len(readyLine) {
				h.line = append(h.line, c)
			}
			continue
		}
		if string(h.line) == readyLine {
			h.once.Do(func() { close(h.ready) })
		}
		h.line = h.line[:0]
	}
	return h.log.Write(b)
}

// start runs this program as a child process with the given arguments.
func (c *children) start(name string, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	one := &child{name: name, log: filepath.Join(c.dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(one.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	one.cmd = exec.Command(program, append(args, "--"+underDemo)...)
	// A test's program chooses what to run by os.Args[0], so the child gets the same name.
	one.cmd.Args[0] = os.Args[0]
	one.says = &heard{log: log, ready: make(chan struct{})}
	one.cmd.Stdout, one.cmd.Stderr = one.says, log
	one.cmd.WaitDelay = 5 * time.Second // it has no children that would hold its output open
	// Only this process holds the pipe open: if this process is killed, the children end as
	// well.
	if one.in, err = one.cmd.StdinPipe(); err == nil {
		apart(one.cmd) // Ctrl-C is for the parent, which ends them in order
		err = one.cmd.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), log.Close())
	}
	go func() {
		one.err = errors.Join(one.cmd.Wait(), log.Close())
		close(one.done)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
	return nil
}

// failed returns an error if a process has ended. Processes listed in may are allowed to end
// without an error.
func (c *children) failed(may ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		select {
		case <-one.done:
			if one.err != nil || !slices.Contains(may, one.name) {
				return fmt.Errorf("%s has ended: %v: %s", one.name, one.err, lastLine(one.log))
			}
		default:
		}
	}
	return nil
}

func lastLine(path string) string {
	b, err := durable.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return lines[len(lines)-1]
}

// ready waits until a role's process can serve.
func (c *children) ready(ctx context.Context, socket string) error {
	api := operate.OperatorClient(socket)
	deadline := time.Now().Add(time.Minute)
	why := "it does not answer"
	for {
		if _, err := os.Stat(socket); err == nil {
			ask, cancel := context.WithTimeout(ctx, 5*time.Second)
			resp, err := api.GetStatus(ask, connect.NewRequest(&operatorv1.GetStatusRequest{}))
			cancel()
			if err == nil && resp.Msg.NotReady == "" {
				return nil
			}
			if err == nil {
				why = resp.Msg.NotReady
			}
		}
		if err := c.failed(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %s", socket, why)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *children) named(name string) *child {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.name == name {
			return one
		}
	}
	return nil
}

// hear waits until processes have said that they are ready.
func (c *children) hear(ctx context.Context, names ...string) error {
	for _, name := range names {
		for one := c.named(name); !one.says.isReady(); {
			select {
			case <-one.says.ready:
			case <-one.done:
				if !one.says.isReady() {
					return fmt.Errorf("%s has ended before it was ready: %v: %s", name, one.err, lastLine(one.log))
				}
			case <-time.After(200 * time.Millisecond):
				if err := c.failed(names...); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// begin makes a coordinator announce rounds.
func (c *children) begin(name string) error {
	if _, err := fmt.Fprintln(c.named(name).in, beginLine); err != nil {
		return errors.Join(c.failed(), fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// await waits until processes have ended by themselves, but not longer than limit.
func (c *children) await(ctx context.Context, limit time.Duration, names ...string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	for _, one := range all {
		if slices.Contains(names, one.name) {
			select {
			case <-one.done:
			case <-ctx.Done():
			}
		}
	}
}

// stop ends all processes, the last started first, and returns an error if one did not end as
// it should.
func (c *children) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, one := range slices.Backward(c.all) {
		select {
		case <-one.done:
			continue
		default:
		}
		if err := one.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			_ = one.cmd.Process.Kill() // some systems do not have that signal
		}
		select {
		case <-one.done:
			if one.err != nil {
				errs = append(errs, fmt.Errorf("%s: %v: %s", one.name, one.err, lastLine(one.log)))
			}
		case <-time.After(20 * time.Second):
			errs = append(errs, fmt.Errorf("%s does not stop, and was killed", one.name))
			_ = one.cmd.Process.Kill()
			<-one.done
		}
	}
	c.all = nil
	return errors.Join(errs...)
}
