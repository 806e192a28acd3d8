package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// echo answers on a machine with what it reads.
func echo(t *testing.T, h *Host) string {
	t.Helper()
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp4", h.Address.String()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(h *Host, address string, limit time.Duration) (c net.Conn, err error) {
	err = h.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", address, limit)
		return err
	})
	return c, err
}

// say sends bytes and expects them back.
func say(c net.Conn, n int, limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	sent, got := bytes.Repeat([]byte{7}, n), make([]byte, n)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		failed <- err
	}()
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return errors.New("something else came back")
	}
	return <-failed
}

// Machines reach each other and nothing else, lose what is cut, and go on when it is healed.
func TestMachines(t *testing.T) {
	if !Enter(t) {
		return
	}
	const long = time.Minute
	n := New(t)
	a, b, c := n.Host(t, "a"), n.Host(t, "b"), n.Host(t, "c")
	address := echo(t, b)
	fromA, err := dial(a, address, long)
	if err != nil {
		t.Fatal(err)
	}
	defer fromA.Close()
	here, err := dial(n.hosts[0], address, long)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for _, conn := range []net.Conn{fromA, here} {
		if err := say(conn, 1<<20, long); err != nil {
			t.Fatal(err)
		}
	}

	// A process of a machine sees its address.
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat", "/proc/net/fib_trie")
	cmd.Stdout = in
	if err := c.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	in.Close()
	text, err := io.ReadAll(out)
	if err := errors.Join(err, cmd.Wait()); err != nil || !bytes.Contains(text, []byte(c.Address.String())) || bytes.Contains(text, []byte(b.Address.String())) {
		t.Errorf("the machine has other addresses: %v\n%s", err, text)
	}

	// One direction is cut: nothing comes back. Others are not touched.
	n.Cut(b, a)
	if err := say(fromA, 100, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("across a cut: %v", err)
	}
	if err := say(here, 100, long); err != nil {
		t.Error(err)
	}
	if _, dropped := n.Packets(b, a); dropped == 0 {
		t.Error("the cut dropped nothing")
	}
	n.Heal()
	if err := fromA.SetDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(fromA, make([]byte, 100)); err != nil {
		t.Errorf("healed: %v", err)
	}
	if err := say(fromA, 1<<16, long); err != nil {
		t.Errorf("healed: %v", err)
	}

	// A forgotten connection is dead, a new one is not.
	n.Forget(a, b)
	if err := say(fromA, 100, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a forgotten connection: %v", err)
	}
	again, err := dial(a, address, long)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()

	// Bytes arrive whole in any weather.
	for _, w := range []Weather{{Loss: .1}, {Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond}, {Rate: 1 << 20}, {Loss: .02, Delay: 5 * time.Millisecond, Rate: 4 << 20}} {
		n.Set(w)
		begin := time.Now()
		if err := say(again, 1<<18, 5*long); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
		took := time.Since(begin)
		t.Logf("%+v: %v", w, took)
		if least := 2 * w.Delay; took < least {
			t.Errorf("%+v: there and back in %v", w, took)
		}
		if w.Rate > 0 && took < (1<<18)*time.Second/time.Duration(w.Rate) {
			t.Errorf("%+v: faster than the rate, %v", w, took)
		}
	}
	if _, dropped := n.Packets(a, b); dropped == 0 {
		t.Error("no packet was lost")
	}
	n.Set(Weather{})

	// Two groups apart.
	for _, other := range []*Host{b, c} {
		n.Cut(a, other)
		n.Cut(other, a)
	}
	if conn, err := dial(a, address, 300*time.Millisecond); err == nil {
		conn.Close()
		t.Error("a connection across a cut")
	}
	if conn, err := dial(c, address, long); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if fmt.Sprint(a.Address) != "10.77.0.2" {
		t.Errorf("%v", a.Address)
	}
}
