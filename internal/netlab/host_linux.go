package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

const linkMTU = 1500

// Host is a machine.
type Host struct {
	Name    string
	Address netip.Addr
	id      int
	space   int // its namespace
	link    *os.File
	net     *Network
}

// New makes a network whose first machine is the test's own process. It must be called
// in the process that Enter started.
func New(t testing.TB) *Network {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Fatal("netlab: Enter comes first")
	}
	n := newNetwork()
	t.Cleanup(n.close)
	if _, err := n.host("here", false); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		t.Skipf("no network can be made here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return n
}

// Host adds a machine.
func (n *Network) Host(t testing.TB, name string) *Host {
	t.Helper()
	h, err := n.host(name, true)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (n *Network) host(name string, apart bool) (h *Host, err error) {
	n.mu.Lock()
	id := len(n.hosts)
	n.mu.Unlock()
	h = &Host{Name: name, Address: netip.AddrFrom4([4]byte{10, 77, 0, byte(id + 1)}), id: id, net: n}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // its thread ends with it
		done <- h.connect(apart)
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("netlab: %s: %w", name, err)
	}
	n.mu.Lock()
	n.hosts = append(n.hosts, h)
	n.mu.Unlock()
	n.work.Go(func() { n.read(h) })
	return h, nil
}

// connect gives the thread's machine, or a new one, an address and a link.
func (h *Host) connect(apart bool) error {
	if apart {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
	}
	space, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	h.space = space
	link, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	const name = "lab0"
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(link, unix.TUNSETIFF, r); err != nil {
		unix.Close(link)
		return err
	}
	h.link = os.NewFile(uintptr(link), h.Name)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	address := h.Address.As4()
	set := func(name string, what uint, fill func(*unix.Ifreq) error) error {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = fill(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, what, r)
		}
		return err
	}
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }
	return errors.Join(
		set("lo", unix.SIOCSIFFLAGS, up),
		set(name, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(address[:]) }),
		set(name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }),
		set(name, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(linkMTU); return nil }),
		set(name, unix.SIOCSIFFLAGS, up))
}

// Do runs a function, such as the Start of a command, on a thread of the machine: sockets and
// processes that it makes itself are the machine's.
func (h *Host) Do(f func() error) error { return in(h.space, f) }
